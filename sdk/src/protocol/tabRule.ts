import type { Address } from 'viem'
import { atLeastZero } from './amount.ts'
import type { ErrorCode } from './errors.ts'
import { maxIdleTabLines, type TabPayment, type TabTerms } from './tab.ts'

/*
 * The rule by which a gateway accepts requests on a tab (docs/tabs.md). Our gateway applies the same rule in its database
 * (packages/ledger/tabs/functions), and a test compares both implementations. The caller must already have checked everything else: the state's
 * signature, the offer with its line and price, and the expiry.
 */

/** The terms that all requests on a tab share. The first request determines them. */
export type GatewayTabTerms = Omit<TabTerms, 'issuer'> & {
  /** The token in which the tab settles, which is the network's USDC. */
  token: Address
  /** Expiry in Unix seconds, as signed. */
  expiry: number
}

/** A line of a tab as the gateway counts it. Amounts are USDC base units. */
export type GatewayTabLine = {
  /** The provider's wallet and both shares, in the packed form of `encodeSplit`. */
  split: bigint
  /**
   * The sum of the prices of the line's requests, minus reductions and minus the credit that the line started with. Negative until that credit is
   * used up.
   */
  charged: bigint
  /** The amount by which the charges of the line's requests are below their prices. */
  reduced: bigint
}

/** A request that the gateway has accepted on a tab. Amounts are USDC base units. */
export type GatewayTabRequest = {
  /** Identifies the request. Identical requests have the same value. */
  requestHash: string
  /** The index of the request's line. */
  line: number
  price: bigint
  /** The price or less. 0 if the request is voided. */
  charged: bigint
  /** The line's charges up to and including this request at its full price. 0 while the line has credit left. */
  lineTotal: bigint
  /** The amount by which the line's earlier charges were below their prices when this request was accepted. */
  lineReduced: bigint
}

/** A tab as the gateway stores it. Amounts are USDC base units. */
export type GatewayTab = {
  terms: GatewayTabTerms
  isClosed: boolean
  /** The credit that is reserved for the tab. A request is rejected if the tab's total charge would exceed it. */
  reserved: bigint
  /** The number of the newest state. */
  sequence: number
  /** The amounts that the newest state signs, one per line. A client that doesn't know all lines signs fewer amounts. */
  signed: readonly bigint[]
  lines: readonly GatewayTabLine[]
  /** The accepted requests by sequence number. Each state buys one request. */
  requests: ReadonlyMap<number, GatewayTabRequest>
}

/** A request that is to be put on a tab. The signature of its state has been verified. */
export type TabPurchase = Pick<TabPayment, 'sequence' | 'line' | 'known' | 'splits' | 'amounts'> & {
  terms: GatewayTabTerms
  /** Identifies the request. Identical requests have the same value. */
  requestHash: string
  /** USDC base units, greater than 0. */
  price: bigint
  /** The total credit that is reserved for the tab, in USDC base units. Undefined if nothing new was reserved. */
  reserved?: bigint
  /** The payer's credit from earlier tabs for the line's split, in USDC base units. Only the first request on a line uses it. */
  credit?: bigint
}

/**
 * A gateway's verdict on a request. The rule checks in this order, except that it compares the reserved credit with the charge last:
 *
 * - `replayed`: the request's state has already bought another request
 * - `voided`: the same request was accepted before, and isn't charged
 * - `repeated`: the same request was accepted before, and is charged
 * - `unreserved`: the credit reserved for the tab is missing, or smaller than the charge with this request
 * - `closed`: the tab accepts no more requests
 * - `mismatch`: the tab has other terms, fewer lines than the request assumes, or a different line at one of the request's positions
 * - `crowded`: with this request, the tab would have more than `maxIdleTabLines` lines on which nothing was bought
 * - `behind`: on some line, the newest state signs less than is charged
 * - `accepted`: none of the above
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
 * A verdict, the resulting tab, the accepted request, and the amount of the payer's credit that the request used. `tab` is undefined if the request
 * was rejected and would have opened the tab.
 */
