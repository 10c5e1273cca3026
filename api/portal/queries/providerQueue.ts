import type { Address } from 'viem'
import type { Database } from '#ledger/database'
import { halves } from '#ledger/halves'
import type { WalletQueue } from '#ledger/triggers'

/** What waits for a wallet, as its triggers count it, and what is past or before that. */
export type WalletWork = {
  /** Null where nothing waits. */
  waiting: WalletQueue | null
  settlingPayments: number
  /** USDC base units that the wallet will receive. */
  settlingAmount: bigint
  retryingPayments: number
}

export const noWork: WalletWork = {
  waiting: null,
  settlingPayments: 0,
  settlingAmount: 0n,
  retryingPayments: 0,
}

type Row = {
  walletId: string
  payee: Address
  paymentCount: number
  amount: bigint
  largestPayment: bigint | null
  firstQueuedAt: Date | null
  firstValidBefore: bigint | null
  retryDue: boolean
  settlingPayments: number
  settlingAmount: bigint
  retryingPayments: number
}

export type ProviderWorkQuestion = {
  providerId: string
  /** The USDC of each network served. */
  tokens: { chainId: number; token: Address }[]
  now: Date
}

/**
 * The payments to a provider's wallets that may still move, by what the keeper does with them now.
 *
 * @returns by the wallet's id, those that have any
 */
export async function readProviderWork(
  sql: Database,
  { providerId, tokens, now }: ProviderWorkQuestion,
): Promise<Map<string, WalletWork>> {
  const rows = await sql<Row[]>`
    with served as (
      select * from unnest(${tokens.map(({ chainId }) => chainId)}::int[], ${tokens.map(({ token }) => token)}::text[])
        as served (chain_id, token)
    ), open as (
      select w.id as wallet_id, w.address, p.accepted_at, p.provider_amount, p.fee_amount, p.attempts, h.valid_before,
        case
          when exists (select from batch_item i where i.payment_id = p.id and i.active) then 'settling'
          when p.next_attempt_at > ${now} then 'retrying'
          else 'waiting'
        end as stage
      from wallet w
      join served s on s.chain_id = w.chain_id
      join payment p on p.chain_id = w.chain_id and p.token = s.token and p.payee = w.address
      join ${halves(sql)} h on h.payment_id = p.id and h.half = 0
      where w.provider_id = ${providerId}
        and p.concluded_at is null and p.failed_at is null and p.voided_at is null
        and h.state = 'open' and h.valid_before > extract(epoch from ${now}::timestamptz)
    )
    select wallet_id as "walletId", address as payee,
      count(*) filter (where stage = 'waiting')::int as "paymentCount",
      coalesce(sum(provider_amount) filter (where stage = 'waiting'), 0) as amount,
      max(provider_amount + fee_amount) filter (where stage = 'waiting') as "largestPayment",
      min(accepted_at) filter (where stage = 'waiting') as "firstQueuedAt",
      min(valid_before) filter (where stage = 'waiting') as "firstValidBefore",
      coalesce(bool_or(attempts > 0) filter (where stage = 'waiting'), false) as "retryDue",
      count(*) filter (where stage = 'settling')::int as "settlingPayments",
      coalesce(sum(provider_amount) filter (where stage = 'settling'), 0) as "settlingAmount",
      count(*) filter (where stage = 'retrying')::int as "retryingPayments"
    from open
    group by wallet_id, address`
  return new Map(rows.map((row) => [row.walletId, toWork(row)]))
}

function toWork({ settlingPayments, settlingAmount, retryingPayments, ...queue }: Row): WalletWork {
  return { waiting: toQueue(queue), settlingPayments, settlingAmount, retryingPayments }
}

function toQueue({
  walletId: _,
  largestPayment,
  firstQueuedAt,
  firstValidBefore,
  ...queue
}: Omit<Row, 'settlingPayments' | 'settlingAmount' | 'retryingPayments'>): WalletQueue | null {
  if (largestPayment === null || firstQueuedAt === null || firstValidBefore === null) return null
  return { ...queue, largestPayment, firstQueuedAt, firstValidBefore }
}
