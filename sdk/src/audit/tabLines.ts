import type { Hex } from 'viem'
import type { ReceiptClaims } from '../protocol/receipt.ts'
import { providerOfSplit } from '../protocol/tab.ts'
import type { SettledTab } from '../protocol/tabSettlement.ts'
import { largest, smallest } from './bigints.ts'
import type { EvidenceByNonce } from './evidence.ts'
import type { AuditedReceipt, AuditedTabLine, TabTotal } from './report.ts'

/** Returns the amount that was paid on a tab's line, in USDC base units. Lines with the same split are added up. */
export function movedOn(tab: SettledTab | undefined, split: bigint): bigint {
  return (tab?.lines ?? []).reduce((sum, line) => (line.split === split ? sum + line.amount : sum), 0n)
}

/** The terms that a gateway accepted, from a receipt or a tab line. */
type AcceptedTerms = {
  split?: Pick<NonNullable<ReceiptClaims['split']>, 'platform'>
  tab?: Pick<NonNullable<ReceiptClaims['tab']>, 'rewardShare'>
}

/**
 * Returns the share of the platform's part, in basis points, that the receipt's platform didn't receive, because the settled state names another
 * platform or a larger reward than the receipt.
 */
export function lostFeeShare(tab: SettledTab, { split, tab: receipt }: AcceptedTerms): number {
  if (tab.platform !== split?.platform) return 10_000
  return Math.max(0, tab.rewardShare - (receipt?.rewardShare ?? 0))
}

/**
 * Finds the amount that a tab's line must receive to pay each request: everything charged up to the request, minus reductions that were made later.
 * The request's own receipt doesn't contain later reductions, so they are taken from the receipts of the reduced requests. If such a receipt is
 * missing, the result is too high rather than too low, so an insufficient payment never counts as sufficient.
 *
 * @param receipts the latest receipt of each request.
 */
export function findLineNeeds(receipts: readonly ReceiptClaims[]): (claims: ReceiptClaims) => bigint {
  // For each line: its reduced requests in order, each with the sum of all reductions up to that request.
  const lines = new Map<string, { place: bigint; sum: bigint }[]>()
  const reduced = receipts.filter(({ tab }) => tab?.reduced !== undefined)
  for (const claims of [...reduced].sort((a, b) => (placeOf(a) < placeOf(b) ? -1 : 1))) {
    const line = lines.get(lineOf(claims)) ?? []
    lines.set(lineOf(claims), line)
    line.push({ place: placeOf(claims), sum: (line.at(-1)?.sum ?? 0n) + BigInt(claims.tab?.reduced ?? 0) })
  }
  return (claims) => {
    if (!claims.tab) return 0n
    const place = placeOf(claims)
    const line = lines.get(lineOf(claims)) ?? []
    const left = place - (line.filter((one) => one.place <= place).at(-1)?.sum ?? 0n)
    return largest(0n, smallest(left, BigInt(claims.tab.lineTotal)))
  }
}

/** Returns a request's position on its line: the sum of all prices up to it. */
export function placeOf({ tab }: ReceiptClaims): bigint {
  return BigInt(tab?.lineTotal ?? 0) + BigInt(tab?.lineReduced ?? 0)
}

function lineOf({ network, payer, authorizations, tab }: ReceiptClaims): string {
  return [network, payer, authorizations[0].nonce, tab?.split].join(' ')
}

/**
 * Sums receipts by tab and line.
 *
 * @param receipts the latest receipt of each request.
 * @param claimsOf claims by position.
 * @param tabLines the audited tab lines. If a line has no receipts, its tab line is the only source.
 */
export function sumByTab(
  receipts: readonly AuditedReceipt[],
  claimsOf: ReadonlyMap<number, ReceiptClaims>,
  needOf: (claims: ReceiptClaims) => bigint,
  evidence: ReadonlyMap<string, EvidenceByNonce>,
  tabLines: readonly AuditedTabLine[] = [],
): TabTotal[] {
  const totals = new Map<string, TabTotal>()
  const lineOn = ({ network, payer, nonce, id, issuer, split }: Place) => {
    const own = evidence
      .get(network)
      ?.get(nonce)
      ?.find(({ authorizer }) => authorizer === payer)
    const key = `${network} ${payer} ${nonce}`
    const total: TabTotal = totals.get(key) ?? {
      network,
      id,
      payer,
      issuer,
      nonce,
      requests: 0,
      lines: [],
      ...(own?.transfer && { transactionHash: own.transactionHash, movedAmount: own.transfer.value }),
      ...(own?.tab && { platform: own.tab.platform, rewardShare: own.tab.rewardShare }),
    }
    totals.set(key, total)
    const moved = own?.kind === 'used' ? movedOn(own.tab, BigInt(split)) : undefined
    let line = total.lines.find((one) => one.split === split)
    if (!line) {
      const provider = providerOfSplit(BigInt(split))
      line = { split, provider, requests: 0, boughtAmount: 0n, lineTotal: 0n, gap: 0n }
      if (moved !== undefined) line.movedAmount = moved
      total.lines.push(line)
    }
    return { total, line, moved }
  }
  for (const { position, state } of receipts) {
    const claims = claimsOf.get(position)
    if (!claims?.tab || state === 'duplicate' || claims.status === 'voided') continue
    const { id, split } = claims.tab
    const need = needOf(claims)
    const { network, payer, iss: issuer } = claims
    const { nonce } = claims.authorizations[0]
    const { total, line, moved } = lineOn({ network, payer, nonce, id, issuer, split })
    total.requests += 1
    line.requests += 1
    line.boughtAmount += BigInt(claims.totalUsdc)
    line.lineTotal = largest(line.lineTotal, need)
    line.gap = gapOf(line, moved)
  }
  const booked = new Set<string>()
  for (const { line: claimed, state } of tabLines) {
    if (!claimed || state === 'duplicate') continue
    const { network, payer, nonce, tabId: id, split, issuer } = claimed
    // If the gateway signed a tab line several times, count it once.
    const key = [network, payer, nonce, split, claimed.providerId].join(' ')
    if (booked.has(key)) continue
    booked.add(key)
    const { line, moved } = lineOn({ network, payer, nonce, id, issuer, split })
    line.booked = {
      requests: (line.booked?.requests ?? 0) + claimed.requests,
      totalAmount: (line.booked?.totalAmount ?? 0n) + claimed.totalAmount,
    }
    line.lineTotal = largest(line.lineTotal, claimed.chargedAmount)
    line.gap = gapOf(line, moved)
  }
  return [...totals.values()]
}

/** Returns the amount that is missing on a line. Returns 0 if the tab has not settled. */
function gapOf(
  { lineTotal }: Pick<TabTotal['lines'][number], 'lineTotal'>,
  moved: bigint | undefined,
): bigint {
  return moved === undefined ? 0n : largest(0n, lineTotal - moved)
}

/** A line of a tab. */
type Place = Pick<TabTotal, 'network' | 'payer' | 'nonce' | 'id' | 'issuer'> & { split: Hex }