export type TabDecision =
  | { verdict: 'accepted'; tab: GatewayTab; request: GatewayTabRequest; credit: bigint }
  | { verdict: 'repeated'; tab: GatewayTab; request: GatewayTabRequest }
  | { verdict: Exclude<TabVerdict, 'accepted' | 'repeated'>; tab: GatewayTab | undefined }

/**
 * The error code that a gateway returns for each kind of rejection.
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
 * Judges a request on a tab. If the request is accepted, it is added to the tab.
 *
 * A request is accepted if the newest state (which may be the request's own) covers all charges on each line, including this request. So requests may
 * arrive in any order, and a state may sign less than an older one.
 *
 * @param tab undefined if the request opens the tab.
 * @param purchase amounts are USDC base units. The signature of its state must have been verified, over the splits of the tab's first `known` lines
 * followed by the request's own splits.
 * @returns the verdict, and the resulting tab. The given tab isn't changed.
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
 * Reduces the charge of a request on a tab below its price, or raises the charge again up to the price.
 *
 * @param amount the new charge in USDC base units. 0 voids the request.
 * @returns `charged`, also if the charge is already this amount; `closed` if the tab's settlement amount is final, or the tab has no such request;
 * `over` if the amount exceeds the price, or what the newest state signs.
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
  // If the charge is raised, this request counts as the latest purchase on its line.
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
 * Closes a tab with the buyer's last state, which buys nothing.
 *
 * @param last the state's number, its expiry, and its signed amount for each line in USDC base units. Its signature must have been verified.
 * @param least the minimum amount for settling the tab, in USDC base units (see `leastTabAmount`).
 * @returns `closed`, also if the tab was already closed; `mismatch` if the state has another expiry, or not one amount for each line; `too_small` if
 * the charge is above 0 but below `least`, in which case the tab stays open; `behind` if the state isn't the newest, or doesn't cover the charge.
 * @example
 * import { chargedOnTab, closeTab, type GatewayTab } from '@tollkeeper/sdk/protocol'
 *
 * // Closes a tab with exactly the charged amounts, as an honest buyer does. Returns the amount that settles, in USDC base units.
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
 * Returns the sum of the charges on all lines of a tab, in USDC base units. Credit that is left on one line doesn't pay for another.
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

/** Returns an empty tab for its first request. Returns undefined if no credit is reserved for the tab. */
function openTab({ terms, reserved }: TabPurchase): GatewayTab | undefined {
  if (reserved === undefined) return undefined
  return { terms, isClosed: false, reserved, sequence: 0, signed: [], lines: [], requests: new Map() }
}

/** Checks everything about a request except its amounts. @returns undefined if nothing is wrong. */
function judgeTerms(
  tab: GatewayTab,
  { terms, line, known, splits }: TabPurchase,
): 'closed' | 'mismatch' | 'crowded' | undefined {
  if (tab.isClosed) return 'closed'
  if (!hasSameTerms(tab.terms, terms) || known > tab.lines.length) return 'mismatch'
  // The tab may have more lines by now: another request may have added lines after this request's signature was verified.
  const places = tab.lines.slice(known)
  if (places.some(({ split }, index) => index < splits.length && split !== splits[index])) return 'mismatch'
  const width = known + splits.length
  const isWider = width > tab.lines.length
  return isWider && width - countBoughtLines(tab, line) > maxIdleTabLines ? 'crowded' : undefined
}

/** Adds a request to a tab, whether or not the amounts cover it. */
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

/** Counts the lines on which something was bought, including the given line. A line counts even if all purchases on it were voided. */
function countBoughtLines({ requests }: GatewayTab, line: number): number {
  return new Set([...requests.values()].map((request) => request.line)).add(line).size
}

/** Returns whether a state signs at least the charged amount on each line. */
function covers(signed: readonly bigint[], lines: readonly GatewayTabLine[]): boolean {
  return lines.every(({ charged }, index) => (signed[index] ?? 0n) >= charged)
}
