import {
  type ReceiptAuthorization,
  type ReceiptClaims,
  type ReceiptRefund,
  type ReceiptTab,
  zeroHash,
} from '../protocol/receipt.ts'
import { refundNonce } from '../protocol/refund.ts'
import { splitterOf as findSplitter } from '../protocol/splitter.ts'
import { providerOfSplit, tabNonce } from '../protocol/tab.ts'
import type { ChainReader } from './chainReader.ts'
import type { Evidence, EvidenceByNonce } from './evidence.ts'
import type { AuditedHalf, AuditedHalves, AuditedReceipt, AuditedRefund } from './report.ts'
import { lostFeeShare, movedOn } from './tabLines.ts'

/** The facts that a verdict depends on, in addition to the evidence. */
export type ChainFacts = Pick<ChainReader, 'token' | 'splitterFactory' | 'tabSettlement'> & {
  confirmations: number
  head: Pick<ChainReader['head'], 'number' | 'time'>
}

export type Verdict = Pick<AuditedHalf, 'state' | 'reason'> &
  Pick<AuditedReceipt, 'reconciled' | 'isSuperseded' | 'refunds'> & { halves: AuditedHalves }

/** The states of an authorization, the worst first. A payment with two authorizations has the worse of their two states. */
const gravity = ['mismatch', 'cancelled', 'missing', 'pending', 'settled'] as const

/**
 * Compares what a receipt promises with what happened on chain.
 *
 * @param lineNeed for a request on a tab: the amount that the tab's line must receive to pay the request. Default: the `lineTotal` in its receipt.
 */
export function judge(
  claims: ReceiptClaims,
  evidence: EvidenceByNonce,
  facts: ChainFacts,
  lineNeed = BigInt(claims.tab?.lineTotal ?? 0),
): Verdict {
  const [provider, platform] = claims.authorizations
  const first = claims.tab
    ? judgeTab(claims.tab, lineNeed, claims, evidence, facts)
    : judgeHalf('provider', provider, claims, evidence, facts)
  const halves: AuditedHalves =
    platform === undefined ? [first] : [first, judgeHalf('platform', platform, claims, evidence, facts)]
  if (halves[1] !== undefined && provider.nonce === platform?.nonce) {
    const { onChain: _, ...half } = halves[1]
    halves[1] = { ...half, state: 'mismatch', reason: 'same_nonce' }
  }
  const refunds = claims.refunds?.map((refund) => judgeRefund(refund, claims, evidence, facts))
  const isUntouched = halves.every(({ onChain }) => onChain === undefined)
  // A tab also settles for its other requests, so a settled tab doesn't show that a voided request was charged.
  if (claims.status === 'voided' && (isUntouched || claims.tab)) {
    return { state: 'cancelled', reason: 'voided', reconciled: true, halves }
  }
  const worst = halves.reduce(
    (a, b) => (gravity.indexOf(b.state) < gravity.indexOf(a.state) ? b : a),
    halves[0],
  )
  const isNamed = halves.some(
    ({ onChain }) =>
      onChain?.transactionHash === claims.transactionHash &&
      (claims.blockHash === undefined || claims.blockHash === onChain.blockHash),
  )
  const isSuperseded = claims.transactionHash !== zeroHash && !isUntouched && !isNamed
  if (refunds?.some(({ state }) => state === 'missing' || state === 'mismatch'))
    return { state: 'mismatch', reason: 'refund', reconciled: false, halves, refunds }
  return {
    state: worst.state,
    ...(worst.reason && { reason: worst.reason }),
    reconciled: worst.state === 'settled',
    halves,
    ...(refunds && { refunds }),
    ...(isSuperseded && { isSuperseded }),
  }
}

function judgeHalf(
  half: AuditedHalf['half'],
  authorization: ReceiptAuthorization,
  claims: ReceiptClaims,
  evidence: EvidenceByNonce,
  facts: ChainFacts,
): AuditedHalf {
  const promised = {
    half,
    to: authorization.to,
    value: BigInt(authorization.value),
    nonce: authorization.nonce,
  }
  if (claims.asset !== facts.token) return { ...promised, state: 'mismatch', reason: 'token' }
  const payee = isOfWholeTab(claims) ? facts.tabSettlement : claims.split && splitterOf(claims, facts)
  if (payee !== undefined && promised.to !== payee)
    return { ...promised, state: 'mismatch', reason: 'splitter' }

  const withNonce = evidence.get(authorization.nonce) ?? []
  const own = withNonce.find(({ authorizer }) => authorizer === claims.payer)
  if (own) return { ...promised, ...judgeOwn(own, promised, facts), onChain: describe(own) }

  // Nonces are separate for each address, so any other address can also use this nonce. Such an address counts as the actual payer only if it made
  // exactly the promised transfer.
  const others = withNonce.find(
    ({ transfer }) => transfer?.to === promised.to && transfer.value === promised.value,
  )
  if (others) return { ...promised, state: 'mismatch', reason: 'payer', onChain: describe(others) }
  return { ...promised, ...judgeUnused(half, claims, facts) }
}

/** Whether a receipt covers a whole tab. If so, its authorization pays TabSettlement, which divides the amount among the tab's lines. */
export function isOfWholeTab({ tab, split, authorizations: [{ to }] }: ReceiptClaims): boolean {
  return tab === undefined && split?.provider === to
}

/**
 * Judges a request on a tab. The request is settled if and only if TabSettlement executed the tab's authorization, and in that execution the
 * request's line had at least `lineNeed`, the platform was the receipt's, and the reward was at most the receipt's.
 */
