import type { Address, Hex } from 'viem'
import type { SignedAuthorization } from '#protocol/payload'
import type { Queryable } from './database.ts'
import { type HalfState, halfState, seenUse } from './halves.ts'

/** One half of what is to be settled, and what the index says of it. */
export type ItemHalf = { authorization: SignedAuthorization; state: HalfState }

/** What a batch settles for one payment, or for one transfer that came through POST /submit. */
export type BatchItem = {
  position: number
  paymentId: string | null
  transferId: bigint | null
  provider: ItemHalf
  fee: ItemHalf | null
  /** What another facilitator was given of it, see migrations/0001_schema.sql. */
  handedOver?: number | null
}

type HalfRow = {
  position: number
  handedOver: number | null
  paymentId: string | null
  transferId: bigint | null
  half: 0 | 1
  authorizer: Address
  recipient: Address
  value: bigint
  validAfter: bigint
  validBefore: bigint
  nonce: Hex
  signature: Uint8Array | null
  state: HalfState
}

/** Writes down what of an item is about to be given to another facilitator. */
export async function markHandedOver(
  sql: Queryable,
  batchId: bigint,
  position: number,
  halves: { provider: boolean; fee: boolean },
): Promise<void> {
  const handedOver = (halves.provider ? 1 : 0) + (halves.fee ? 2 : 0)
  await sql`
    update batch_item set handed_over = ${handedOver} where batch_id = ${batchId} and position = ${position}`
}

/** The active items of a batch, in the order of their urgency. */
export async function readBatchItems(sql: Queryable, batchId: bigint): Promise<BatchItem[]> {
  const rows = await sql<HalfRow[]>`
    select i.position, i.handed_over as "handedOver", i.payment_id as "paymentId", i.transfer_id as "transferId", a.half, a.authorizer,
      a.recipient, a.value, a.valid_after as "validAfter", a.valid_before as "validBefore", a.nonce, a.signature,
      ${halfState(sql)} as state
    from batch_item i
    cross join lateral (
      select half, chain_id, token, authorizer, recipient, value, valid_after, valid_before, nonce, signature,
        accepted_block
      from signed_authorization where payment_id = i.payment_id
      union all
      select case when fee_of is null then 0 else 1 end, chain_id, token, authorizer, recipient, value, valid_after,
        valid_before, nonce, signature, null
      from transfer where id = i.transfer_id or fee_of = i.transfer_id
    ) a
    left join lateral ${seenUse(sql)} seen on true
    where i.batch_id = ${batchId} and i.active
    order by i.position, a.half`
  return groupHalves(rows)
}

function groupHalves(rows: HalfRow[]): BatchItem[] {
  const items = new Map<number, BatchItem>()
  for (const row of rows) {
    const half: ItemHalf = { authorization: toAuthorization(row), state: row.state }
    const item = items.get(row.position)
    if (item) item.fee = half
    else {
      const { position, paymentId, transferId, handedOver } = row
      items.set(position, { position, paymentId, transferId, provider: half, fee: null, handedOver })
    }
  }
  return [...items.values()]
}

function toAuthorization(row: HalfRow): SignedAuthorization {
  if (row.signature === null) throw new Error(`the signature of nonce ${row.nonce} was wiped`)
  return {
    from: row.authorizer,
    to: row.recipient,
    value: row.value,
    validAfter: row.validAfter,
    validBefore: row.validBefore,
    nonce: row.nonce,
    signature: `0x${Buffer.from(row.signature).toString('hex')}`,
  }
}
