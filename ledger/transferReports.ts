import type { Address, Hex } from 'viem'
import type { SignedAuthorization } from '#protocol/payload'
import type { Queryable } from './database.ts'
import { type HalfState, halfState, seenUse } from './halves.ts'

/**
 * Where a transfer of a submission stands.
 *
 * - `settled`, `cancelled`, `foreign_use`: what the chain shows, see {@link HalfState}
 * - `sent`: it is in a transaction that is out
 * - `queued`: it is in none yet
 */
export type TransferStatus = 'settled' | 'cancelled' | 'foreign_use' | 'sent' | 'queued'

/** What became of a transfer: in which transaction it is, if in any. */
export type TransferPlace = { status: TransferStatus; txHash: Hex | null }

/** Why one transfer of a submission can't be settled. */
export type TransferReport = {
  /** `payer:nonce` */
  name: string
  code: string
  detail?: string
}

export type KnownTransfer = {
  state: HalfState
  /** Of the transaction that used or cancelled it. */
  seenIn: Hex | null
  /** The batch that carries it or did, with the transaction that counts: mined, or else the dearest one that is out. */
  carrier: { hash: Hex; raw: Hex } | null
}

/** What chain and batches show of these authorizations, by `payer:nonce`. */
export async function readKnownTransfers(
  sql: Queryable,
  scope: { chainId: number; token: Address },
  authorizations: readonly Pick<SignedAuthorization, 'from' | 'nonce'>[],
): Promise<Map<string, KnownTransfer>> {
  const rows = await sql<{ name: string; state: HalfState; seenIn: Hex | null; carriedBy: Hex | null }[]>`
    select a.authorizer || ':' || a.nonce as name, ${halfState(sql)} as state, seen.tx_hash as "seenIn",
      carrier.hash as "carriedBy"
    from unnest(${authorizations.map((one) => one.from)}::text[], ${authorizations.map((one) => one.nonce)}::text[])
      as asked (authorizer, nonce)
    cross join lateral (
      select chain_id, token, authorizer, recipient, value, nonce, null::bigint as accepted_block,
        null::text as payment_id, coalesce(fee_of, id) as transfer_id
      from transfer
      union all
      select chain_id, token, authorizer, recipient, value, nonce, accepted_block, payment_id, null
      from signed_authorization
    ) a
    left join lateral ${seenUse(sql)} seen on true
    left join lateral (
      select t.hash
      from batch_item i join batch b on b.id = i.batch_id join transaction t on t.batch_id = b.id
      where (i.payment_id = a.payment_id or i.transfer_id = a.transfer_id)
        and (b.state <> 'closed' or b.outcome = 'settled')
        and t.kind <> 'cancellation' and (t.broadcast_at is not null or t.mined_block is not null)
      order by i.batch_id desc, t.mined_block nulls last, t.max_fee_per_gas desc
      limit 1
    ) carrier on true
    where a.chain_id = ${scope.chainId} and a.token = ${scope.token}
      and a.authorizer = asked.authorizer and a.nonce = asked.nonce`
  const hashes = [...new Set(rows.flatMap(({ carriedBy }) => carriedBy ?? []))]
  const carriers = await sql<{ hash: Hex; raw: Uint8Array }[]>`
    select hash, raw from transaction where hash = any (${hashes}) and raw is not null`
  const byHash = new Map(
    carriers.map(({ hash, raw }) => [hash, { hash, raw: `0x${Buffer.from(raw).toString('hex')}` as const }]),
  )
  return new Map(
    rows.map(({ name, state, seenIn, carriedBy }) => [
      name,
      { state, seenIn, carrier: (carriedBy && byHash.get(carriedBy)) ?? null },
    ]),
  )
}
