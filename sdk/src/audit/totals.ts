import type { Address } from 'viem'
import type { AuditedHalf, AuditedReceipt, AuditState, BatchTotal, ProviderTotal } from './report.ts'

export function countStates(receipts: readonly AuditedReceipt[]): Record<AuditState, number> {
  const states = { settled: 0, pending: 0, mismatch: 0, missing: 0, cancelled: 0, forged: 0, duplicate: 0 }
  for (const { state } of receipts) states[state] += 1
  return states
}

/**
 * Sums per provider and network.
 *
 * @param receipts one for each payment: the latest.
 */
export function sumByProvider(receipts: readonly AuditedReceipt[]): ProviderTotal[] {
  const totals = new Map<string, ProviderTotal>()
  for (const receipt of receipts) {
    const { payment, state, reconciled } = receipt
    if (!payment) continue
    const { providerId, network } = payment
    const total = getOrCreate(totals, `${network} ${providerId}`, () => ({
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
    }))
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
  return [...totals.values()].sort(
    (a, b) => compare(a.providerId, b.providerId) || compare(a.network, b.network),
  )
}

/** Sums per settlement transaction, in the order of the chain. Same `receipts` as {@link sumByProvider}. */
export function sumByBatch(receipts: readonly AuditedReceipt[]): BatchTotal[] {
  const totals = new Map<string, BatchTotal>()
  const counted = new Set<string>()
  for (const receipt of receipts) {
    if (!receipt.payment) continue
    const { network } = receipt.payment
    const transactions = new Set<BatchTotal>()
    for (const { onChain, providerAmount, platformAmount } of movedBy(receipt)) {
      if (!onChain) continue
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
      transactions.add(total)
      // All requests of a tab share one.
      const key = `${network} ${transactionHash} ${logIndex}`
      if (!counted.has(key)) total.authorizations += 1
      counted.add(key)
      total.providerAmount += providerAmount
      total.platformAmount += platformAmount
    }
    for (const total of transactions) total.payments += 1
  }
  return [...totals.values()].sort(
    (a, b) => compare(a.network, b.network) || compare(a.blockNumber, b.blockNumber),
  )
}

/**
 * What each half of a payment paid of both sums, if the chain proves that it moved as promised: a single one pays both. A tab that moved
 * under other terms paid the provider, and the platform what is left of its part.
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
