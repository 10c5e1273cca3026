import type { Hash, Hex } from 'viem'
import type { ReceiptClaims } from '../protocol/receipt.ts'
import { providerOfSplit } from '../protocol/tab.ts'
import { decodeSettleTabs, type SignedTab } from '../protocol/tabSettlement.ts'
import { largest, smallest } from './bigints.ts'
import type { ChainReader } from './chainReader.ts'
import type { Evidence, EvidenceByNonce } from './evidence.ts'
import type { AuditedReceipt, TabTotal } from './report.ts'

/**
 * Adds to the evidence of tabs the amount of each line, from the transactions' calldata. USDC's logs only say how much a tab's
 * nonce moved to TabSettlement, and only the lines in that calldata match what the payer signed.
 */
export async function addLines(
  reader: ChainReader,
  nonces: ReadonlySet<Hex>,
  evidence: EvidenceByNonce,
): Promise<void> {
  const found = [...nonces].flatMap((nonce) => evidence.get(nonce) ?? [])
  const moved = found.filter(({ transfer }) => transfer !== undefined && transfer.to === reader.tabSettlement)
  const calls = await reader.getCalls(moved.map(({ transactionHash }) => transactionHash))
  const decoded = new Map<Hash, readonly SignedTab[]>()
  for (const [hash, { to, input }] of calls) {
    const tabs = to === reader.tabSettlement ? decode(input) : undefined
    if (tabs) decoded.set(hash, tabs)
  }
  for (const one of moved) {
    const lines = linesOf(decoded.get(one.transactionHash) ?? [], one)
    if (lines) one.lines = lines
  }
}

/**
 * The amount that moved on each line of a tab. If a call has two states of one tab, the first that the token takes moves; if both could
 * have moved, each line counts with the lower amount.
 */
export function linesOf(
  tabs: readonly SignedTab[],
  { authorizer, nonce, transfer }: Pick<Evidence, 'authorizer' | 'nonce' | 'transfer'>,
): ReadonlyMap<bigint, bigint> | undefined {
  const [first, ...others] = tabs
    .filter((tab) => tab.payer === authorizer && tab.nonce === nonce)
    .map(({ lines }) => {
      const amounts = new Map<bigint, bigint>()
      for (const { split, amount } of lines) amounts.set(split, (amounts.get(split) ?? 0n) + amount)
      return amounts
    })
    .filter((amounts) => [...amounts.values()].reduce((sum, amount) => sum + amount, 0n) === transfer?.value)
  if (!first) return undefined
  return new Map(
    [...first].map(([split, amount]) => [
      split,
      smallest(amount, ...others.map((other) => other.get(split) ?? 0n)),
    ]),
  )
}

function decode(input: Hex): readonly SignedTab[] | undefined {
  try {
    return decodeSettleTabs(input).tabs
  } catch {
    return undefined
  }
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
    }
    totals.set(key, total)
    total.requests += 1
    const moved = own?.lines ? (own.lines.get(BigInt(split)) ?? 0n) : undefined
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
