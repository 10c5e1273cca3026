import { formatUsdc } from '../protocol/amount.ts'
import { ProtocolError } from '../protocol/errors.ts'
import { type ReceiptClaims, zeroHash } from '../protocol/receipt.ts'
import { providerOfSplit, tabNonce } from '../protocol/tab.ts'
import type { TabLineClaims } from '../protocol/tabLine.ts'
import { mapLimited } from './concurrency.ts'
import type { EvidenceByNonce, Wanted } from './evidence.ts'
import type { ChainFacts } from './judge.ts'
import { type ArrivedSale, arrivedSales, judgeTabLine, type TabLineVerdict } from './judgeTabLine.ts'
import type { AuditedTabLine, AuditReason, AuditState } from './report.ts'
import type { ReceiptKeys } from './verifyReceipt.ts'
import { verifyTabLine } from './verifyTabLine.ts'

export type GenuineTabLine = { position: number; claims: TabLineClaims }
export type ForgedTabLine = { position: number; claims?: undefined; reason: AuditReason; detail: string }

/** What a tab line contributes to the totals. It replaces the receipts of its requests. */
export type CountedTabLine = GenuineTabLine & {
  state: AuditState
  verdict: TabLineVerdict
  sales: ArrivedSale[]
}

export type JudgedTabLines = {
  tabLines: AuditedTabLine[]
  /** The latest tab line of each line of a tab. */
  counted: CountedTabLine[]
}

/** Maximum number of signatures that are verified at once. */
const signaturesAtOnce = 64
const compactPattern = /^[\w-]+\.[\w-]+\.[\w-]+$/

/** Verifies the signatures of tab lines. */
export function readTabLines(
  tabLines: readonly string[],
  { jwks, issuer }: { jwks: ReceiptKeys; issuer?: string },
): Promise<(GenuineTabLine | ForgedTabLine)[]> {
  return mapLimited([...tabLines.entries()], signaturesAtOnce, async ([position, jws]) => {
    if (!compactPattern.test(jws))
      return { position, reason: 'not_a_jws', detail: 'Not a JWS in compact form' }
    try {
      const claims = await verifyTabLine(jws, jwks)
      if (issuer !== undefined && claims.iss !== issuer)
        return { position, reason: 'other_issuer', detail: `Signed for ${claims.iss}, not for ${issuer}` }
      return { position, claims }
    } catch (error) {
      if (!(error instanceof ProtocolError) || error.code !== 'invalid_receipt') throw error
      const reason = 'field' in error.details ? 'bad_claims' : 'bad_signature'
      return { position, reason, detail: error.message }
    }
  })
}

/** Returns the payer and nonce of a tab, which are searched for on chain. */
export function wantedOfTabLine({
  iss,
  tab,
  payer,
  openedAt,
  validBefore,
  transactionHash,
}: TabLineClaims): Wanted {
  return {
    payer,
    nonce: tabNonce(iss, tab.id),
    acceptedAt: BigInt(Math.floor(Date.parse(openedAt) / 1000)),
    validBefore: BigInt(validBefore),
    ...(transactionHash !== zeroHash && { hint: transactionHash }),
  }
}

/** Returns a key that identifies a provider's line on a tab. A signed tab line and the receipts of the line's requests have the same key. */
export function lineKey(claims: ReceiptClaims | TabLineClaims): string | undefined {
  const { network, payer, providerId, iss, tab } = claims
  return tab && [network, payer, tabNonce(iss, tab.id), tab.split, providerId].join(' ')
}

/**
 * Compares tab lines with the chain, with each other and with the receipts of their requests.
 *
 * An honest gateway signs the same facts each time that it signs a tab line. If two tab lines for the same line differ, the later one is reported
 * as a conflict. If several providers share a wallet, their sales together must not exceed what the line pays. The receipts of a line's requests
 * must add up to at most the line's amount, and to exactly that amount if every request has a receipt.
 *
 * @param receipts the latest authentic receipt of each request, without duplicates.
 * @param provider rejects tab lines of other providers.
 */
