import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { encodeSplit, type SplitterTerms, splitterShares } from '@tollkeeper/sdk/protocol/splitter'
import { platformPart, type TabLine, tabMessage } from '@tollkeeper/sdk/protocol/tab'
import type { Address, Hex } from 'viem'
import { type HalfState, halves, isAllSettled } from '../facts/halves.ts'
import { type GasMeans, gasMeans } from '../queue/queue.ts'
import type { Queryable } from '../store/database.ts'

/** A half that is to be settled, and its state in the record. */
export type ItemHalf = { authorization: SignedAuthorization; state: HalfState }

/** The part of a payment that a batch settles. */
export type BatchItem = {
  position: number
  /** Null if a keeper without a database settles it. */
  paymentId: string | null
  /** Whether its payer may have deceived a simulation: see isolation.ts. */
  isIsolated?: boolean
  /** The amounts that can pay for the payment's gas. Absent if the payment isn't from our own queue. */
  means?: GasMeans
  provider: ItemHalf
  fee: ItemHalf | null
  /** Terms of the splitter that the `provider` half pays. `fee` is null in that case. */
  splitter?: SplitterTerms
  /** The tab that the `provider` half pays. `fee` is null in that case. */
  tab?: ItemTab
  /** Trace of its request. */
  trace?: Uint8Array
}

/** The state of a tab that settles. */
export type ItemTab = {
  sequence: number
  /** Unix seconds. The authorization's `validBefore` contains this and a hash of the other fields. */
  expiry: number
  /** Basis points of the platform's part that the settler receives. */
  rewardShare: number
  lines: readonly TabLine[]
}

/** Returns the platform's part, without the reward, of an item that pays a splitter or a tab, in base units. */
export function sharedFee({ provider, splitter, tab }: BatchItem): bigint {
  if (tab) return platformPartOf(tab) - rewardOf({ tab })
  if (!splitter) return 0n
  const { providerShare, platformShare } = splitter
  return (provider.authorization.value * platformShare) / (providerShare + platformShare)
}

/** Returns the platform's part of an item, without the reward, in base units. */
export function feeOfItem(item: BatchItem): bigint {
  return item.fee?.authorization.value ?? sharedFee(item)
}

/** Returns the reward of an item's settler, in base units. */
export function rewardOf({ tab }: Pick<BatchItem, 'tab'>): bigint {
  return tab ? (platformPartOf(tab) * BigInt(tab.rewardShare)) / 10_000n : 0n
}

function platformPartOf({ lines }: ItemTab): bigint {
  return lines.reduce((sum, { split, amount }) => sum + platformPart(split, amount), 0n)
}

/** A half with the columns of its payment. */
export type HalfRow = Omit<SignedAuthorization, 'signature'> & {
  paymentId: string
  half: 0 | 1
  /** The presented signature; null if it is deleted. */
  signature: Uint8Array | null
  state: HalfState
  chainId: number
  splitter: Address | null
  payee: Address
  feeRecipient: Address
  providerAmount: bigint
  feeAmount: bigint
  tab: {
    sequence: number
    rewardShare: number
    lines: { payee: Address; providerShare: string; platformShare: string; amount: string }[]
  } | null
}

/** Returns the columns of {@link HalfRow} for the half `h`, its payment `p` and the presentation `s`. */
export function halfColumns(sql: Queryable) {
  return sql`h.payment_id as "paymentId", h.half, h.authorizer as "from", h.recipient as "to", h.value,
    h.valid_after as "validAfter", h.valid_before as "validBefore", h.nonce, h.state, h.chain_id as "chainId",
    case h.half when 0 then s.signature else s.fee_signature end as signature,
    p.splitter, p.payee, p.fee_recipient as "feeRecipient", p.provider_amount as "providerAmount",
    p.fee_amount as "feeAmount", case when p.source = 'tab' then (
      select json_build_object('sequence', t.sequence, 'rewardShare', t.reward_share, 'lines', (
        select json_agg(json_build_object('payee', l.payee, 'providerShare', l.provider_share::text,
          'platformShare', l.platform_share::text, 'amount', l.amount::text) order by l.position)
        from tab_line l where l.payment_id = t.payment_id
      ))
      from tab_payment t where t.payment_id = p.id
    ) end as tab`
}

