import type { ReceiptClaims } from '../protocol/receipt.ts'
import { providerOfSplit } from '../protocol/tab.ts'
import type { SettledTab } from '../protocol/tabSettlement.ts'
import { largest, smallest } from './bigints.ts'
import type { EvidenceByNonce } from './evidence.ts'
import type { AuditedReceipt, TabTotal } from './report.ts'

/** The amount that moved on a tab's line, USDC base units. Lines of one split count together. */
export function movedOn(tab: SettledTab | undefined, split: bigint): bigint {
  return (tab?.lines ?? []).reduce((sum, line) => (line.split === split ? sum + line.amount : sum), 0n)
}

/**
 * The basis points of the platform's part that went elsewhere than the receipt says, because the payer signed another platform or a
 * larger reward in the state that moved.
 */
export function lostFeeShare(tab: SettledTab, { split, tab: receipt }: ReceiptClaims): number {
  if (tab.platform !== split?.platform) return 10_000
  return Math.max(0, tab.rewardShare - (receipt?.rewardShare ?? 0))
}

/**
 * Finds how much must have moved on a tab's line to pay each request: what was charged up to it, less later reductions of requests that
 * it counts at their prices. Without the receipts of those it is more, so too little is never called enough.
 *
 * @param receipts one for each request.
 */
export function findLineNeeds(receipts: readonly ReceiptClaims[]): (claims: ReceiptClaims) => bigint {
  // For each line, in the order of its requests, the sum of reductions up to each.
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

/** A request's place on its line: the sum of all prices up to it. */
export function placeOf({ tab }: ReceiptClaims): bigint {
  return BigInt(tab?.lineTotal ?? 0) + BigInt(tab?.lineReduced ?? 0)
}

function lineOf({ network, payer, authorizations, tab }: ReceiptClaims): string {
  return [network, payer, authorizations[0].nonce, tab?.split].join(' ')
}

/**
 * Sums by tab and line.
 *
 * @param receipts one for each request.
 * @param claimsOf by position.
 */
export function sumByTab(
  receipts: readonly AuditedReceipt[],
  claimsOf: ReadonlyMap<number, ReceiptClaims>,
  needOf: (claims: ReceiptClaims) => bigint,
  evidence: ReadonlyMap<string, EvidenceByNonce>,
): TabTotal[] {
  const totals = new Map<string, TabTotal>()
  for (const { position, state } of receipts) {
    const claims = claimsOf.get(position)
    if (!claims?.tab || state === 'duplicate' || claims.status === 'voided') continue
    const { id, split } = claims.tab
    const need = needOf(claims)
    const { network, payer, iss } = claims
    const { nonce } = claims.authorizations[0]
    const own = evidence
      .get(network)
      ?.get(nonce)
      ?.find(({ authorizer }) => authorizer === payer)
    const key = `${network} ${payer} ${nonce}`
    const total: TabTotal = totals.get(key) ?? {
      network,
      id,
      payer,
      issuer: iss,
      nonce,
      requests: 0,
      lines: [],
      ...(own?.transfer && { transactionHash: own.transactionHash, movedAmount: own.transfer.value }),
      ...(own?.tab && { platform: own.tab.platform, rewardShare: own.tab.rewardShare }),
    }
    totals.set(key, total)
    total.requests += 1
    const moved = own?.kind === 'used' ? movedOn(own.tab, BigInt(split)) : undefined
    let line = total.lines.find((one) => one.split === split)
    if (!line) {
      const provider = providerOfSplit(BigInt(split))
      line = { split, provider, requests: 0, boughtAmount: 0n, lineTotal: 0n, gap: 0n }
      if (moved !== undefined) line.movedAmount = moved
      total.lines.push(line)
    }
    line.requests += 1
    line.boughtAmount += BigInt(claims.totalUsdc)
    line.lineTotal = largest(line.lineTotal, need)
    line.gap = moved === undefined ? 0n : largest(0n, line.lineTotal - moved)
  }
  return [...totals.values()]
}
