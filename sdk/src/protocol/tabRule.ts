import type { Address } from 'viem'
import { atLeastZero } from './amount.ts'
import type { ErrorCode } from './errors.ts'
import { maxIdleTabLines, type TabPayment, type TabTerms } from './tab.ts'

/*
 * The rule by which a gateway accepts requests on a tab (docs/tabs.md). Our gateway's database applies the same rule in
 * packages/ledger/tabs/functions, and a test compares both. The caller has already checked everything else: the signature of the state,
 * the offer with its line and price, and the expiry.
 */

/** Terms that every request of a tab shares. A tab takes those of its first request. */
export type GatewayTabTerms = Omit<TabTerms, 'issuer'> & {
  /** The token that the tab settles in: the network's USDC. */
  token: Address
  /** Unix seconds, as signed. */
  expiry: number
}

/** A line of a tab as its gateway counts it. Amounts are USDC base units. */
export type GatewayTabLine = {
  /** The provider's wallet and both shares, as `encodeSplit` packs them. */
  split: bigint
  /** The prices of the line's requests, less reductions and the credit that it began with. Below 0 until that credit is used up. */
  charged: bigint
  /** How far the charges of its requests are below their prices. */
  reduced: bigint
}

/** A request that a gateway has accepted on a tab. Amounts are USDC base units. */
export type GatewayTabRequest = {
  /** Identifies the request: equal for equal requests. */
  requestHash: string
  /** The index of its line. */
  line: number
  price: bigint
  /** The price, or less. 0: the request is voided. */
  charged: bigint
  /** The line's charges up to this request, which counts at its full price; 0 while the line has credit left. */
  lineTotal: bigint
  /** How far the line's earlier charges were below their prices at that moment. */
  lineReduced: bigint
}

/** A tab as its gateway keeps it. Amounts are USDC base units. */
export type GatewayTab = {
  terms: GatewayTabTerms
  isClosed: boolean
  /** The credit that is reserved for the tab: no request is accepted that would charge more than this in all. */
  reserved: bigint
  /** The number of the newest state. */
  sequence: number
  /** The amounts that the newest state signs, one for each line. A client that doesn't know all lines signs fewer. */
  signed: readonly bigint[]
  lines: readonly GatewayTabLine[]
  /** By sequence number. Each state buys one request. */
  requests: ReadonlyMap<number, GatewayTabRequest>
}

/** A request that is to be put on a tab. Its state's signature is verified. */
export type TabPurchase = Pick<TabPayment, 'sequence' | 'line' | 'known' | 'splits' | 'amounts'> & {
  terms: GatewayTabTerms
  /** Identifies the request: equal for equal requests. */
  requestHash: string
  /** USDC base units, over 0. */
  price: bigint
  /** The credit that is reserved for the tab in all, USDC base units. Absent: nothing new was reserved. */
  reserved?: bigint
  /** The payer's credit from earlier tabs for the line's split, USDC base units. Only a request that opens the line uses it. */
  credit?: bigint
}

/**
 * A gateway's verdict on a request. The rule looks for reasons in this order:
 *
 * - `repeated`: this very request was accepted before
 * - `voided`: this very request was accepted before, and is charged nothing
 * - `replayed`: its state bought another request
 * - `unreserved`: no credit is reserved for the tab, or less than would be charged with this request (judged last)
 * - `closed`: the tab accepts no more requests
 * - `mismatch`: the tab has other terms, fewer lines than the request assumes, or another line in one of the request's places
 * - `crowded`: with it, the tab would have more than `maxIdleTabLines` lines on which nothing was bought
 * - `behind`: the newest state signs less on a line than is charged there
 * - `accepted`: none of these
 */
export type TabVerdict =
  | 'repeated'
  | 'voided'
  | 'replayed'
  | 'unreserved'
  | 'closed'
  | 'mismatch'
  | 'crowded'
  | 'behind'
  | 'accepted'

/**
 * A verdict, the tab after it, the accepted request, and how much of the payer's credit it used up. `tab` is undefined if a refused
 * request would have opened it.
 */
export type TabDecision =
  | { verdict: 'accepted'; tab: GatewayTab; request: GatewayTabRequest; credit: bigint }
  | { verdict: 'repeated'; tab: GatewayTab; request: GatewayTabRequest }
  | { verdict: Exclude<TabVerdict, 'accepted' | 'repeated'>; tab: GatewayTab | undefined }

/**
 * The error code with which a gateway answers each refusal.
 *
 * @example
 * import { tabRefusals } from '@tollkeeper/sdk/protocol'
 *
 * console.log(tabRefusals.crowded)
 * // tab_mismatch
 */
export const tabRefusals = {
  voided: 'payment_voided',
  replayed: 'payment_replayed',
  unreserved: 'tab_limit_exceeded',
  closed: 'tab_closed',
  mismatch: 'tab_mismatch',
  crowded: 'tab_mismatch',
  behind: 'tab_behind',
} as const satisfies Record<Exclude<TabVerdict, 'accepted' | 'repeated'>, ErrorCode>