export function judgeTabLines(
  read: readonly (GenuineTabLine | ForgedTabLine)[],
  {
    receipts,
    evidence,
    factsOf,
    provider,
  }: {
    receipts: readonly ReceiptClaims[]
    evidence: ReadonlyMap<string, EvidenceByNonce>
    factsOf: (network: string) => ChainFacts
    provider?: string | undefined
  },
): JudgedTabLines {
  const genuine = read.filter((one): one is GenuineTabLine => one.claims !== undefined)
  const conflicts = findConflicts(genuine)
  const sums = sumReceipts(receipts)
  const latest = new Map<string, GenuineTabLine>()
  for (const one of genuine) {
    const key = lineKey(one.claims) ?? ''
    const known = latest.get(key)
    if (conflicts.has(one.position) || isOther(one.claims, provider)) continue
    if (!known || one.claims.iat >= known.claims.iat) latest.set(key, one)
  }
  const judged = new Map<number, TabLineVerdict>()
  const tabLines = read.map((one): AuditedTabLine => {
    if (!one.claims) return { ...one, state: 'forged', reconciled: false }
    const { position } = one
    // If the gateway signed a tab line several times, each version gets the verdict of the latest version.
    const { claims } = latest.get(lineKey(one.claims) ?? '') ?? one
    const own = conflicts.has(position) ? one.claims : claims
    const verdict = judgeTabLine(own, evidence.get(own.network) ?? new Map(), factsOf(own.network))
    const sum = sums.get(lineKey(own) ?? '')
    const described = {
      position,
      line: describeLine(one.claims),
      ...(sum && { receipts: sum }),
      ...(verdict.onChain && { onChain: verdict.onChain }),
      ...(verdict.isOtherState && { isOtherState: verdict.isOtherState }),
    }
    judged.set(position, verdict)
    if (isOther(own, provider)) {
      const detail = `The tab line belongs to provider ${own.providerId}, not to ${provider}`
      return { ...described, state: 'mismatch', reason: 'other_provider', reconciled: false, detail }
    }
    const conflict = conflicts.get(position)
    if (conflict !== undefined)
      return {
        ...described,
        state: 'duplicate',
        reason: 'line_conflict',
        reconciled: false,
        detail: conflict,
      }
    const disagreement = verdict.state === 'mismatch' ? undefined : disagreementOf(own, sum)
    if (disagreement !== undefined)
      return { ...described, state: 'mismatch', reason: 'receipts', reconciled: false, detail: disagreement }
    const { state, reason, reconciled, detail } = verdict
    return { ...described, state, ...(reason && { reason }), reconciled, detail }
  })
  const states = new Map(tabLines.map(({ position, state }) => [position, state]))
  const counted = [...latest.values()].flatMap((one): CountedTabLine[] => {
    const verdict = judged.get(one.position)
    const state = states.get(one.position)
    if (!verdict || !state) return []
    return [{ ...one, state, verdict, sales: arrivedSales(one.claims, verdict) }]
  })
  return { tabLines, counted }
}

function isOther({ providerId }: TabLineClaims, provider: string | undefined): boolean {
  return provider !== undefined && providerId !== provider
}

function describeLine(claims: TabLineClaims): NonNullable<AuditedTabLine['line']> {
  const { tab, line } = claims
  return {
    paymentId: claims.paymentId,
    providerId: claims.providerId,
    network: claims.network,
    payer: claims.payer,
    issuer: claims.iss,
    tabId: tab.id,
    nonce: tabNonce(claims.iss, tab.id),
    split: tab.split,
    provider: providerOfSplit(BigInt(tab.split)),
    requests: claims.requests,
    totalAmount: BigInt(claims.totalUsdc),
    providerAmount: BigInt(claims.providerUsdc),
    platformAmount: BigInt(claims.platformUsdc),
    chargedAmount: BigInt(line.chargedUsdc),
    creditAmount: BigInt(line.creditUsdc),
  }
}

