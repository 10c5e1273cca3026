import type { Address } from 'viem'
import type { PaymentStatus } from '../protocol/paymentStatus.ts'
import type { CountedTabLine } from './auditTabLines.ts'
import type {
  AuditedHalf,
  AuditedReceipt,
  AuditState,
  BatchTotal,
  PaymentCounts,
  ProviderTotal,
} from './report.ts'

export function countStates(receipts: readonly AuditedReceipt[]): Record<AuditState, number> {
  const states = { settled: 0, pending: 0, mismatch: 0, missing: 0, cancelled: 0, forged: 0, duplicate: 0 }
  for (const { state } of receipts) states[state] += 1
  return states
}

/**
 * Sums per provider and network.
 *
 * @param receipts the latest receipt of each payment, without the requests that a tab line counts.
 */
export function sumByProvider(
  receipts: readonly AuditedReceipt[],
  tabLines: readonly CountedTabLine[] = [],
): ProviderTotal[] {
  const totals = new Map<string, ProviderTotal>()
  for (const receipt of receipts) {
    const { payment, state, reconciled } = receipt
    if (!payment) continue
    const total = totalOf(totals, payment)
    addCounts(total.counts, countsOf(receipt))
    total.payments += 1
    if (state === 'settled') total.settled += 1
    else if (state === 'pending') total.pending += 1
    else if (!reconciled) total.failing += 1
    if (state === 'pending') total.pendingAmount += payment.providerAmount
    for (const { providerAmount, platformAmount } of movedBy(receipt)) {
      total.providerAmount += providerAmount
      total.platformAmount += platformAmount
      if (payment.splitter && !receipt.payout) total.waitingAmount += providerAmount
    }
    for (const { state, value } of receipt.refunds ?? [])
      if (state === 'settled') total.refundedAmount += value
  }
  for (const { claims, state, sales, verdict } of tabLines) {
    const total = totalOf(totals, claims)
    for (const sale of sales) {
      const counts = countsOfSale(sale, claims.status, state, verdict.reason === 'confirming')
      addCounts(total.counts, counts)
      const left = sale.requests - counts.settled
      total.payments += sale.requests
      total.settled += counts.settled
      if (state === 'pending') total.pending += left
      else total.failing += left
      if (state === 'pending') total.pendingAmount += counts.outstandingAmount
      total.providerAmount += sale.providerAmount
      total.platformAmount += sale.platformAmount
    }
  }
  return [...totals.values()].sort(
    (a, b) => compare(a.providerId, b.providerId) || compare(a.network, b.network),
  )
}

function totalOf(
  totals: Map<string, ProviderTotal>,
  { providerId, network }: Pick<ProviderTotal, 'providerId' | 'network'>,
): ProviderTotal {
  return getOrCreate(totals, `${network} ${providerId}`, () => ({
    providerId,
    network,
    payments: 0,
    settled: 0,
    pending: 0,
    failing: 0,
    providerAmount: 0n,
    platformAmount: 0n,
    pendingAmount: 0n,
    waitingAmount: 0n,
    refundedAmount: 0n,
    counts: noCounts(),
  }))
}

function noCounts(): PaymentCounts {
  return { payments: 0, settled: 0, outstanding: 0, outstandingAmount: 0n, failed: 0, voided: 0 }
}

/** Sums the payments of all providers. */
export function sumCounts(providers: readonly ProviderTotal[]): PaymentCounts {
  const sum = noCounts()
  for (const { counts } of providers) addCounts(sum, counts)
  return sum
}

function addCounts(sum: PaymentCounts, counts: PaymentCounts): void {
  sum.payments += counts.payments
  sum.settled += counts.settled
  sum.outstanding += counts.outstanding
  sum.outstandingAmount += counts.outstandingAmount
  sum.failed += counts.failed
  sum.voided += counts.voided
}

/** Counts a payment as the provider's statement does: the provider's authorization decides, and exhausted retries count as failed. */
function countsOf({ payment, halves, state, reason }: AuditedReceipt): PaymentCounts {
  const counts = noCounts()
  if (!payment || !halves || state === 'duplicate') return counts
  if (reason === 'voided') return { ...counts, voided: 1 }
  const [{ state: provider, reason: why }] = halves
  const isSettled = provider === 'settled' || why === 'terms'
  const isOpen = provider === 'pending' && payment.status !== 'failed'
  return {
    ...counts,
    payments: 1,
    settled: isSettled ? 1 : 0,
    outstanding: isOpen ? 1 : 0,
    outstandingAmount: isOpen ? payment.providerAmount : 0n,
    failed: isSettled || isOpen ? 0 : 1,
  }
}

