import type { Address } from 'viem'
import type { Database } from '#ledger/database'
import { carriesFee, halves } from '#ledger/halves'
import type { WaitingPayments } from '#ledger/triggers'
import { Refusal } from '../../refusal.ts'
import { fromIndex } from './indexedHead.ts'

export type QueueQuestion = {
  chainId: number
  token: Address
  wallet: Address
  /** 0: provider wallets wait for their part; 1: the platform's for its fees. */
  half: 0 | 1
  now: Date
}

/** What a wallet waits for, and how the keeper sees it. */
export type WalletQueue = {
  paymentCount: number
  amount: bigint
  firstQueuedAt: Date
  /** Those for which a trigger can fire; null: none. */
  waiting: WaitingPayments | null
  /** When the first of the others is tried again, or now where it is in an open batch; null: there are no others. */
  nextAttemptAt: Date | null
}

/**
 * What a wallet waits for: its halves that were accepted, are wanted, and have not moved. Those in an open batch are
 * among them until the index shows that they moved.
 *
 * @returns null where it waits for nothing
 */
export async function readWalletQueue(
  sql: Database,
  { chainId, token, wallet, half, now }: QueueQuestion,
): Promise<WalletQueue | null> {
  const recipient = half === 0 ? sql`payee` : sql`fee_recipient`
  const part = half === 0 ? sql`provider_amount` : sql`fee_amount`
  // As ledger/queue.ts reads it. A payment apart from the triggers is in an open batch, or has an attempt of its own.
  const waits = sql`p.next_attempt_at is null and not p.is_claimed and not p.quarantined`
  const [row] = await sql<Row[]>`
    select count(*)::int as "paymentCount", sum(p.${part}) as amount, min(p.accepted_at) as "firstQueuedAt",
      count(*) filter (where ${waits})::int as "waitingCount",
      coalesce(sum(p.${part}) filter (where ${waits}), 0) as "waitingAmount",
      max(p.provider_amount + p.fee_amount) filter (where ${waits}) as "largestPayment",
      min(p.accepted_at) filter (where ${waits}) as "firstWaitingAt",
      min(h.valid_before) filter (where ${waits}) as "firstValidBefore",
      min(greatest(p.next_attempt_at, ${now})) filter (where not (${waits})) as "nextAttemptAt"
    from payment p
    join ${halves(sql)} h on h.payment_id = p.id and ${half === 0 ? sql`h.half = 0` : carriesFee(sql)}
    where p.chain_id = ${chainId} and p.token = ${token} and p.${recipient} = ${wallet}
      and p.concluded_at is null and p.failed_at is null and p.voided_at is null
      and h.state = 'open' and h.valid_before > extract(epoch from ${now}::timestamptz)
    having count(*) > 0`
  return row === undefined ? null : toQueue(row)
}

type Row = Omit<WalletQueue, 'waiting'> & {
  waitingCount: number
  waitingAmount: bigint
  largestPayment: bigint | null
  firstWaitingAt: Date | null
  firstValidBefore: bigint | null
}

function toQueue({
  waitingCount: paymentCount,
  waitingAmount: amount,
  largestPayment,
  firstWaitingAt: firstQueuedAt,
  firstValidBefore,
  ...queue
}: Row): WalletQueue {
  if (largestPayment === null || firstQueuedAt === null || firstValidBefore === null) {
    return { ...queue, waiting: null }
  }
  const waiting = { paymentCount, amount, largestPayment, firstQueuedAt, firstValidBefore, retryDue: false }
  return { ...queue, waiting }
}

/**
 * Refuses a wallet that was never registered or paid: its queue would be empty, but its address may be mistyped.
 *
 * @throws {Refusal} `unknown_wallet`
 */
export async function requireKnownWallet(
  sql: Database,
  { chainId, wallet }: { chainId: number; wallet: Address },
): Promise<void> {
  const [row] = await fromIndex(sql<[{ isKnown: boolean }]>`
    select exists (select from wallet where chain_id = ${chainId} and address = ${wallet})
      or exists (select from indexer.batch_recipient
        where chain_id = ${chainId} and recipient = ${wallet})
      or exists (select from splitter where chain_id = ${chainId} and ${wallet} in (provider, platform)) as "isKnown"`)
  if (!row.isKnown) {
    throw new Refusal('unknown_wallet', `Nothing is registered for or was paid to ${wallet} here`)
  }
}
