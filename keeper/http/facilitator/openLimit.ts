import { readCaller } from '@tollkeeper/ledger/acceptance/facilitations'
import { findSuspendedPayees } from '@tollkeeper/ledger/registry/suspendProvider'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { createCache } from '@tollkeeper/runtime/cache'
import type { Address } from 'viem'
import { Refused } from './reasons.ts'

type Paid = { chainId: number; token: Address; address: Address }

const countTtlMs = 1_000

/**
 * Limits the open payments of each of the facilitator's callers. The keeper reads each open payment repeatedly, so a caller with very many open
 * payments would slow it down. API keys are free, so they don't prevent that.
 *
 * @param most maximum number of open payments with one API key. Without an API key, the limit applies to the wallet that is paid.
 */
export function createOpenLimit(sql: Queryable, most: number) {
  const counts = createCache<string, { open: number; isDisabled: boolean }>({
    load: (caller) => readCaller(sql, caller),
    ttlMs: countTtlMs,
    max: 10_000,
    now: () => performance.now(),
  })
  const suspended = createCache<string, boolean>({
    load: async (paid) => {
      const [chainId, token, address] = paid.split(' ') as [string, Address, Address]
      return (await findSuspendedPayees(sql, { chainId: Number(chainId), token }, [address])).has(address)
    },
    ttlMs: countTtlMs,
    max: 10_000,
    now: () => performance.now(),
  })
  return {
    /**
     * Counts one more open payment.
     *
     * @throws {Refused} if there are too many open payments, if the API key's provider is disabled, or if the owner of the paid wallet is
     *   suspended. Payments that were already verified settle anyway.
     */
    async take(providerId: string | null, { chainId, token, address }: Paid): Promise<void> {
      const [count, isSuspended] = await Promise.all([
        counts.get(providerId ?? address),
        suspended.get(`${chainId} ${token} ${address}`),
      ])
      if (count.isDisabled || isSuspended)
        throw new Refused(null, 'this provider is disabled: enable it, or ask the operator')
      if (count.open >= most) {
        const whose = providerId === null ? 'this wallet has' : 'this API key has'
        throw new Refused(null, `${whose} ${most} payments open: try again once some of them are settled`)
      }
      count.open += 1
    },
  }
}
