import type { Address } from 'viem'
import { isOpen } from '#ledger/facts/halves'
import { isFresh, isRetryDue, isRetrying, isSent, isShown, isWaiting } from '#ledger/queue/stages'
import type { WaitingPayments } from '#ledger/queue/triggers'
import type { Database } from '#ledger/store/database'

/** The payments to a wallet that may still move, by what the keeper does with them. Amounts are what the wallet receives. */
export type WalletWork = {
  /** In no transaction yet, without what failed before. */
  waitingPayments: number
  waitingAmount: bigint
  /** The queue as the triggers see it. They don't count payments that are settled apart from the others. */
  counted: WaitingPayments
  /** In a transaction. */
  settlingPayments: number
  settlingAmount: bigint
  /** Failed before, and in no transaction. */
  retryingPayments: number
}

export const noWork: WalletWork = {
  ...{ waitingPayments: 0, waitingAmount: 0n, settlingPayments: 0, settlingAmount: 0n, retryingPayments: 0 },
  counted: {
    ...{ paymentCount: 0, amount: 0n, largestPayment: 0n, retryDue: false },
    ...{ firstQueuedAt: new Date(0), firstValidBefore: 0n },
  },
}

type Row = Omit<WalletWork, 'counted'> & WaitingPayments & { walletId: string }

export type ProviderWorkQuestion = {
  providerId: string
  /** The USDC of each network served. */
  tokens: { chainId: number; token: Address }[]
  now: Date
}

/** @returns by the wallet's id, those that have any */
export async function readProviderWork(
  sql: Database,
  { providerId, tokens, now }: ProviderWorkQuestion,
): Promise<Map<string, WalletWork>> {
  const waits = isFresh(sql)
  const largest = sql`max(q.provider_amount + q.fee_amount)`
  const rows = await sql<Row[]>`
    select w.id as "walletId",
      count(*) filter (where ${waits})::int as "waitingPayments",
      coalesce(sum(q.provider_amount) filter (where ${waits}), 0) as "waitingAmount",
      count(*) filter (where ${isWaiting(sql)})::int as "paymentCount",
      coalesce(sum(q.provider_amount) filter (where ${isWaiting(sql)}), 0) as amount,
      coalesce(${largest} filter (where ${isWaiting(sql)} or ${isRetryDue(sql, now)}), 0) as "largestPayment",
      coalesce(min(q.accepted_at) filter (where ${isWaiting(sql)}), ${now}) as "firstQueuedAt",
      coalesce(min(q.valid_before) filter (where ${isWaiting(sql)}), ${2n ** 40n}) as "firstValidBefore",
      bool_or(${isRetryDue(sql, now)}) is true as "retryDue",
      count(*) filter (where ${isSent(sql)})::int as "settlingPayments",
      coalesce(sum(q.provider_amount) filter (where ${isSent(sql)}), 0) as "settlingAmount",
      count(*) filter (where ${isRetrying(sql)})::int as "retryingPayments"
    from wallet w
    join unnest(${tokens.map(({ chainId }) => chainId)}::int[], ${tokens.map(({ token }) => token)}::text[])
      as served (chain_id, token) on served.chain_id = w.chain_id
    join queue_group g on g.chain_id = served.chain_id and g.token = served.token
    join queue q on q.group_id = g.id and q.payee = w.address and ${isShown(sql)}
    where w.provider_id = ${providerId} and ${isOpen(sql, 0)} and q.valid_before > ${Math.floor(now.getTime() / 1000)}
    group by w.id`
  return new Map(rows.map((row) => [row.walletId, toWork(row)]))
}

function toWork({
  waitingPayments,
  waitingAmount,
  settlingPayments,
  settlingAmount,
  ...row
}: Row): WalletWork {
  const { walletId: _, retryingPayments, ...counted } = row
  return { waitingPayments, waitingAmount, settlingPayments, settlingAmount, retryingPayments, counted }
}
