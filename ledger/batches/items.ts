import type { Address, Hex } from 'viem'
import type { SignedAuthorization } from '#protocol/payload'
import { type SplitterTerms, splitterShares } from '#protocol/splitter'
import { type HalfState, halves } from '../facts/halves.ts'
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

/** What is in a batch, in the order of its urgency. */
export async function readBatchItems(sql: Queryable, batchId: bigint): Promise<BatchItem[]> {
  return readItems(sql, batchId, sql``)
}

/** Those among them of which a half isn't settled, and how many others there are. */
export async function readUnsettledItems(
  sql: Queryable,
  batchId: bigint,
): Promise<{ unsettled: BatchItem[]; settled: number }> {
  const [[row], items] = await Promise.all([
    sql<[{ count: number }]>`select count(*)::int as count from queue where batch_id = ${batchId}`,
    readItems(
      sql,
      batchId,
      sql`and exists (
        select from ${halves(sql)} h where h.payment_id = i.payment_id and h.state <> 'settled'
      )`,
    ),
  ])
  const unsettled = items.filter(({ provider, fee }) => !isSettled(provider) || (fee && !isSettled(fee)))
  return { unsettled, settled: row.count - unsettled.length }
}

function isSettled({ state }: ItemHalf): boolean {
  return state === 'settled'
}

async function readItems(
  sql: Queryable,
  batchId: bigint,
  condition: ReturnType<typeof sql>,
): Promise<BatchItem[]> {
  const rows = await sql<HalfRow[]>`
    select i.position, i.payment_id as "paymentId", b.lane = 'quarantined' as "isQuarantined",
      ${gasMeans(sql)}, ${splitColumns(sql)}, h.half, h.authorizer, h.recipient, h.value,
      h.valid_after as "validAfter", h.valid_before as "validBefore", h.nonce, ${signatureOf(sql)} as signature, h.state
    from batch_item i
    join batch b on b.id = i.batch_id
    join queue q on q.payment_id = i.payment_id and q.batch_id = i.batch_id
    join payment p on p.id = i.payment_id
    join lateral ${halves(sql)} h on h.payment_id = i.payment_id
    left join presentation s on s.payment_id = i.payment_id
    where i.batch_id = ${batchId} ${condition}
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
