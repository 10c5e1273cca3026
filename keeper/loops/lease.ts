import type { Address } from 'viem'
import { acquireLease, type LeaseState, releaseLease } from '#ledger/batches/leases'
import type { Context } from './context.ts'

/** `busy`: there may be more to do at once. `idle`: nothing to do before the next poll. */
export type StepResult = 'busy' | 'idle'

export type Leased = {
  address: Address
  step: () => Promise<StepResult>
  /** Lets another process take the wallet over at once. */
  release: () => Promise<void>
}

/**
 * Takes steps under a wallet's lease, one process at a time. Nothing that matters is kept in memory: a step starts from
 * what is stored.
 */
export function createLeased(
  { sql, served, settings }: Context,
  holder: string,
  address: Address,
  stepWith: (lease: LeaseState) => Promise<StepResult>,
): Leased {
  const { chainId } = served.network
  let lease: LeaseState | null = null
  const acquire = () => acquireLease(sql, { chainId, address, holder, ttlMs: settings.leaseMs })
  return {
    address,
    async step() {
      lease = await acquire()
      if (!lease) return 'idle'
      // A slow RPC may make a step take longer than the lease. A renewal that fails is noticed by the next fenced write.
      const renewal = setInterval(() => void acquire().catch(() => {}), settings.leaseMs / 3)
      try {
        return await stepWith(lease)
      } finally {
        clearInterval(renewal)
      }
    },
    async release() {
      if (lease) await releaseLease(sql, lease)
    },
  }
}
