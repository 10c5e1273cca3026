import { expect, test } from 'vitest'
import { type PaymentFacts, paymentStatus } from './paymentStatus.ts'

const queued: PaymentFacts = {
  provider: 'open',
  fee: 'open',
  isSettling: false,
  attempts: 0,
  isFailed: false,
  isVoided: false,
}

test.each([
  ['queued', {}, 'verified'],
  ['in a batch', { isSettling: true }, 'settling'],
  ['both halves moved', { provider: 'settled', fee: 'settled' }, 'settled'],
  [
    'both moved, the batch not closed yet',
    { provider: 'settled', fee: 'settled', isSettling: true },
    'settled',
  ],
  ['no fee half', { provider: 'settled', fee: null }, 'settled'],
  ['provider only', { provider: 'settled' }, 'partially_settled'],
  ['fee only', { fee: 'settled' }, 'partially_settled'],
  ['provider only, the fee on its way', { provider: 'settled', isSettling: true }, 'settling'],
  ['provider moved, fee given up', { provider: 'settled', isFailed: true, attempts: 6 }, 'partially_settled'],
  ['failed before', { attempts: 1 }, 'retrying'],
  ['failed before, in a batch again', { attempts: 1, isSettling: true }, 'settling'],
  ['given up', { attempts: 6, isFailed: true }, 'failed'],
  ['cancelled', { provider: 'cancelled', attempts: 1, isFailed: true }, 'failed'],
  [
    'a nonce used for something else is not settled',
    { provider: 'foreign_use', fee: 'settled' },
    'partially_settled',
  ],
  ['voided', { isVoided: true }, 'voided'],
  ['voided, but the provider took its half', { isVoided: true, provider: 'settled' }, 'partially_settled'],
] as const)('args: %s', (_name, change, expected) => {
  expect(paymentStatus({ ...queued, ...change })).toBe(expected)
})