/** Finds tab lines that contradict an earlier tab line. Returns a description of each contradiction by position. */
function findConflicts(genuine: readonly GenuineTabLine[]): Map<number, string> {
  const conflicts = new Map<number, string>()
  const owners = new Map<string, string>()
  const lines = new Map<string, { facts: string; left: bigint; providers: Set<string> }>()
  const inTime = [...genuine].sort((a, b) => a.claims.iat - b.claims.iat || a.position - b.position)
  for (const { position, claims } of inTime) {
    const key = lineKey(claims) ?? ''
    const facts = factsOfProvider(claims)
    const known = owners.get(key)
    if (known !== undefined) {
      if (known !== facts)
        conflicts.set(
          position,
          `The gateway previously signed a different version of this line of tab ${claims.tab.id}`,
        )
      continue
    }
    owners.set(key, facts)
    // Providers with the same wallet share one line.
    const shared = key.slice(0, key.lastIndexOf(' '))
    const line = lines.get(shared) ?? {
      facts: factsOfLine(claims),
      left: BigInt(claims.line.chargedUsdc) + BigInt(claims.line.creditUsdc),
      providers: new Set<string>(),
    }
    lines.set(shared, line)
    line.left -= BigInt(claims.totalUsdc)
    line.providers.add(claims.providerId)
    const subject = `The tab lines of ${[...line.providers].join(' and ')}`
    if (line.facts !== factsOfLine(claims))
      conflicts.set(
        position,
        `${subject} state different facts about the line of tab ${claims.tab.id} that they share`,
      )
    else if (line.left < 0n)
      conflicts.set(
        position,
        `${subject} together claim more than the line of tab ${claims.tab.id} that they share pays`,
      )
  }
  return conflicts
}

/**
 * Returns the claims of a tab line that never change after the tab has closed. Two tab lines about one line contradict each other if these differ.
 */
function factsOfProvider(claims: TabLineClaims): string {
  const { iat: _iat, status: _status, transactionHash: _hash, blockHash: _block, line, ...facts } = claims
  const { movedUsdc: _moved, ...booked } = line
  return JSON.stringify([facts, booked])
}

function factsOfLine({ tab, line, platform, contract, asset }: TabLineClaims): string {
  const { signedUsdc, chargedUsdc, creditUsdc } = line
  return JSON.stringify([tab, signedUsdc, chargedUsdc, creditUsdc, platform, contract, asset])
}

type ReceiptSum = { requests: number; totalAmount: bigint }

/** For each line, sums the receipts of the requests that weren't voided. */
function sumReceipts(receipts: readonly ReceiptClaims[]): Map<string, ReceiptSum> {
  const sums = new Map<string, ReceiptSum>()
  for (const claims of receipts) {
    const key = lineKey(claims)
    if (key === undefined || claims.status === 'voided') continue
    const sum = sums.get(key) ?? { requests: 0, totalAmount: 0n }
    sums.set(key, {
      requests: sum.requests + 1,
      totalAmount: sum.totalAmount + BigInt(claims.totalUsdc),
    })
  }
  return sums
}

/** Describes how the receipts of a line's requests contradict its tab line. Returns undefined if they agree. */
function disagreementOf(claims: TabLineClaims, sum: ReceiptSum | undefined): string | undefined {
  if (sum === undefined) return undefined
  const total = BigInt(claims.totalUsdc)
  const fits =
    sum.requests === claims.requests
      ? sum.totalAmount === total
      : sum.requests < claims.requests && sum.totalAmount <= total
  if (fits) return undefined
  return `${sum.requests} receipts of the tab line's requests add up to ${formatUsdc(sum.totalAmount)} USDC, but the tab line has ${claims.requests} requests for ${formatUsdc(total)} USDC`
}