/**
 * Judges a request on a tab, and puts it there if it is accepted.
 *
 * A request is accepted if the newest state, with this request's own among them, covers what is charged on each line with it. So requests
 * may arrive in any order, and a state may sign less than an older one.
 *
 * @param tab undefined: the request opens it.
 * @param purchase its amounts in USDC base units. The signature of its state must have been verified, with the splits of the tab's first
 * `known` lines and its own after them.
 * @returns the verdict, and the tab after it. The given tab isn't changed.
 * @example
 * import { acceptOnTab, type TabPurchase } from '@tollkeeper/sdk/protocol'
 *
 * const address = (digit: string) => `0x${digit.repeat(40)}` as const
 * const first: TabPurchase = {
 *   terms: {
 *     chainId: 8453,
 *     token: address('1'),
 *     contract: address('c'),
 *     platform: address('b'),
 *     rewardShare: 1_000,
 *     expiry: 1_800_093_600,
 *   },
 *   requestHash: 'GET /weather 1',
 *   sequence: 1,
 *   line: 0,
 *   known: 0,
 *   splits: [7n],
 *   amounts: [1_000n],
 *   price: 1_000n,
 *   reserved: 5_000n,
 * }
 * const opened = acceptOnTab(undefined, first)
 * const next = { ...first, requestHash: 'GET /weather 2', sequence: 2, known: 1, splits: [] }
 * console.log(opened.verdict, acceptOnTab(opened.tab, next).verdict)
 * console.log(acceptOnTab(opened.tab, { ...next, amounts: [2_000n] }).tab?.lines)
 * // accepted behind
 * // [ { split: 7n, charged: 2000n, reduced: 0n } ]
 */
export function acceptOnTab(tab: GatewayTab | undefined, purchase: TabPurchase): TabDecision {
  const earlier = tab?.requests.get(purchase.sequence)
  if (tab && earlier) {
    if (earlier.requestHash !== purchase.requestHash) return { verdict: 'replayed', tab }
    if (earlier.charged === 0n) return { verdict: 'voided', tab }
    return { verdict: 'repeated', tab, request: earlier }
  }
  const before = tab ?? openTab(purchase)
  if (before === undefined) return { verdict: 'unreserved', tab }
  const refusal = judgeTerms(before, purchase)
  if (refusal) return { verdict: refusal, tab }
  const bought = buy(before, purchase)
  if (!covers(bought.tab.signed, bought.tab.lines)) return { verdict: 'behind', tab }
  if (chargedOnTab(bought.tab) > bought.tab.reserved) return { verdict: 'unreserved', tab }
  return { verdict: 'accepted', ...bought }
}

/**
 * Charges less than its price for a request on a tab, or raises the charge again up to its price.
 *
 * @param amount USDC base units. 0 voids the request.
 * @returns `charged`, also if that is its charge already; `closed` if what the tab settles is fixed, or it has no such request; `over` for
 * more than the price, or more than the newest state signs.
 * @example
 * import { chargeOnTab, type GatewayTab } from '@tollkeeper/sdk/protocol'
 *
 * // Voids a request that was not served.
 * export function voidRequest(tab: GatewayTab, sequence: number): GatewayTab {
 *   return chargeOnTab(tab, sequence, 0n).tab
 * }
 */
export function chargeOnTab(
  tab: GatewayTab,
  sequence: number,
  amount: bigint,
): { verdict: 'charged' | 'closed' | 'over'; tab: GatewayTab } {
  const request = tab.requests.get(sequence)
  if (request === undefined) return { verdict: 'closed', tab }
  if (amount > request.price) return { verdict: 'over', tab }
  if (amount === request.charged) return { verdict: 'charged', tab }
  if (tab.isClosed) return { verdict: 'closed', tab }
  const less = request.charged - amount
  const lines = tab.lines.map((line, index) =>
    index === request.line ? { ...line, charged: line.charged - less, reduced: line.reduced + less } : line,
  )
  const line = lines[request.line] as GatewayTabLine
  if (line.charged > (tab.signed[request.line] ?? 0n)) return { verdict: 'over', tab }
  const changed = { ...request, charged: amount }
  // A raised amount counts as bought after everything that was bought in the meantime.
  if (less < 0n) {
    changed.lineTotal = atLeastZero(line.charged + request.price - amount)
    changed.lineReduced = line.reduced - (request.price - amount)
  }
  return {
    verdict: 'charged',
    tab: { ...tab, lines, requests: new Map(tab.requests).set(sequence, changed) },
  }
}

/**
 * Closes a tab by its buyer's last state, which buys nothing.
 *
 * @param last its number, its expiry, and the amount that it signs for each line, in USDC base units. Its signature must have been
 * verified.
 * @param least the least amount with which the tab settles, in USDC base units: `leastTabAmount`.
 * @returns `closed`, also if it was closed before; `mismatch` if the state has another expiry, or not an amount for each line;
 * `too_small` if less than `least` is charged, but not nothing: the tab stays open; `behind` if the state isn't the newest or doesn't
 * cover what is charged.
 * @example
 * import { chargedOnTab, closeTab, type GatewayTab } from '@tollkeeper/sdk/protocol'
 *
 * // Closes a tab with exactly what is charged on it, as an honest buyer does. Returns what it settles, in USDC base units.
 * export function closeAsCharged(tab: GatewayTab): bigint {
 *   const amounts = tab.lines.map(({ charged }) => (charged > 0n ? charged : 0n))
 *   const last = { sequence: tab.sequence + 1, expiry: tab.terms.expiry, amounts }
 *   const { verdict, tab: closed } = closeTab(tab, last)
 *   return verdict === 'closed' ? chargedOnTab(closed) : 0n
 * }
 */
