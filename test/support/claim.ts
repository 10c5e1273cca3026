import { type Claimed, claimPayments } from '@tollkeeper/ledger/batches/claims'
import { acquireLease, type Lease } from '@tollkeeper/ledger/batches/leases'
import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import type { Lane } from '@tollkeeper/ledger/queue/lanes'
import type { Database } from '@tollkeeper/ledger/store/database'
import { seedChainId, seedPlatform, seedToken } from './seedPayments.ts'
import { randomHex } from './usdc.ts'

// Does what a keeper does with payments of `seedPayment`, but without a keeper.

/** Leases a new wallet for each batch. */
export async function leaseWallet(sql: Database): Promise<Lease> {
  const wallet = { chainId: seedChainId, address: randomHex(20) }
  const lease = await acquireLease(sql, { ...wallet, holder: 'a', ttlMs: 60_000 })
  if (!lease) throw new Error('no lease')
  return lease
}

export async function claimAs(
  sql: Database,
  lane: Lane,
  paymentIds: readonly string[],
  { now = new Date(), lease }: { now?: Date; lease?: Lease } = {},
): Promise<Claimed> {
  const trigger = lane === 'submission' ? 'submission' : 'count'
  const terms = { batchId: randomHex(32), token: seedToken, feeRecipient: seedPlatform, trigger } as const
  return claimPayments(sql, lease ?? (await leaseWallet(sql)), { ...terms, lane, paymentIds }, now)
}

/** Fails an attempt. @returns the attempts so far; null if the payment is no longer in the queue. */
export function failPayment(
  sql: Database,
  paymentId: string,
  { code = 'insufficient_balance', isFinal = false, now = new Date() } = {},
): Promise<number | null> {
  const failure = { paymentId, batchId: null, code, detail: '', isFinal }
  return recordFailure(sql, failure, { now })
}
