import type { Address } from 'viem'
import { readCaller } from '#ledger/acceptance/facilitations'
import { findSuspendedPayees } from '#ledger/registry/suspendProvider'
import type { Queryable } from '#ledger/store/database'
import { createCache } from '#process/cache'
import { InvalidPayment } from './reasons.ts'

/** Bounds each caller's open payments: keys are free, and each open payment is read again and again. */
export type OpenLimit = {
  /**
   * Counts one more open payment.
   *
   * @throws {InvalidPayment} if there are too many, or the provider of the key or of the wallet is disabled; payments that were
   *   verified before settle all the same.
   */
  take(providerId: string | null, paid: Paid): Promise<void>
}

type Paid = { chainId: number; token: Address; address: Address }

const countTtlMs = 1_000

/** @param most for one API key, or without a key for one paid wallet. */
export function createOpenLimit(sql: Queryable, most: number): OpenLimit {
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
    async take(providerId, { chainId, token, address }) {
      const [count, isSuspended] = await Promise.all([
        counts.get(providerId ?? address),
        suspended.get(`${chainId} ${token} ${address}`),
      ])
      if (count.isDisabled || isSuspended)
        throw new InvalidPayment(null, 'this provider is disabled: enable it, or ask the operator')
      if (count.open >= most) {
        const whose = providerId === null ? 'this wallet has' : 'this API key has'
        throw new InvalidPayment(
          null,
          `${whose} ${most} payments open: try again once some of them are settled`,
        )
      }
      count.open += 1
    },
  }
}
