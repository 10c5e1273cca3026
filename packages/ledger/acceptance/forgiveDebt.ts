import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'
import { badDebt } from './badDebt.ts'

/** A payer's debt for one payment that was served. */
export type Debt = {
  chainId: number
  payer: Address
  paymentId: string
  /** A code of packages/ledger/acceptance/badDebt.ts. */
  code: string
  /** USDC base units. */
  amount: bigint
  acceptedAt: Date
}

export type DebtFilter = {
  chainId?: number | undefined
  payer?: Address | undefined
  paymentId?: string | undefined
}

/** Finds debts that payers caused, the oldest first. */
export async function findDebts(sql: Queryable, filter: DebtFilter, limit: number): Promise<Debt[]> {
  const { chainId, payer, paymentId } = filter
  return sql<Debt[]>`
    select debt.chain_id as "chainId", debt.payer, debt.payment_id as "paymentId", min(debt.code) as code,
      sum(debt.value) as amount, payment.accepted_at as "acceptedAt"
    from ${badDebt(sql)} debt join payment on payment.id = debt.payment_id
    where true ${chainId === undefined ? sql`` : sql`and debt.chain_id = ${chainId}`}
      ${payer === undefined ? sql`` : sql`and debt.payer = ${payer}`}
      ${paymentId === undefined ? sql`` : sql`and debt.payment_id = ${paymentId}`}
    group by 1, 2, 3, 6
    order by 6, 3
    limit ${limit}`
}

/**
 * Forgives all debts of a payer, or only the debt for one payment, and stores the reason. The payer can buy again within seconds.
 *
 * @returns the debts that were forgiven.
 */
export async function forgiveDebts(
  sql: Queryable,
  filter: DebtFilter & { payer: Address },
  reason: string,
): Promise<Debt[]> {
  const debts = await findDebts(sql, filter, 1_000_000)
  await sql`
    insert into forgiven_debt (payment_id, reason)
    select payment_id, ${reason} from unnest(${debts.map(({ paymentId }) => paymentId)}::text[]) as given (payment_id)
    on conflict do nothing`
  return debts
}
