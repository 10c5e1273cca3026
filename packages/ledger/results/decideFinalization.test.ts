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
  ['waiting', ['open', live], ['open', live], {}, leave],
  ['settled, young', ['settled', live], ['settled', live], { lastBlock: young }, { action: 'spend' }],
  ['spent, not final yet', ['settled', live], ['settled', live], { lastBlock: young, ended: 'spent' }, leave],
  [
    'settled, final',
    ['settled', live],
    ['settled', live],
    { lastBlock: final },
    { action: 'finalize', code: null, ifUnused: false },
  ],
  [
    'settled without a fee',
    ['settled', live],
    null,
    { lastBlock: final },
    { action: 'finalize', code: null, ifUnused: false },
  ],
  [
    'settled in part: the fee is still to come',
    ['settled', live],
    ['open', live],
    { lastBlock: final },
    leave,
  ],
  [
    'spent and final',
    ['settled', live],
    ['settled', live],
    { lastBlock: final, ended: 'spent' },
    { action: 'finalize', code: null, ifUnused: false },
  ],
  [
    'cancelled, spent and final',
    ['cancelled', live],
    ['open', live],
    { lastBlock: final, ended: 'spent' },
    cancelled,
  ],
  [
    'spent, and a reorg reverted one half',
    ['settled', live],
    ['open', live],
    { lastBlock: final, ended: 'spent' },
    { action: 'reopen' },
  ],
  [
    'spent, and a reorg reverted both halves',
    ['open', live],
    ['open', live],
    { ended: 'spent' },
    { action: 'reopen' },
  ],
  ['cancelled, young', ['cancelled', live], ['open', live], { lastBlock: young }, { action: 'spend' }],
  ['cancelled, final', ['cancelled', live], ['open', live], { lastBlock: final }, cancelled],
  [
    'cancelled, final, and the fee expired',
    ['cancelled', over],
    ['open', over],
    { lastBlock: final },
    cancelled,
  ],
  [
    'used for something else, final',
    ['foreign_use', live],
    ['open', live],
    { lastBlock: final },
    { ...cancelled, code: 'authorization_used', detail: 'its nonce paid for something else' },
  ],
  [
    'cancelled and failed: someone else may still send the fee',
    ['cancelled', live],
    ['open', live],
    { lastBlock: final, ended: 'failed' },
    leave,
  ],
  [
    'cancelled and failed, the fee expired',
    ['cancelled', over],
    ['open', over],
    { lastBlock: final, ended: 'failed', failureCode: 'authorization_cancelled' },
    { action: 'finalize', code: 'authorization_cancelled', ifUnused: true },
  ],
  [
    'only the fee cancelled, not final yet',
    ['settled', live],
    ['cancelled', live],
    { lastBlock: young },
    { action: 'spend' },
  ],
  [
    'only the fee cancelled, final: not a failure, because the provider was paid',
    ['settled', live],
    ['cancelled', live],
    { lastBlock: final },
    { action: 'finalize', code: 'authorization_cancelled', ifUnused: false },
  ],
  [
    'the fee cancelled before the provider was paid',
    ['open', live],
    ['cancelled', live],
    { lastBlock: final },
    leave,
  ],
  [
    'only the fee used for something else, final',
    ['settled', live],
    ['foreign_use', live],
    { lastBlock: final },
    { action: 'finalize', code: 'authorization_used', ifUnused: false },
  ],
  ['expired', ['open', over], ['open', over], {}, { ...expired, ifUnused: true }],
  [
    'expired after the last attempt failed for lack of balance',
    ['open', over],
    ['open', over],
    { failureCode: 'insufficient_balance' },
    { ...expired, code: 'insufficient_balance', ifUnused: true },
  ],
  [
    'expired after it had failed',
    ['open', over],
    ['open', over],
    { ended: 'failed', failureCode: 'insufficient_balance' },
    { action: 'finalize', code: 'insufficient_balance', ifUnused: true },
  ],
  ['failed, and still valid', ['open', live], ['open', live], { ended: 'failed' }, leave],
  [
    'failed, and settled by someone else',
    ['settled', live],
    ['settled', live],
    { ended: 'failed', lastBlock: final, failureCode: 'insufficient_balance' },
    { action: 'finalize', code: 'insufficient_balance', ifUnused: false },
  ],
  [
    "the provider's half has expired, the fee hasn't",
    ['open', over],
    ['open', live],
    {},
    { ...expired, ifUnused: true },
  ],
  ["the fee has expired, the provider's half hasn't", ['open', live], ['open', over], {}, leave],
  [
    'the fee expired, the provider was paid',
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
    'the fee expired, the provider was paid just now',
    ['settled', over],
    ['open', over],
    { lastBlock: young },
    { action: 'spend' },
  ],
  ['voided', ['open', live], ['open', live], { ended: 'voided' }, leave],
  [
    'voided, and settled by its provider',
    ['settled', live],
    ['open', live],
    { ended: 'voided', lastBlock: young },
    { action: 'unvoid' },
  ],
  [
    'voided and expired',
    ['open', over],
    ['open', over],
    { ended: 'voided' },
    { action: 'wipe', ifUnused: true },
  ],
  [
    'voided, and only the fee was sent',
    ['open', over],
    ['settled', over],
    { ended: 'voided', lastBlock: final },
    { action: 'wipe', ifUnused: true },
  ],
]

test.each(cases)('args: decides what to do with a payment: %s', (_, provider, fee, facts, expected) => {
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
