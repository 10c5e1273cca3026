import type { Address, Hex } from 'viem'
import type { Queryable } from '../store/database.ts'

/** The platform's debt to one wallet of a provider for defaulted tabs (cover_defaults.sql). */
export type CoveredDefaults = {
  chainId: number
  providerId: string
  payee: Address
  /** USDC base units. */
  amount: bigint
  /** Number of defaulted tabs. */
  tabs: number
  /** When the platform began to owe the oldest of these amounts. */
  since: Date
}

export type CoverFilter = { chainId?: number | undefined; payee?: Address | undefined }

/** Finds the amounts that the platform owes to providers and has not paid, the oldest first. */
export async function findCoveredDefaults(
  sql: Queryable,
  { chainId, payee }: CoverFilter,
  limit: number,
): Promise<CoveredDefaults[]> {
  return sql<CoveredDefaults[]>`
    select chain_id as "chainId", provider_id as "providerId", payee, sum(amount) as amount, count(*)::int as tabs,
      min(covered_at) as since
    from covered_default
    where paid_tx is null
      ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
      ${payee === undefined ? sql`` : sql`and payee = ${payee}`}
    group by 1, 2, 3
    order by 6, 3
    limit ${limit}`
}

/**
 * Records that the operator has paid everything that the platform owes to a wallet on a network.
 *
 * @param amount the paid amount, in USDC base units. It must equal the owed amount, so that a default that was added in the meantime isn't
 * marked as paid.
 * @returns the owed amount if it differs. Nothing is recorded in that case.
 */
export async function recordCoverPayment(
  sql: Queryable,
  { chainId, payee }: { chainId: number; payee: Address },
  { amount, txHash }: { amount: bigint; txHash: Hex },
): Promise<bigint | undefined> {
  const [row] = await sql<[{ owed: bigint | null }]>`
    with owed as materialized (
      select payment_id, provider_id, payee, amount from covered_default
      where paid_tx is null and chain_id = ${chainId} and payee = ${payee}
      order by payment_id for update
    ), total as (
      select coalesce(sum(amount), 0) as amount from owed
    ), paid as (
      update covered_default c set paid_tx = ${txHash}, paid_at = now()
      from owed, total
      where total.amount = ${amount} and c.payment_id = owed.payment_id and c.provider_id = owed.provider_id
        and c.payee = owed.payee
    )
    select amount as owed from total`
  return row.owed === amount ? undefined : (row.owed ?? 0n)
}
