import type { Address, Hex } from 'viem'
import type { SignedAuthorization } from '#protocol/payload'
import { type SplitterTerms, splitterShares } from '#protocol/splitter'
import type { Queryable } from './database.ts'
import { type HalfState, halfState, halves, seenUse } from './halves.ts'

/** One half of what is to be settled, and what the index says of it. */
export type ItemHalf = { authorization: SignedAuthorization; state: HalfState }

/** What a batch settles for one payment, or for one transfer that came through POST /submit. */
export type BatchItem = {
  position: number
  paymentId: string | null
  transferId: bigint | null
  /** Its payer may have lied to a simulation: see quarantine.ts. */
  isQuarantined?: boolean
  /** It goes back to a payer, whose payment paid the fee for it. */
  isRefund?: boolean
  provider: ItemHalf
  fee: ItemHalf | null
  /** The terms of the splitter that `provider` pays, which is then the only half. */
  splitter?: SplitterTerms
}

/** What the platform gets of an item, in base units. */
export function feeOfItem({ provider, fee, splitter }: BatchItem): bigint {
  if (!splitter) return fee?.authorization.value ?? 0n
  const { providerShare, platformShare } = splitter
  return (provider.authorization.value * platformShare) / (providerShare + platformShare)
}

type HalfRow = SplitColumns & {
  position: number
  paymentId: string | null
  transferId: bigint | null
  isQuarantined: boolean
  isRefund: boolean
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

/** Of a payment, or nulls of what is none. */
export type SplitColumns = {
  splitter: Address | null
  payee: Address | null
  feeRecipient: Address | null
  providerAmount: bigint | null
  feeAmount: bigint | null
}

/** The columns of {@link SplitColumns} of the payment `p`. */
export function splitColumns(sql: Queryable) {
  return sql`p.splitter, p.payee, p.fee_recipient as "feeRecipient", p.provider_amount as "providerAmount",
    p.fee_amount as "feeAmount"`
}

/** The active items of a batch, in the order of their urgency. */
export async function readBatchItems(sql: Queryable, batchId: bigint): Promise<BatchItem[]> {
  return readItems(
    sql,
    sql`(select position, payment_id, transfer_id from batch_item where batch_id = ${batchId} and active)`,
  )
}

/** Those among them of which a half isn't settled, and how many others there are. */
export async function readUnsettledItems(
  sql: Queryable,
  batchId: bigint,
): Promise<{ unsettled: BatchItem[]; settled: number }> {
  const [[row], items] = await Promise.all([
    sql<[{ count: number }]>`
      select count(*)::int as count from batch_item where batch_id = ${batchId} and active`,
    readItems(
      sql,
      sql`(
        select position, payment_id, transfer_id from batch_item item
        where batch_id = ${batchId} and active and (payment_id is null or exists (
          select from ${halves(sql)} h where h.payment_id = item.payment_id and h.state <> 'settled'
        ))
      )`,
    ),
  ])
  const unsettled = items.filter(({ provider, fee }) => !isSettled(provider) || (fee && !isSettled(fee)))
  return { unsettled, settled: row.count - unsettled.length }
}

function isSettled({ state }: ItemHalf): boolean {
  return state === 'settled'
}

/** @param items a subquery with `position`, `payment_id` and `transfer_id`. */
async function readItems(sql: Queryable, items: ReturnType<typeof sql>): Promise<BatchItem[]> {
  const rows = await sql<HalfRow[]>`
    select i.position, i.payment_id as "paymentId", i.transfer_id as "transferId",
      coalesce(p.quarantined, false) as "isQuarantined", coalesce(p.source = 'refund', false) as "isRefund",
      ${splitColumns(sql)}, a.half, a.authorizer,
      a.recipient, a.value, a.valid_after as "validAfter", a.valid_before as "validBefore", a.nonce, a.signature,
      ${halfState(sql)} as state
    from ${items} i
    left join payment p on p.id = i.payment_id
    cross join lateral (
      select h.half, h.chain_id, h.token, h.authorizer, h.recipient, h.value, h.valid_after, h.valid_before, h.nonce,
        ${signatureOf(sql)} as signature, h.accepted_block
      from signed_authorization h left join presentation s using (payment_id) where h.payment_id = i.payment_id
      union all
      select case when fee_of is null then 0 else 1 end, chain_id, token, authorizer, recipient, value, valid_after,
        valid_before, nonce, signature, null
      from transfer where id = i.transfer_id or fee_of = i.transfer_id
    ) a
    left join lateral ${seenUse(sql)} seen on true
    order by i.position, a.half`
  return groupHalves(rows)
}

/** The signature of the half `h`, from its presentation `s`. */
export function signatureOf(sql: Queryable) {
  return sql`case h.half when 0 then s.signature else s.fee_signature end`
}

function groupHalves(rows: HalfRow[]): BatchItem[] {
  const items = new Map<number, BatchItem>()
  for (const row of rows) {
    const half: ItemHalf = { authorization: toAuthorization(row), state: row.state }
    const item = items.get(row.position)
    if (item) item.fee = half
    else {
      const { position, paymentId, transferId, isQuarantined, isRefund } = row
      const splitter = toTerms(row)
      items.set(position, {
        ...{ position, paymentId, transferId, isQuarantined, provider: half, fee: null },
        ...(isRefund && { isRefund }),
        ...(splitter && { splitter }),
      })
    }
  }
  return [...items.values()]
}

/** The terms of the splitter that a payment pays; null: it pays none. */
export function toTerms({
  splitter,
  payee,
  feeRecipient,
  providerAmount,
  feeAmount,
}: SplitColumns): SplitterTerms | null {
  if (!splitter || !payee || !feeRecipient || providerAmount === null || feeAmount === null) return null
  return { provider: payee, platform: feeRecipient, ...splitterShares(providerAmount + feeAmount, feeAmount) }
}

function toAuthorization(row: HalfRow): SignedAuthorization {
  if (row.signature === null)
    throw new Error(`what the payment of nonce ${row.nonce} was presented with is deleted`)
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