/** Reads the items of a batch that have an unsettled half, and counts the batch's other items. */
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
 * Reads the items of a batch, the most urgent first.
 *
 * @param among Default: all payments of the batch.
 */
export async function readBatchItems(
  sql: Queryable,
  batchId: bigint,
  among?: readonly string[],
): Promise<BatchItem[]> {
  const rows = await sql<ItemRow[]>`
    select i.position, b.lane = 'isolated' as "isIsolated", ${gasMeans(sql)}, ${halfColumns(sql)}, s.trace
    from batch b
    join batch_item i on i.batch_id = b.id
    -- Look up the rows one by one: Postgres underestimates the size of a batch, and would compare all its rows with each other.
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

type ItemRow = HalfRow & GasMeans & { position: number; isIsolated: boolean; trace: Uint8Array | null }

function groupHalves(rows: ItemRow[]): BatchItem[] {
  const items = new Map<number, BatchItem>()
  for (const row of rows) {
    const tab = toTab(row)
    const signed = toAuthorization(row)
    const authorization = tab ? { ...signed, ...tab.signed } : signed
    const half: ItemHalf = { authorization, state: row.state }
    const item = items.get(row.position)
    if (item) item.fee = half
    else {
      const { position, paymentId, isIsolated, fee, isSold, gasLeft, urgentAt, trace } = row
      const splitter = toTerms(row)
      items.set(position, {
        position,
        paymentId,
        isIsolated,
        provider: half,
        fee: null,
        means: { fee, isSold, gasLeft, urgentAt },
        ...(splitter && { splitter }),
        ...(tab && { tab: tab.terms }),
        ...(trace && { trace }),
      })
    }
  }
  return [...items.values()]
}

/** Returns the tab that a payment settles, with the signed fields that the half's row doesn't contain; null if the payment isn't a tab. */
export function toTab({
  tab,
  from: payer,
  to: contract,
  nonce,
  chainId,
  feeRecipient,
  validBefore,
}: HalfRow) {
  if (!tab) return null
  const { sequence, rewardShare } = tab
  const lines = tab.lines.map(({ payee: provider, providerShare, platformShare, amount }) => ({
    split: encodeSplit({
      provider,
      providerShare: BigInt(providerShare),
      platformShare: BigInt(platformShare),
    }),
    amount: BigInt(amount),
  }))
  const terms: ItemTab = { sequence, rewardShare, expiry: Number(validBefore), lines }
  return { terms, signed: signedOfTab(terms, { payer, contract, nonce, chainId, platform: feeRecipient }) }
}

/** Returns the message that the payer of a tab signs for its state. */
export function signedOfTab(
  tab: ItemTab,
  {
    payer,
    nonce,
    ...terms
  }: { payer: Address; contract: Address; nonce: Hex; chainId: number; platform: Address },
) {
  const { rewardShare } = tab
  return tabMessage({ ...terms, rewardShare }, { ...tab, payer, nonce }, keccak256)
}

/** Returns the terms of the splitter that a payment pays; null if it pays none. */
export function toTerms({
  splitter,
  payee,
  feeRecipient,
  providerAmount,
  feeAmount,
  tab,
}: HalfRow): SplitterTerms | null {
  if (!splitter || tab) return null
  return { provider: payee, platform: feeRecipient, ...splitterShares(providerAmount + feeAmount, feeAmount) }
}

/** @throws if its signature is deleted. */
export function toAuthorization({
  from,
  to,
  value,
  validAfter,
  validBefore,
  nonce,
  signature,
}: HalfRow): SignedAuthorization {
  if (signature === null) throw new Error(`the signatures of the payment with nonce ${nonce} are deleted`)
  const text = Buffer.from(signature).toString('hex')
  return { from, to, value, validAfter, validBefore, nonce, signature: `0x${text}` }
}
