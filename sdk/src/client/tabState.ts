import type { Address } from 'viem'
import { atLeastZero } from '../protocol/amount.ts'
import { bytesToHex } from '../protocol/bytes.ts'
import { maxTimeoutSeconds } from '../protocol/challenge.ts'
import { tabSettlement } from '../protocol/deployments.ts'
import { networkByName } from '../protocol/networks.ts'
import {
  encodeTabPayload,
  maxIdleTabLines,
  maxTabLines,
  type TabLine,
  type TabPayload,
  tabAuthorization,
  toWord,
} from '../protocol/tab.ts'
import type { TabResponse } from '../protocol/x402.ts'
import type { TabOffer } from './offers.ts'
import { requireDeployed, type Signer, signAuthorization } from './payer.ts'
import type { SavedTab } from './tabStore.ts'

/**
 * The outcome of a request. `charged` is the amount in base units that the seller reports as charged, or the price if the seller reports no amount.
 * `unknown` means that the response was lost.
 */
export type Outcome = { charged: bigint } | 'unknown'

/**
 * A line of a tab. `bought` is negative until the line's initial credit is used up. `waived` is the sum of signed amounts that sellers reported as
 * not charged.
 */
type Line = {
  split: bigint
  bought: bigint
  credit: bigint
  signed: bigint
  waived: bigint
  /** Whether a response proved that the gateway has recorded a purchase on this line. */
  isKnown: boolean
}

/** A tab, with the amounts and requests that the client counts. */
export type Tab = Omit<SavedTab, 'lines'> & {
  lines: Line[]
  /** Requests with an unknown outcome, by their number. */
  open: Map<number, { line: number; price: bigint }>
  /** The requests that are being signed or sent. */
  inFlight: Set<number>
  /** Whether the gateway has once reported this tab as unknown after a rejected request. If the gateway does so again, the client leaves the tab. */
  isDoubted: boolean
  /** `left`: the tab takes no more requests, and will be closed. */
  state: 'open' | 'left' | 'closed'
}

/** The next state to sign. `line` is the index of the line to which the request adds its price. */
type NextState = { line: number; lines: TabLine[] }

/** A tab takes no more requests when it expires within this many seconds, or within half of its total validity if that is shorter. */
const leastSecondsLeft = 3_600

/** Creates the tab for an offer. @param now Unix seconds. */
export function beginTab(offer: TabOffer, payer: Signer, now: number): Tab {
  const { issuer, platform, rewardShare } = offer
  return {
    id: `tab_${bytesToHex(crypto.getRandomValues(new Uint8Array(16))).slice(2)}`,
    issuer,
    platform,
    rewardShare,
    asset: offer.usdc,
    contract: tabSettlement,
    network: offer.network.name,
    payer: payer.address.toLowerCase() as Address,
    expiry: now + lifetimeOf(offer),
    sequence: 0,
    known: 0,
    lines: [],
    open: new Map(),
    inFlight: new Set(),
    isDoubted: false,
    state: 'open',
  }
}

/** Returns whether an offer of the tab's gateway can be put on the tab. @param now Unix seconds. */
export function canTake(tab: Tab, offer: TabOffer, now: number): boolean {
  return (
    tab.platform === offer.platform &&
    tab.rewardShare === offer.rewardShare &&
    tab.asset === offer.usdc &&
    tab.expiry - now > Math.min(leastSecondsLeft, lifetimeOf(offer) / 2) &&
    (tab.lines.length < maxTabLines || tab.lines.some(({ split }) => split === offer.split))
  )
}

/**
 * Returns whether a tab must wait for responses before it takes another line. Its gateway rejects a state with more than {@link maxIdleTabLines}
 * lines on which nothing was bought.
 */
export function isCrowded(tab: Tab, offer: TabOffer): boolean {
  if (tab.lines.some(({ split }) => split === offer.split)) return false
  return tab.lines.filter(({ isKnown }) => !isKnown).length >= maxIdleTabLines
}

/** Returns the next state of a tab: all amounts bought, plus the offer's price on the offer's line. */
export function nextState(tab: Tab, offer: TabOffer): NextState {
  const bought = tab.lines.map(({ split, bought }) => ({ split, bought }))
  let line = bought.findIndex(({ split }) => split === offer.split)
  if (line < 0) line = bought.push({ split: offer.split, bought: 0n }) - 1
  const lines = bought.map(({ split, bought }, index) => ({
    split,
    amount: atLeastZero(index === line ? bought + offer.price : bought),
  }))
  return { line, lines }
}

/** Returns the last state of a tab: the amounts bought, or the amounts that the gateway has charged if those are lower. */
export function lastState(tab: Tab, charged: readonly { split: bigint; charged: bigint }[]): NextState {
  const lines = tab.lines.slice(0, charged.length).map(({ split, bought }) => {
    const theirs = charged.find((line) => line.split === split)?.charged ?? 0n
    return { split, amount: atLeastZero(theirs < bought ? theirs : bought) }
  })
  return { line: 0, lines }
}

