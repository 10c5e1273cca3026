import { type HoldReason, isWaiting } from '@tollkeeper/ledger/queue/stages'
import type { WaitingPayments } from '@tollkeeper/ledger/queue/triggers'
import { queuedFees, queuedSales } from '@tollkeeper/ledger/sales/sales'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { Address } from 'viem'
import { Refusal } from '../http/refusal.ts'

export type QueueOptions = {
  chainId: number
  token: Address
  wallet: Address
  /** 0: the payments' provider parts, paid to a provider's wallet; 1: their fees, paid to the platform's wallet. */
  half: 0 | 1
  now: Date
}

/** The payments that a wallet waits for, and what the keeper does with them. */
export type WalletQueue = {
  paymentCount: number
  amount: bigint
  firstQueuedAt: Date
  /** Why the oldest payment waits for cheaper gas; null: it doesn't. */
  heldBy: HoldReason | null
  /** Payments for which a trigger can fire; null: none. */
  waiting: WaitingPayments | null
  /**
   * Time of the next attempt to settle a payment for which no trigger can fire: the current time if such a payment is due or in a batch. Null: there
   * are no such payments.
   */
  nextAttemptAt: Date | null
}

/**
 * Reads what a wallet waits for: accepted authorizations that are still to be settled. Those in an open batch count until the record shows
 * that they moved.
 *
 * @returns null if nothing is waiting
 */
export async function readWalletQueue(
  sql: Database,
  { chainId, token, wallet, half, now }: QueueOptions,
): Promise<WalletQueue | null> {
  const wallets = sql`(
    select ${wallet}::text as wallet_id, ${chainId}::int as chain_id, ${token}::text as token, ${wallet}::text as address
  )`
  const own = half === 0 ? queuedSales(sql, wallets, now) : queuedFees(sql, { chainId, token, wallet }, now)
  const waits = isWaiting(sql)
  const [row] = await sql<Row[]>`
    select sum(q.payments)::int as "paymentCount", sum(q.part) as amount, min(q.accepted_at) as "firstQueuedAt",
      (array_agg(q.held_by order by q.accepted_at, q.payment_id))[1] as "heldBy",
      coalesce(sum(q.counted_payments) filter (where ${waits}), 0)::int as "waitingCount",
      coalesce(sum(q.counted_part) filter (where ${waits}), 0) as "waitingAmount",
      max(q.counted_whole) filter (where ${waits}) as "largestPayment",
      min(q.accepted_at) filter (where ${waits}) as "firstWaitingAt",
      min(q.urgent_at) filter (where ${waits}) as "firstUrgentAt", bool_or(q.may_be_voided) as "mayBeVoided",
      min(greatest(q.next_at, ${now})) filter (where not (${waits})) as "nextAttemptAt"
    from ${own} q
    having count(*) > 0`
  return row === undefined ? null : toQueue(row)
}

type Row = Omit<WalletQueue, 'waiting'> & {
  waitingCount: number
  waitingAmount: bigint
  largestPayment: bigint | null
  firstWaitingAt: Date | null
  firstUrgentAt: bigint | null
  mayBeVoided: boolean
}

function toQueue({
  waitingCount: paymentCount,
  waitingAmount: amount,
  largestPayment,
  firstWaitingAt: firstQueuedAt,
  firstUrgentAt,
  mayBeVoided,
  ...queue
}: Row): WalletQueue {
  if (largestPayment === null || firstQueuedAt === null || firstUrgentAt === null) {
    return { ...queue, waiting: null }
  }
  const waiting = { paymentCount, amount, largestPayment, firstQueuedAt, firstUrgentAt, mayBeVoided }
  return { ...queue, waiting: { ...waiting, retryDue: false } }
}

/**
 * Rejects a wallet that was never registered or paid: its queue would be empty, but the address may be mistyped.
 *
 * @throws {Refusal} `unknown_wallet`
 */
export async function requireKnownWallet(
  sql: Database,
  { chainId, wallet }: { chainId: number; wallet: Address },
): Promise<void> {
  const [known] = await sql`
    select from wallet where chain_id = ${chainId} and address = ${wallet}
    union all
    select from splitter where chain_id = ${chainId} and ${wallet} in (provider, platform)
    limit 1`
  if (known !== undefined) return
  const [paid] = await sql`
    select from batch_recipient where chain_id = ${chainId} and recipient = ${wallet} limit 1`
  if (paid === undefined)
    throw new Refusal(
      'unknown_wallet',
      `${wallet} is not registered on this gateway and was never paid by it`,
    )
}
