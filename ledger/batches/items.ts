import type { Address, Hex } from 'viem'
import type { SignedAuthorization } from '#protocol/payload'
import { type SplitterTerms, splitterShares } from '#protocol/splitter'
import { type HalfState, halves, isAllSettled } from '../facts/halves.ts'
import { type GasMeans, gasMeans } from '../queue/queue.ts'
import type { Queryable } from '../store/database.ts'

/** One half of what is to be settled, and what the record says of it. */
export type ItemHalf = { authorization: SignedAuthorization; state: HalfState }

/** What a batch settles for one payment. */
export type BatchItem = {
  position: number
  /** Null: of a keeper without a database. */
  paymentId: string | null
  /** Its payer may have lied to a simulation: see quarantine.ts. */
  isQuarantined?: boolean
  /** Of our own queue. */
  means?: GasMeans
  provider: ItemHalf
  fee: ItemHalf | null
  /** The terms of the splitter that `provider` pays, which is then the only half. */
  splitter?: SplitterTerms
}

/** What the platform gets of an item that pays a splitter, in base units. */
export function sharedFee({ provider, splitter }: BatchItem): bigint {
  if (!splitter) return 0n
  const { providerShare, platformShare } = splitter
  return (provider.authorization.value * platformShare) / (providerShare + platformShare)
}

type HalfRow = SplitColumns &
  GasMeans & {
    position: number
    paymentId: string
    isQuarantined: boolean
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

export type SplitColumns = {
  splitter: Address | null
  payee: Address
  feeRecipient: Address
  providerAmount: bigint
  feeAmount: bigint
}

/** The columns of {@link SplitColumns} of the payment `p`. */
export function splitColumns(sql: Queryable) {
  return sql`p.splitter, p.payee, p.fee_recipient as "feeRecipient", p.provider_amount as "providerAmount",
    p.fee_amount as "feeAmount"`
}

/** Those in a batch of which a half isn't settled, and how many others there are. */
export async function readUnsettledItems(
  sql: Queryable,
  batchId: bigint,
): Promise<{ unsettled: BatchItem[]; settled: number }> {
  const rows = await sql<{ id: string; isSettled: boolean }[]>`
    select q.payment_id as id, ${isAllSettled(sql)} as "isSettled" from queue q where q.batch_id = ${batchId}`
  const left = rows.flatMap(({ id, isSettled }) => (isSettled ? [] : id))
  const unsettled = left.length === 0 ? [] : await readBatchItems(sql, batchId, left)
  return { unsettled, settled: rows.length - left.length }
}

/**
 * What is in a batch, in the order of its urgency.
 *
 * @param among default: all its payments.
 */
export async function readBatchItems(
  sql: Queryable,
  batchId: bigint,
  among?: readonly string[],
): Promise<BatchItem[]> {
  const rows = await sql<HalfRow[]>`
    select i.position, i.payment_id as "paymentId", b.lane = 'quarantined' as "isQuarantined",
      ${gasMeans(sql)}, ${splitColumns(sql)}, h.half, h.authorizer, h.recipient, h.value,
      h.valid_after as "validAfter", h.valid_before as "validBefore", h.nonce, ${signatureOf(sql)} as signature, h.state
    from batch b
    join batch_item i on i.batch_id = b.id
    -- Looked up one by one: Postgres takes a batch for shorter than it is, and would compare all of it with all of it.
    cross join lateral (
      select * from queue q where q.payment_id = i.payment_id and q.batch_id = b.id offset 0
    ) q
    join payment p on p.id = i.payment_id
    join lateral ${halves(sql)} h on h.payment_id = i.payment_id
    left join presentation s on s.payment_id = i.payment_id
    where b.id = ${batchId} ${among === undefined ? sql`` : sql`and i.payment_id = any(${[...among]}::text[])`}
    order by i.position, h.half`
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
      const { position, paymentId, isQuarantined, fee, isSold, gasLeft } = row
      const splitter = toTerms(row)
      items.set(position, {
        ...{ position, paymentId, isQuarantined, provider: half, fee: null },
        means: { fee, isSold, gasLeft },
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
  if (!splitter) return null
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
