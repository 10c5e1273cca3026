import { expect, test } from 'vitest'
import type { Payment, Timeline } from '../gateway/answers.ts'
import { stepsOf } from './timeline.ts'

const at = (minute: number) => `2026-11-21T13:${String(minute).padStart(2, '0')}:00.000Z`
const hash = (digit: string) => `0x${digit.repeat(64)}`

const waiting: Timeline = {
  paymentId: 'pay_1',
  network: 'base',
  challengedAt: at(0),
  acceptedAt: at(1),
  publishedAt: null,
  voidedAt: null,
  failedAt: null,
  batches: [],
  failures: [],
  mined: null,
  paidOut: null,
  refunds: [],
  confirmedAt: null,
  confirmations: 0,
  confirmationsRequired: 10,
  indexedBlock: 100,
}
const transaction = { kind: 'settle', signedAt: at(5), broadcastAt: at(5), blockNumber: null } as const
const sent: Timeline['batches'] = [
  {
    trigger: 'count',
    claimedAt: at(5),
    closedAt: null,
    result: null,
    transactions: [{ ...transaction, hash: hash('a') }],
  },
]
const mined = { at: at(6), transactionHash: hash('a'), blockNumber: 90 }
const payment = (fields: Partial<Payment>) =>
  ({
    payment_status: 'verified',
    nextAttemptAt: null,
    held_by: null,
    failureCode: null,
    provider: { state: 'open', value: '9500' },
    platform: { state: 'open', value: '500' },
    splitter: null,
    paidOut: null,
    ...fields,
  }) as Payment
const outline = (fields: Partial<Payment>, timeline: Partial<Timeline>) =>
  stepsOf(payment(fields), { ...waiting, ...timeline }).map(({ title, state }) => `${title}: ${state}`)

test('behavior: shows that a tab was opened and closed, instead of a challenge', () => {
  const tab = { openedAt: at(0), closedAt: at(1), requests: 12 } as NonNullable<Payment['tab']>
  expect(outline({ source: 'tab', tab, platform: null }, {})).toEqual([
    ...[
      'Opened: done',
      'Closed: done',
      'Queued: now',
      'Broadcast: ahead',
      'Mined: ahead',
      'Confirmed: ahead',
    ],
  ])
})

test('behavior: shows closing and queueing as later steps of an open tab, and no queueing for a tab that ended unpaid', () => {
  const tab = { isOpen: true, openedAt: at(0), closedAt: null, requests: 12 } as NonNullable<Payment['tab']>
  const ahead = ['Broadcast: ahead', 'Mined: ahead', 'Confirmed: ahead']
  expect(outline({ source: 'tab', tab, platform: null }, {})).toEqual([
    'Opened: done',
    'In use: now',
    'Closed: ahead',
    'Queued: ahead',
    ...ahead,
  ])
  const closed = { ...tab, isOpen: false, closedAt: at(1) }
  const unpaid = { source: 'tab', tab: closed, platform: null } as const
  expect(outline({ ...unpaid, payment_status: 'failed', failureCode: 'tab_too_small' }, {})).toEqual([
    'Opened: done',
    'Closed: done',
    'Failed: failed',
  ])
  expect(outline({ ...unpaid, payment_status: 'voided' }, {})).toEqual([
    'Opened: done',
    'Closed: done',
    'Voided: done',
  ])
})

test('default: shows that a payment is queued, broadcast, mined and confirmed', () => {
  const begun = ['Challenged: done', 'Verified: done']
  expect(outline({}, {})).toEqual([
    ...begun,
    'Queued: now',
    'Broadcast: ahead',
    'Mined: ahead',
    'Confirmed: ahead',
  ])
  expect(outline({ payment_status: 'settling' }, { batches: sent })).toEqual([
    ...begun,
    'Queued: done',
    'Broadcast: now',
    'Mined: ahead',
    'Confirmed: ahead',
  ])
  const settled = {
    payment_status: 'settled',
    platform: { state: 'settled', value: '500' },
  } as Partial<Payment>
  expect(outline(settled, { batches: sent, mined, confirmations: 3 }).slice(3)).toEqual([
    'Broadcast: done',
    'Mined: done',
    'Confirmed: now',
  ])
  expect(outline(settled, { batches: sent, mined, confirmedAt: at(7) }).slice(3)).toEqual([
    'Broadcast: done',
    'Mined: done',
    'Confirmed: done',
  ])
})

