import type { Address } from 'viem'
import type { WalletQueue } from '#keeper/domain/triggers'
import type { Database } from '#keeper/store/database'
import { halves } from '#keeper/store/halves'

/** What waits for a wallet, as its triggers count it, and what is past or before that. */
export type WalletWork = {
  /** Null where nothing waits. */
  waiting: WalletQueue | null
  settlingPayments: number
  /** USDC base units that the wallet will receive. */
  settling: bigint
  retryingPayments: number
}

type Row = {
  paymentCount: number
  amount: bigint
  largestPayment: bigint | null
  firstQueuedAt: Date | null
  firstValidBefore: bigint | null
  retryDue: boolean
  settlingPayments: number
  settling: bigint
  retryingPayments: number
}

/** The payments of one provider wallet that may still move, by what the keeper does with them now. */
export async function readWalletWork(
  database: Database,
  indexerSchema: string,
  { chainId, token, wallet, now }: { chainId: number; token: Address; wallet: Address; now: Date },
): Promise<WalletWork> {
  const [row] = await database<[Row]>`
    with open as (
      select p.accepted_at, p.provider_amount, p.fee_amount, p.attempts, h.valid_before,
        case
          when exists (select from batch_item i where i.payment_id = p.id and i.active) then 'settling'
          when p.next_attempt_at > ${now} then 'retrying'
          else 'waiting'
        end as stage
      from payment p
      join ${halves(database, indexerSchema)} h on h.payment_id = p.id and h.half = 0
      where p.chain_id = ${chainId} and p.token = ${token} and p.payee = ${wallet}
        and p.concluded_at is null and p.failed_at is null and p.voided_at is null
        and h.state = 'open' and h.valid_before > extract(epoch from ${now}::timestamptz)
    )
    select count(*) filter (where stage = 'waiting')::int as "paymentCount",
      coalesce(sum(provider_amount) filter (where stage = 'waiting'), 0) as amount,
      max(provider_amount + fee_amount) filter (where stage = 'waiting') as "largestPayment",
      min(accepted_at) filter (where stage = 'waiting') as "firstQueuedAt",
      min(valid_before) filter (where stage = 'waiting') as "firstValidBefore",
      coalesce(bool_or(attempts > 0) filter (where stage = 'waiting'), false) as "retryDue",
      count(*) filter (where stage = 'settling')::int as "settlingPayments",
      coalesce(sum(provider_amount) filter (where stage = 'settling'), 0) as settling,
      count(*) filter (where stage = 'retrying')::int as "retryingPayments"
    from open`
  const { settlingPayments, settling, retryingPayments, ...waiting } = row
  return { waiting: toQueue(wallet, waiting), settlingPayments, settling, retryingPayments }
}

function toQueue(
  payee: Address,
  {
    largestPayment,
    firstQueuedAt,
    firstValidBefore,
    ...queue
  }: Omit<Row, 'settlingPayments' | 'settling' | 'retryingPayments'>,
): WalletQueue | null {
  if (largestPayment === null || firstQueuedAt === null || firstValidBefore === null) return null
  return { payee, ...queue, largestPayment, firstQueuedAt, firstValidBefore }
}
