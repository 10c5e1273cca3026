import { describe, expect, test } from 'vitest'
import { address, transaction, word } from '../../test/audited.ts'
import type { AuditedHalf, AuditedReceipt } from './report.ts'
import { countStates, sumByBatch, sumByProvider } from './totals.ts'

const onChain = {
  from: address('a'),
  transactionHash: transaction,
  blockNumber: 90n,
  blockHash: transaction,
  blockTime: 900n,
  logIndex: 4,
}
const halfOf = (half: AuditedHalf['half'], value: bigint, logIndex: number): AuditedHalf => ({
  half,
  state: 'settled',
  to: address('1'),
  value,
  nonce: word('1'),
  onChain: { ...onChain, logIndex },
})
const settled: AuditedReceipt = {
  position: 0,
  state: 'settled',
  reconciled: true,
  detail: '',
  payment: {
    paymentId: 'pay_1',
    providerId: 'prov_1',
    endpointId: 'ep_1',
    network: 'base',
    payer: address('a'),
    timestamp: '2026-11-21T12:00:00.000Z',
    status: 'settled' as const,
    providerAmount: 9_500n,
    platformAmount: 500n,
    transactionHash: transaction,
  },
  halves: [halfOf('provider', 9_500n, 4), halfOf('platform', 500n, 6)],
}
const { halves: _, ...withoutHalves } = settled
const pending: AuditedReceipt = { ...withoutHalves, position: 1, state: 'pending' }
const duplicate: AuditedReceipt = { ...settled, position: 2, state: 'duplicate', reconciled: false }

describe('sumByProvider', () => {
  test('default: sums the amounts of settled payments, and the amounts that pending payments promise', () => {
    expect(sumByProvider([settled, pending])).toMatchObject([
      {
        providerId: 'prov_1',
        payments: 2,
        settled: 1,
        pending: 1,
        failing: 0,
        providerAmount: 9_500n,
        platformAmount: 500n,
        pendingAmount: 9_500n,
      },
    ])
  })

  test('behavior: does not add the amount of a duplicate', () => {
    expect(sumByProvider([settled, duplicate])).toMatchObject([
      { payments: 2, settled: 1, failing: 1, providerAmount: 9_500n, platformAmount: 500n },
    ])
  })

  test('behavior: sums only refunds that have settled', () => {
    const refund = { number: 1, from: address('1'), value: 300n, nonce: word('2') }
    const refunds = [
      { ...refund, state: 'settled' as const },
      { ...refund, number: 2, value: 5n, state: 'pending' as const },
    ]
    expect(sumByProvider([{ ...settled, refunds }])).toMatchObject([{ refundedAmount: 300n }])
  })

  test('behavior: shows the amount that waits in a splitter until its payout', () => {
    const payment = { ...(settled.payment as NonNullable<AuditedReceipt['payment']>), splitter: address('5') }
    const payout = { transactionHash: transaction, blockNumber: 91n, logIndex: 0, isPlatformPaid: true }
    expect(sumByProvider([{ ...settled, payment }])).toMatchObject([{ waitingAmount: 9_500n }])
    expect(sumByProvider([{ ...settled, payment, payout }])).toMatchObject([{ waitingAmount: 0n }])
  })
})

test('default: sumByBatch sums a transaction’s payments, and counts each authorization once', () => {
  const [half] = settled.halves as [AuditedHalf, AuditedHalf]
  // Two requests on one tab settle with the same authorization.
  const [one, other] = [0, 1].map((position) => ({ ...settled, position, halves: [half] as [AuditedHalf] }))
  expect(sumByBatch([one, other] as AuditedReceipt[])).toMatchObject([
    { transactionHash: transaction, payments: 2, authorizations: 1, providerAmount: 19_000n },
  ])
  expect(sumByBatch([settled, duplicate, pending])).toMatchObject([{ payments: 1, authorizations: 2 }])
})

test('default: countStates counts the receipts in each state', () => {
  expect(countStates([settled, pending, duplicate, duplicate])).toMatchObject({
    settled: 1,
    pending: 1,
    duplicate: 2,
    missing: 0,
  })
})