test('behavior: shows why a payment waits for gas', () => {
  expect(outline({ held_by: 'gas_cost' }, {}).slice(2)).toEqual([
    'Queued: done',
    'Waits for gas: now',
    'Broadcast: ahead',
    'Mined: ahead',
    'Confirmed: ahead',
  ])
})

test('behavior: shows neither a challenge nor a trigger for a payment through the facilitator', () => {
  expect(outline({ source: 'facilitator', platform: null }, {})).toEqual([
    'Verified: now',
    'Broadcast: ahead',
    'Mined: ahead',
    'Confirmed: ahead',
  ])
})

test('behavior: shows a failed attempt in chronological order, and the next attempt as a later step', () => {
  const failure = {
    attempt: 1,
    code: 'insufficient_balance',
    detail: '',
    failedAt: at(5),
    nextAttemptAt: at(6),
  }
  const steps = stepsOf(payment({ payment_status: 'retrying', nextAttemptAt: at(6) }), {
    ...waiting,
    failures: [failure],
  })
  expect(steps.slice(3).map(({ title, state, detail }) => [title, state, detail])).toEqual([
    ['Attempt 1 failed', 'failed', 'Insufficient USDC balance'],
    ['Next attempt', 'ahead', undefined],
    ['Broadcast', 'ahead', undefined],
    ['Mined', 'ahead', undefined],
    ['Confirmed', 'ahead', undefined],
  ])
})

test('behavior: shows that a payment was mined, without a broadcast, if another keeper settled it', () => {
  const steps = stepsOf(payment({ payment_status: 'partially_settled' }), { ...waiting, mined })
  expect(steps.map(({ title }) => title)).toEqual(['Challenged', 'Verified', 'Queued', 'Mined', 'Confirmed'])
  expect(steps[3]?.detail).toBe(
    'In block 90. Another keeper settled the payment. The platform’s part has not moved yet.',
  )
})

test('behavior: shows the replacement if it was mined instead of the first transaction', () => {
  const transactions = [
    { ...transaction, hash: hash('a') },
    { ...transaction, hash: hash('b'), kind: 'replacement' as const, signedAt: at(6) },
  ]
  const [batch] = sent
  const steps = stepsOf(payment({ payment_status: 'settled' }), {
    ...waiting,
    batches: batch ? [{ ...batch, transactions }] : [],
    mined: { ...mined, transactionHash: hash('b') },
  })
  expect(steps[3]).toMatchObject({ at: at(5), txHash: hash('b'), detail: 'Trigger: count, replaced once.' })
})

test.each([
  ['voided', { voidedAt: at(2) }, 'Voided: done'],
  ['failed', { failedAt: at(9) }, 'Failed: failed'],
] as const)(
  'behavior: ends with a step that is named like the status %s',
  (payment_status, timeline, last) => {
    expect(outline({ payment_status }, timeline).at(-1)).toBe(last)
  },
)

test('behavior: ends with the payout for a payment into a splitter, and shows that the platform’s part still waits', () => {
  const split = {
    payment_status: 'settled',
    provider: { state: 'settled', value: '10000' },
    platform: null,
    splitter: `0x${'5'.repeat(40)}`,
  } as Partial<Payment>
  const last = (fields: Partial<Payment>) =>
    stepsOf(payment({ ...split, ...fields }), { ...waiting, batches: sent, mined, confirmedAt: at(7) }).at(-1)
  expect(last({})).toMatchObject({ title: 'Paid out', state: 'ahead', at: null })
  const paidOut = { at: at(8), transactionHash: hash('c'), blockNumber: 95, platformPaid: true }
  expect(last({ paidOut })).toMatchObject({
    state: 'done',
    at: at(8),
    txHash: hash('c'),
    detail: 'In block 95.',
  })
  expect(last({ paidOut: { ...paidOut, platformPaid: false } })?.detail).toMatch(/platform’s part waits/)
})
