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
      ...{ providerId, network, payments: 0, settled: 0, pending: 0, failing: 0 },
      ...{ providerAmount: 0n, platformAmount: 0n, pendingAmount: 0n, waitingAmount: 0n, refundedAmount: 0n },
    }))
    total.payments += 1
    if (state === 'settled') total.settled += 1
    else if (state === 'pending') total.pending += 1
    else if (!reconciled) total.failing += 1
    if (state === 'pending') total.pendingAmount += payment.providerAmount
    const moved = movedBy(receipt)
    total.providerAmount += moved.providerAmount
    total.platformAmount += moved.platformAmount
    for (const { state, value } of receipt.refunds ?? [])
      if (state === 'settled') total.refundedAmount += value
    if (payment.splitter && !receipt.payout) total.waitingAmount += moved.providerAmount
  }
  return [...totals.values()].sort(
    (a, b) => compare(a.providerId, b.providerId) || compare(a.network, b.network),
  )
}

/** Sums per settlement transaction, in the order of the chain. Same `receipts` as {@link sumByProvider}. */
export function sumByBatch(receipts: readonly AuditedReceipt[]): BatchTotal[] {
  const totals = new Map<string, BatchTotal>()
  const counted = new Set<string>()
  for (const { payment, halves, state } of receipts) {
    if (!payment || state === 'duplicate') continue
    const { network } = payment
    const transactions = new Set<BatchTotal>()
    for (const half of halves ?? []) {
      if (!half.onChain || !hasMoved(half.state, half.reason)) continue
      const { transactionHash, blockNumber, blockTime } = half.onChain
      const total = getOrCreate(totals, `${network} ${transactionHash}`, () => ({
        ...{ network, transactionHash, blockNumber, blockTime },
        ...{ payments: 0, authorizations: 0, providerAmount: 0n, platformAmount: 0n },
      }))
      transactions.add(total)
      // All requests of a tab share one key.
      const key = `${network} ${transactionHash} ${half.onChain.logIndex}`
      if (!counted.has(key)) total.authorizations += 1
      counted.add(key)
      const parts = partsOf(half, payment, halves)
      total.providerAmount += parts.providerAmount
      total.platformAmount += parts.platformAmount
    }
    for (const total of transactions) total.payments += 1
  }
  return [...totals.values()].sort(
    (a, b) => compare(a.network, b.network) || compare(a.blockNumber, b.blockNumber),
  )
}

/** The amounts of a payment that the chain proves to have moved as promised. */
function movedBy({ payment, halves, state }: AuditedReceipt): {
  providerAmount: bigint
  platformAmount: bigint
} {
  const moved = { providerAmount: 0n, platformAmount: 0n }
  if (state === 'duplicate' || !payment) return moved
  for (const half of halves ?? []) {
    if (!hasMoved(half.state, half.reason)) continue
    const parts = partsOf(half, payment, halves)
    moved.providerAmount += parts.providerAmount
    moved.platformAmount += parts.platformAmount
  }
  return moved
}

/** The part that a half pays of each sum: a single authorization pays both. */
function partsOf(
  { half, value }: AuditedHalf,
  { providerAmount, platformAmount }: NonNullable<AuditedReceipt['payment']>,
  halves: AuditedReceipt['halves'],
): { providerAmount: bigint; platformAmount: bigint } {
  if (halves?.length === 1) return { providerAmount, platformAmount }
  return half === 'provider'
    ? { providerAmount: value, platformAmount: 0n }
    : { providerAmount: 0n, platformAmount: value }
}

function hasMoved(state: AuditState, reason: string | undefined): boolean {
  return state === 'settled' || reason === 'confirming'
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
