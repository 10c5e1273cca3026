import { expect, test } from 'vitest'
import type { HalfState } from '../facts/halves.ts'
import { decideFinalization, type Finalization, type PaymentFacts } from './decideFinalization.ts'

const chain = { safeBlock: 100n, blockTime: 1_000n }
const [live, over] = [1_001n, 1_000n]
const [final, young] = [100n, 101n]

type Case = [
  name: string,
  provider: [HalfState, bigint],
  fee: [HalfState, bigint] | null,
  facts: Partial<PaymentFacts>,
  expected: Finalization,
]

const leave: Finalization = { action: 'leave' }
const cancelled = {
  action: 'fail',
  code: 'authorization_cancelled',
  detail: 'cancelled by the payer',
  ifUnused: false,
} as const
const expired = {
  action: 'fail',
  code: 'authorization_expired',
  detail: 'not settled before validBefore',
} as const

const cases: Case[] = [
  ['it is waiting', ['open', live], ['open', live], {}, leave],
  [
    'it has settled, but the settlement is not final yet',
    ['settled', live],
    ['settled', live],
    { lastBlock: young },
    { action: 'spend' },
  ],
  [
    'it is spent, but its last event is not final yet',
    ['settled', live],
    ['settled', live],
    { lastBlock: young, ended: 'spent' },
    leave,
  ],
  [
    'its settlement is final',
    ['settled', live],
    ['settled', live],
    { lastBlock: final },
    { action: 'finalize', code: null, ifUnused: false },
  ],
  [
    'it has no fee, and its settlement is final',
    ['settled', live],
    null,
    { lastBlock: final },
    { action: 'finalize', code: null, ifUnused: false },
  ],
  [
    'it has settled except for the fee, which can still settle',
    ['settled', live],
    ['open', live],
    { lastBlock: final },
    leave,
  ],
  [
    'it was spent, and its last event is now final',
    ['settled', live],
    ['settled', live],
    { lastBlock: final, ended: 'spent' },
    { action: 'finalize', code: null, ifUnused: false },
  ],
  [
    'it was cancelled and spent, and its last event is now final',
    ['cancelled', live],
    ['open', live],
    { lastBlock: final, ended: 'spent' },
    cancelled,
  ],
  [
    'it is spent, but a reorg reverted one half',
    ['settled', live],
    ['open', live],
    { lastBlock: final, ended: 'spent' },
    { action: 'reopen' },
  ],
  [
    'it is spent, but a reorg reverted both halves',
    ['open', live],
    ['open', live],
    { ended: 'spent' },
    { action: 'reopen' },
  ],
  [
    'it was cancelled, but the cancellation is not final yet',
    ['cancelled', live],
    ['open', live],
    { lastBlock: young },
    { action: 'spend' },
  ],
  ['its cancellation is final', ['cancelled', live], ['open', live], { lastBlock: final }, cancelled],
  [
    'its cancellation is final, and its fee has expired',
    ['cancelled', over],
    ['open', over],
    { lastBlock: final },
    cancelled,
  ],
  [
    'its nonce was used for something else, and that use is final',
    ['foreign_use', live],
    ['open', live],
    { lastBlock: final },
    { ...cancelled, code: 'authorization_used', detail: 'its nonce paid for something else' },
  ],
  [
    'it was cancelled and has failed, but someone else may still send the fee',
    ['cancelled', live],
    ['open', live],
    { lastBlock: final, ended: 'failed' },
    leave,
  ],
  [
    'it was cancelled and has failed, and its fee has expired',
    ['cancelled', over],
    ['open', over],
    { lastBlock: final, ended: 'failed', failureCode: 'authorization_cancelled' },
    { action: 'finalize', code: 'authorization_cancelled', ifUnused: true },
  ],
  [
    'only the fee was cancelled, but the cancellation is not final yet',
    ['settled', live],
    ['cancelled', live],
    { lastBlock: young },
    { action: 'spend' },
  ],
  [
    'only the fee was cancelled and the cancellation is final, which is no failure because the provider was paid',
    ['settled', live],
    ['cancelled', live],
    { lastBlock: final },
    { action: 'finalize', code: 'authorization_cancelled', ifUnused: false },
  ],
  [
    'the fee was cancelled before the provider was paid',
    ['open', live],
    ['cancelled', live],
    { lastBlock: final },
    leave,
  ],
  [
    'only the fee’s nonce was used for something else, and that use is final',
    ['settled', live],
    ['foreign_use', live],
    { lastBlock: final },
    { action: 'finalize', code: 'authorization_used', ifUnused: false },
  ],
  ['it has expired', ['open', over], ['open', over], {}, { ...expired, ifUnused: true }],
  [
    'it expired after its last attempt failed for lack of balance',
    ['open', over],
    ['open', over],
    { failureCode: 'insufficient_balance' },
    { ...expired, code: 'insufficient_balance', ifUnused: true },
  ],
  [
    'it expired after it had failed',
    ['open', over],
    ['open', over],
    { ended: 'failed', failureCode: 'insufficient_balance' },
    { action: 'finalize', code: 'insufficient_balance', ifUnused: true },
  ],
  ['it has failed, and is still valid', ['open', live], ['open', live], { ended: 'failed' }, leave],
  [
    'it has failed, and someone else has settled it',
    ['settled', live],
    ['settled', live],
    { ended: 'failed', lastBlock: final, failureCode: 'insufficient_balance' },
    { action: 'finalize', code: 'insufficient_balance', ifUnused: false },
  ],
  [
    "the provider's half has expired, but not the fee",
    ['open', over],
    ['open', live],
    {},
    { ...expired, ifUnused: true },
  ],
  ["the fee has expired, but not the provider's half", ['open', live], ['open', over], {}, leave],
  [
    'the fee has expired, and the provider was paid',
    ['settled', over],
    ['open', over],
    { lastBlock: final },
    { action: 'finalize', code: 'authorization_expired', ifUnused: true },
  ],
  [
    'the fee expired because the balance was too low',
    ['settled', over],
    ['open', over],
    { lastBlock: final, failureCode: 'insufficient_balance' },
    { action: 'finalize', code: 'insufficient_balance', ifUnused: true },
  ],
  [
    'the fee has expired, and the provider was paid, but the provider’s half is not final yet',
    ['settled', over],
    ['open', over],
    { lastBlock: young },
    { action: 'spend' },
  ],
  ['it was voided', ['open', live], ['open', live], { ended: 'voided' }, leave],
  [
    'it was voided, and its provider has settled it',
    ['settled', live],
    ['open', live],
    { ended: 'voided', lastBlock: young },
    { action: 'unvoid' },
  ],
  [
    'it was voided and has expired',
    ['open', over],
    ['open', over],
    { ended: 'voided' },
    { action: 'wipe', ifUnused: true },
  ],
  [
    'it was voided, and only the fee was sent',
    ['open', over],
    ['settled', over],
    { ended: 'voided', lastBlock: final },
    { action: 'wipe', ifUnused: true },
  ],
]

test.each(cases)('args: decides a payment’s next step if %s', (_, provider, fee, facts, expected) => {
  const half = ([state, validBefore]: [HalfState, bigint]) => ({ state, validBefore })
  const payment: PaymentFacts = {
    provider: half(provider),
    fee: fee && half(fee),
    lastBlock: null,
    ended: null,
    failureCode: null,
    ...facts,
  }
  expect(decideFinalization(payment, chain)).toEqual(expected)
})
