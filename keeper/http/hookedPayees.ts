import { findHookedPayees } from '@tollkeeper/ledger/hooks/hooks'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { createCache } from '@tollkeeper/runtime/cache'
import type { Address } from 'viem'

/** Time in ms for which a wallet's owner is cached: the maximum delay until a new hook is used. */
const ownerTtlMs = 2_000
/** Maximum number of cached wallets. */
const maxOwners = 10_000

/** Creates a cached look-up from the address of a wallet or splitter to the provider that owns it. Finds only providers that have a hook. */
export function createHookedPayees(sql: Queryable) {
  const owners = createCache<string, string | null>({
    load: async (key) => {
      const [chainId, token, address] = key.split(' ') as [string, Address, Address]
      const found = await findHookedPayees(sql, { chainId: Number(chainId), token }, [address])
      return found.get(address) ?? null
    },
    ttlMs: ownerTtlMs,
    max: maxOwners,
    now: () => performance.now(),
  })
  return {
    ownerOf: async (chainId: number, token: Address, address: Address) =>
      owners.get(`${chainId} ${token} ${address}`),
  }
}