/** Counts the requests of a sale on a tab. An amount that was transferred but isn't confirmed counts as outstanding. */
function countsOfSale(
  { requests, settled, missingAmount, providerAmount }: CountedTabLine['sales'][number],
  status: PaymentStatus,
  state: AuditState,
  isConfirming: boolean,
): PaymentCounts {
  const arrived = isConfirming ? 0 : settled
  const isOpen = state === 'pending' && status !== 'failed'
  return {
    payments: requests,
    settled: arrived,
    outstanding: isOpen ? requests - arrived : 0,
    outstandingAmount: isOpen ? missingAmount + (isConfirming ? providerAmount : 0n) : 0n,
    failed: isOpen ? 0 : requests - arrived,
    voided: 0,
  }
}

/** Sums per settlement transaction, in chain order. Takes the same `receipts` and `tabLines` as {@link sumByProvider}. */
export function sumByBatch(
  receipts: readonly AuditedReceipt[],
  tabLines: readonly CountedTabLine[] = [],
): BatchTotal[] {
  const totals = new Map<string, BatchTotal>()
  const counted = new Set<string>()
  /** Returns the batch that used an authorization, and counts the authorization only once, because all requests on a tab share an authorization. */
  function batchOf(network: string, onChain: NonNullable<AuditedHalf['onChain']>): BatchTotal {
    const { transactionHash, blockNumber, blockTime, logIndex } = onChain
    const total = getOrCreate(totals, `${network} ${transactionHash}`, () => ({
      network,
      transactionHash,
      blockNumber,
      blockTime,
      payments: 0,
      authorizations: 0,
      providerAmount: 0n,
      platformAmount: 0n,
    }))
    const key = `${network} ${transactionHash} ${logIndex}`
    if (!counted.has(key)) total.authorizations += 1
    counted.add(key)
    return total
  }
  for (const receipt of receipts) {
    if (!receipt.payment) continue
    const { network } = receipt.payment
    const transactions = new Set<BatchTotal>()
    for (const { onChain, providerAmount, platformAmount } of movedBy(receipt)) {
      if (!onChain) continue
      const total = batchOf(network, onChain)
      transactions.add(total)
      total.providerAmount += providerAmount
      total.platformAmount += platformAmount
    }
    for (const total of transactions) total.payments += 1
  }
  for (const { claims, verdict, sales } of tabLines) {
    if (verdict.onChain?.line === undefined || verdict.onChain.line === 0n) continue
    const total = batchOf(claims.network, verdict.onChain)
    for (const { settled, providerAmount, platformAmount } of sales) {
      total.payments += settled
      total.providerAmount += providerAmount
      total.platformAmount += platformAmount
    }
  }
  return [...totals.values()].sort(
    (a, b) => compare(a.network, b.network) || compare(a.blockNumber, b.blockNumber),
  )
}

/**
 * Returns the amounts that each authorization of a payment adds to the provider's sum and the platform's sum, if the chain proves that its transfer
 * happened as promised. A single authorization adds to both sums. If a tab settled under other terms, the provider's part counts in
 * full, and the platform's part is what the platform received.
 */
function movedBy({ payment, halves, state }: AuditedReceipt): Moved[] {
  if (state === 'duplicate' || !payment || !halves) return []
  const { providerAmount, platformAmount } = payment
  return halves
    .filter(({ state, reason }) => state === 'settled' || reason === 'confirming' || reason === 'terms')
    .map(({ half, value, onChain }) => {
      const kept = BigInt(10_000 - (onChain?.lostFeeShare ?? 0))
      if (halves.length === 1)
        return { onChain, providerAmount, platformAmount: (platformAmount * kept) / 10_000n }
      const isProvider = half === 'provider'
      return { onChain, providerAmount: isProvider ? value : 0n, platformAmount: isProvider ? 0n : value }
    })
}

type Moved = Pick<ProviderTotal, 'providerAmount' | 'platformAmount'> & {
  onChain: AuditedHalf['onChain']
}

function getOrCreate<Value>(map: Map<string, Value>, key: string, create: () => Value): Value {
  const known = map.get(key)
  if (known !== undefined) return known
  const created = create()
  map.set(key, created)
  return created
}

function compare(a: string | bigint | Address, b: string | bigint | Address): number {
  return a < b ? -1 : a > b ? 1 : 0
}