export function closeTab(
  tab: GatewayTab,
  last: Pick<TabPayment, 'sequence' | 'expiry' | 'amounts'>,
  least = 0n,
): { verdict: 'closed' | 'mismatch' | 'too_small' | 'behind'; tab: GatewayTab } {
  const { sequence, expiry, amounts: signed } = last
  if (tab.isClosed) return { verdict: 'closed', tab }
  if (signed.length !== tab.lines.length || expiry !== tab.terms.expiry) return { verdict: 'mismatch', tab }
  const charged = chargedOnTab(tab)
  if (charged > 0n && charged < least) return { verdict: 'too_small', tab }
  if (sequence <= tab.sequence || !covers(signed, tab.lines)) return { verdict: 'behind', tab }
  return { verdict: 'closed', tab: { ...tab, isClosed: true, sequence, signed } }
}

/**
 * Returns what is charged on all lines of a tab together, in USDC base units. Credit that is left on one line pays nothing on another.
 *
 * @example
 * import { chargedOnTab } from '@tollkeeper/sdk/protocol'
 *
 * console.log(chargedOnTab({ lines: [{ charged: 50n }, { charged: -20n }] }))
 * // 50n
 */
export function chargedOnTab({ lines }: { lines: readonly Pick<GatewayTabLine, 'charged'>[] }): bigint {
  return lines.reduce((sum, { charged }) => sum + atLeastZero(charged), 0n)
}

/** The tab before its first request; undefined if no credit is reserved for it. */
function openTab({ terms, reserved }: TabPurchase): GatewayTab | undefined {
  if (reserved === undefined) return undefined
  return { terms, isClosed: false, reserved, sequence: 0, signed: [], lines: [], requests: new Map() }
}

/** Judges a request by all but its amounts. @returns undefined if it may be put on the tab. */
function judgeTerms(
  tab: GatewayTab,
  { terms, line, known, splits }: TabPurchase,
): 'closed' | 'mismatch' | 'crowded' | undefined {
  if (tab.isClosed) return 'closed'
  if (!hasSameTerms(tab.terms, terms) || known > tab.lines.length) return 'mismatch'
  // Another request may have added lines after this one was verified.
  const places = tab.lines.slice(known)
  if (places.some(({ split }, index) => index < splits.length && split !== splits[index])) return 'mismatch'
  const width = known + splits.length
  const isWider = width > tab.lines.length
  return isWider && width - countBoughtLines(tab, line) > maxIdleTabLines ? 'crowded' : undefined
}

/** Puts a request on a tab, whether or not the amounts cover it. */
function buy(
  tab: GatewayTab,
  purchase: TabPurchase,
): { tab: GatewayTab; request: GatewayTabRequest; credit: bigint } {
  const { sequence, line, known, splits, amounts, requestHash, price, reserved = 0n } = purchase
  const credit = line < tab.lines.length ? 0n : (purchase.credit ?? 0n)
  const added = splits.slice(tab.lines.length - known).map((split) => ({ split, charged: 0n, reduced: 0n }))
  const lines = [...tab.lines, ...added].map((one, index) =>
    index === line ? { ...one, charged: one.charged - credit + price } : one,
  )
  const { charged, reduced } = lines[line] as GatewayTabLine
  const lineTotal = atLeastZero(charged)
  const request = { requestHash, line, price, charged: price, lineTotal, lineReduced: reduced }
  const isNewest = sequence > tab.sequence
  return {
    tab: {
      ...tab,
      reserved: reserved > tab.reserved ? reserved : tab.reserved,
      sequence: isNewest ? sequence : tab.sequence,
      signed: isNewest ? amounts : tab.signed,
      lines,
      requests: new Map(tab.requests).set(sequence, request),
    },
    request,
    credit,
  }
}

function hasSameTerms(one: GatewayTabTerms, other: GatewayTabTerms): boolean {
  return (
    one.chainId === other.chainId &&
    one.token === other.token &&
    one.contract === other.contract &&
    one.platform === other.platform &&
    one.rewardShare === other.rewardShare &&
    one.expiry === other.expiry
  )
}

/** Counts the lines on which something was bought, including the given one, even if all of it was voided. */
function countBoughtLines({ requests }: GatewayTab, line: number): number {
  return new Set([...requests.values()].map((request) => request.line)).add(line).size
}

/** Whether a state signs for each line at least what is charged there. */
function covers(signed: readonly bigint[], lines: readonly GatewayTabLine[]): boolean {
  return lines.every(({ charged }, index) => (signed[index] ?? 0n) >= charged)
}
