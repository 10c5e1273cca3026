import { expect, test } from 'vitest'
import { isFinal } from './final.ts'

const settled = {
  payment: { payment_status: 'settled', splitter: null, paidOut: null } as const,
  timeline: { confirmedAt: '2026-11-29T10:00:00Z' },
  refunds: null,
}

test('behavior: treats a confirmed payment as final', () => {
  expect(isFinal(settled)).toBe(true)
  expect(isFinal({ ...settled, timeline: { confirmedAt: null } })).toBe(false)
})

test('behavior: treats a payment into a splitter as final once the splitter has paid it out', () => {
  const payment = { ...settled.payment, splitter: `0x${'5'.repeat(40)}` }
  const paidOut = {
    at: '2026-11-29T10:00:00Z',
    transactionHash: `0x${'a'.repeat(64)}`,
    blockNumber: 7,
    platformPaid: true,
  }
  expect(isFinal({ ...settled, payment })).toBe(false)
  expect(isFinal({ ...settled, payment: { ...payment, paidOut } })).toBe(true)
})

test.each(['verified', 'settling', 'retrying', 'partially_settled'] as const)(
  'behavior: does not treat a payment with the status %s as final',
  (payment_status) => {
    expect(isFinal({ ...settled, payment: { ...settled.payment, payment_status } })).toBe(false)
  },
)

test('behavior: does not treat a payment with a pending refund as final', () => {
  const refunding = (refund_status: 'settling' | 'settled') =>
    isFinal({ ...settled, refunds: { refunds: [{ refund_status }] } })
  expect([refunding('settling'), refunding('settled')]).toEqual([false, true])
})