/** Signs a state with the tab's sequence number. */
export async function signState(payer: Signer, tab: Tab, { line, lines }: NextState): Promise<TabPayload> {
  const { id: tabId, sequence, expiry } = tab
  // The last state may have fewer lines than the gateway once confirmed, because a gateway restored from a backup has lost some.
  const known = Math.min(tab.known, lines.length)
  await requireDeployed(payer)
  const network = networkByName(tab.network)
  const terms = { ...tab, chainId: network.chainId }
  const authorization = tabAuthorization(terms, { ...tab, tabId, lines })
  const signature = await signAuthorization(payer, network, tab.asset, authorization)
  return encodeTabPayload({
    tabId,
    payer: tab.payer,
    sequence,
    expiry,
    line,
    known,
    signature,
    splits: lines.slice(known).map(({ split }) => split),
    amounts: lines.map(({ amount }) => amount),
  })
}

/** Counts a request as bought. Called when its state is signed. */
export function countRequest(
  tab: Tab,
  sequence: number,
  { line, lines }: NextState,
  { price }: TabOffer,
): void {
  // Record the amounts that were signed. The tab's own amounts may be lower by now, because other requests on the tab cost less than their price.
  for (const [index, { split, amount }] of lines.entries()) {
    const known = tab.lines[index]
    if (known) known.signed = amount
    else tab.lines.push({ split, bought: 0n, credit: 0n, signed: amount, waived: 0n, isKnown: false })
  }
  const changed = tab.lines[line]
  if (changed) changed.bought += price
  tab.open.set(sequence, { line, price })
}

/**
 * Applies a request's outcome to its tab: the request is no longer open, and if less than its price was charged, the line's bought amount decreases.
 */
export function countOutcome(tab: Tab, sequence: number, outcome: Outcome): void {
  tab.inFlight.delete(sequence)
  const request = tab.open.get(sequence)
  if (!request || outcome === 'unknown') return
  tab.open.delete(sequence)
  const line = tab.lines[request.line]
  if (!line || outcome.charged >= request.price) return
  line.bought -= request.price - outcome.charged
  line.waived += request.price - outcome.charged
}

/**
 * Raises the amounts of a tab to what the gateway has charged, if sellers reported the difference as not charged. An amount rises at most to what the
 * buyer has already signed on the line.
 *
 * @returns whether the tab now covers everything that was charged. If not, the tab is unchanged.
 */
export function catchUp(tab: Tab, charged: readonly { split: bigint; charged: bigint }[]): boolean {
  const behind = charged.flatMap(({ split, charged }) => {
    const line = tab.lines.find((one) => one.split === split)
    const lacks = charged - (line ? line.bought + line.credit : 0n)
    return lacks > 0n ? [{ line, lacks }] : []
  })
  if (behind.some(({ line, lacks }) => !line || lacks > line.waived)) return false
  for (const { line, lacks } of behind) {
    if (!line) continue
    line.bought += lacks
    line.waived -= lacks
  }
  return true
}

/**
 * Returns whether a sent state has become too low for the gateway to accept. On each line, the state's amount must cover what the gateway has already
 * charged. On the request's own line, it must also cover the request's price.
 */
export function isPast(
  tab: Tab,
  { line, amounts }: Pick<TabPayload, 'line' | 'amounts'>,
  price: bigint,
  charged: readonly { split: bigint; charged: bigint }[],
): boolean {
  return charged.some(({ split, charged }) => {
    const index = tab.lines.findIndex((one) => one.split === split)
    const [from, to] = [index, index + 1].map((one) => 2 + digitsOfAmount * one)
    const amount = BigInt(`0x0${amounts.slice(from, to)}`)
    return charged - (tab.lines[index]?.credit ?? 0n) + (index === line ? price : 0n) > amount
  })
}

/** Updates a tab from the response to one of its requests. */
export function countResponse(
  tab: Tab,
  { known, credit = '0' }: TabResponse,
  request: Pick<TabPayload, 'line' | 'amounts'>,
): void {
  tab.isDoubted = false
  tab.known = Math.max(tab.known, Math.min(known, lineCountOf(request), tab.lines.length))
  const line = tab.lines[request.line]
  if (!line) return
  line.isKnown = true
  if (BigInt(credit) > line.credit) {
    line.bought -= BigInt(credit) - line.credit
    line.credit = BigInt(credit)
  }
}

/** Restores a tab from its saved form. No request is in progress. */
export function fromSaved(saved: SavedTab): Tab {
  const lines = saved.lines.map(({ split, bought, credit, signed }) => ({
    split: BigInt(split),
    bought: BigInt(bought),
    credit: BigInt(credit),
    signed: BigInt(signed),
    waived: 0n,
    isKnown: BigInt(bought) > 0n,
  }))
  return { ...saved, lines, open: new Map(), inFlight: new Set(), isDoubted: false, state: 'open' }
}

export function toSaved({
  lines,
  open: _,
  inFlight: __,
  isDoubted: ___,
  state: ____,
  ...tab
}: Tab): SavedTab {
  return {
    ...tab,
    lines: lines.map(({ split, bought, credit, signed }) => ({
      split: toWord(split),
      bought: bought.toString(),
      credit: credit.toString(),
      signed: signed.toString(),
    })),
  }
}

/** Number of hex digits of a line's amount in the field `amounts` of a payload. */
const digitsOfAmount = 12

function lineCountOf({ amounts }: Pick<TabPayload, 'amounts'>): number {
  return (amounts.length - 2) / digitsOfAmount
}

/** Returns the maximum validity in seconds of a tab for this offer. */
function lifetimeOf(offer: TabOffer): number {
  return Math.min(offer.maxTimeoutSeconds, maxTimeoutSeconds)
}