function judgeTab(
  { id, split }: ReceiptTab,
  lineNeed: bigint,
  claims: ReceiptClaims,
  evidence: EvidenceByNonce,
  facts: ChainFacts,
): AuditedHalf {
  const [{ to, value, nonce }] = claims.authorizations
  const promised = { half: 'provider', to, value: BigInt(value), nonce } as const
  if (claims.asset !== facts.token) return { ...promised, state: 'mismatch', reason: 'token' }
  const isOfTab =
    to === facts.tabSettlement &&
    nonce === tabNonce(claims.iss, id) &&
    providerOfSplit(BigInt(split)) === claims.split?.provider
  if (!isOfTab) return { ...promised, state: 'mismatch', reason: 'tab' }
  const own = evidence.get(nonce)?.find(({ authorizer }) => authorizer === claims.payer)
  if (!own) return { ...promised, ...judgeUnused('provider', claims, facts) }
  const line = movedOn(own.tab, BigInt(split))
  const lost = own.tab ? lostFeeShare(own.tab, claims) : 0
  const onChain = {
    ...describe(own),
    ...(own.kind === 'used' && { line }),
    ...(lost > 0 && { lostFeeShare: lost }),
  }
  const judged = judgeUse(own, promised, facts)
  if (judged.state !== 'settled' && judged.reason !== 'confirming') return { ...promised, ...judged, onChain }
  if (line < lineNeed) return { ...promised, state: 'mismatch', reason: 'line', onChain }
  if (lost > 0) return { ...promised, state: 'mismatch', reason: 'terms', onChain }
  return { ...promised, ...judged, onChain }
}

/** Returns the verdict on an authorization that isn't on chain. */
export function judgeUnused(
  half: AuditedHalf['half'],
  claims: Pick<ReceiptClaims, 'status' | 'transactionHash' | 'validBefore'>,
  facts: Pick<ChainFacts, 'head'>,
): Pick<AuditedHalf, 'state' | 'reason'> {
  // A receipt that names a transaction says that the provider was paid. The platform's authorization may still be pending.
  const isSaidSettled =
    claims.status === 'settled' || (half === 'provider' && claims.transactionHash !== zeroHash)
  if (isSaidSettled) return { state: 'missing', reason: 'said_to_be_settled' }
  // EIP-3009: an authorization is valid only before this time.
  const isExpired = facts.head.time >= BigInt(claims.validBefore)
  return isExpired ? { state: 'missing', reason: 'expired' } : { state: 'pending', reason: 'waiting' }
}

/**
 * Judges a refund. The refund must pay the payer with the nonce derived from the refund's number, so a transfer for another purpose can't prove
 * it.
 */
function judgeRefund(
  { number, from, value: text, nonce, transactionHash }: ReceiptRefund,
  { iss, paymentId, payer, asset }: ReceiptClaims,
  evidence: EvidenceByNonce,
  { token, confirmations, head }: ChainFacts,
): AuditedRefund {
  const value = BigInt(text)
  const promised = { number, from, value, nonce }
  if (nonce !== refundNonce(iss, paymentId, number) || asset !== token)
    return { ...promised, state: 'mismatch' }
  const own = evidence.get(nonce)?.find(({ authorizer }) => authorizer === from)
  if (!own) return { ...promised, state: transactionHash === zeroHash ? 'pending' : 'missing' }
  const seen = { ...promised, transactionHash: own.transactionHash }
  if (own.transfer?.to !== payer || own.transfer.value !== value)
    return { ...seen, state: transactionHash === zeroHash ? 'pending' : 'mismatch' }
  return { ...seen, state: head.number - own.blockNumber < BigInt(confirmations) ? 'pending' : 'settled' }
}

/** Returns the only splitter that pays both wallets the amounts in the receipt. Returns null if it can't be determined. */
function splitterOf({ split, providerUsdc, platformUsdc }: ReceiptClaims, { splitterFactory }: ChainFacts) {
  if (!split) return null
  const wallets = { payTo: split.provider, feePayTo: split.platform }
  const amounts = { amount: BigInt(providerUsdc), feeAmount: BigInt(platformUsdc) }
  return findSplitter({ ...wallets, ...amounts }, splitterFactory)?.address ?? null
}

function judgeOwn(
  own: Evidence,
  promised: { to: string; value: bigint },
  facts: ChainFacts,
): Pick<AuditedHalf, 'state' | 'reason'> {
  const judged = judgeUse(own, promised, facts)
  const isOther = own.transfer?.to === promised.to && own.transfer.value !== promised.value
  return isOther && own.kind === 'used' ? { state: 'mismatch', reason: 'amount' } : judged
}

/** Judges whether a transfer paid the recipient and has enough confirmations. */
export function judgeUse(
  own: Evidence,
  promised: { to: string },
  facts: ChainFacts,
): Pick<AuditedHalf, 'state' | 'reason'> {
  if (own.kind === 'cancelled') return { state: 'cancelled', reason: 'cancelled_on_chain' }
  if (!own.transfer) return { state: 'mismatch', reason: 'no_transfer' }
  if (own.transfer.to !== promised.to) return { state: 'mismatch', reason: 'recipient' }
  const depth = facts.head.number - own.blockNumber
  return depth < BigInt(facts.confirmations)
    ? { state: 'pending', reason: 'confirming' }
    : { state: 'settled' }
}

export function describe(evidence: Evidence): NonNullable<AuditedHalf['onChain']> {
  const { authorizer, transfer, transactionHash, blockNumber, blockHash, blockTime, logIndex } = evidence
  return { from: authorizer, ...transfer, transactionHash, blockNumber, blockHash, blockTime, logIndex }
}
