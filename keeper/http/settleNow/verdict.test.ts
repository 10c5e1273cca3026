import type { SettlementProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import { expect, test } from 'vitest'
import { describeFailure, type VerdictOf, verdictOf } from './verdict.ts'

const key = `0x${'a'.repeat(64)}` as const
const other = `0x${'b'.repeat(64)}` as const
const hash = `0x${'c'.repeat(64)}` as const
const feeHash = `0x${'d'.repeat(64)}` as const

/** A payment of a submission that waits for its transaction. */
const waiting: SettlementProgress = {
  paymentId: 'pay_1',
  source: 'submission',
  state: 'open',
  feeState: 'open',
  stage: 'waiting',
  submission: key,
  ended: null,
  isLost: false,
  isFinal: false,
  attempts: 0,
  failureCode: null,
  txHash: null,
  feeTxHash: null,
  logIndex: null,
  batchId: null,
}
const over = { stage: null, submission: null } as const
const settled = { ...over, state: 'settled', feeState: 'settled', ended: 'spent', txHash: hash } as const
const feeUsed = { ...settled, feeState: 'cancelled', feeTxHash: feeHash } as const
const voided = { ...over, ended: 'voided', isLost: true } as const
const failed = { ...over, ended: 'failed', failureCode: 'insufficient_balance' } as const

const fee: VerdictOf = { half: 1, submission: key }
const alone: VerdictOf = { submission: null }

test.each([
  ['waits', {}, {}, 'queued'],
  ['is in a transaction in flight', { stage: 'sent', txHash: hash }, {}, 'sent'],
  ['has settled', settled, {}, 'settled'],
  ['has settled, with its fee', settled, fee, 'settled'],
  ['has settled, and its fee waits', { ...settled, feeState: 'open' }, fee, 'settled'],
  ['has settled, and its fee was cancelled', feeUsed, fee, 'doubtful'],
  ['has settled, and its fee was cancelled, which is final', { ...feeUsed, isFinal: true }, fee, 'failed'],
  ['was cancelled', { state: 'cancelled' }, {}, 'doubtful'],
  ['was cancelled and voided', { ...voided, state: 'cancelled' }, {}, 'failed'],
  ['failed in a transaction in flight', { ...failed, txHash: hash }, {}, 'doubtful'],
  ['failed', { ...failed, isLost: true }, {}, 'failed'],
  ['was voided', voided, {}, 'failed'],
  ['has expired', { isLost: true }, {}, 'failed'],
  ['waits as part of another submission', { submission: other }, {}, 'released'],
  ['waits by itself because its submission failed', { submission: null }, {}, 'released'],
  ['waits by itself, as requested', { submission: null }, alone, 'queued'],
  ['is claimed by another submission', { stage: 'claimed', submission: other }, {}, 'queued'],
] as const)('default: judges an authorization that %s', (_, change, of, status) => {
  expect(verdictOf({ ...waiting, ...change }, { submission: key, ...of }).status).toBe(status)
})

test('default: a payment that could not be read counts as queued', () => {
  expect(verdictOf(undefined)).toMatchObject({ status: 'queued', state: 'open', txHash: null, isOpen: false })
})

test('behavior: reports the transaction of each authorization', () => {
  const progress = { ...waiting, ...feeUsed }
  expect([verdictOf(progress).txHash, verdictOf(progress, { half: 1 }).txHash]).toEqual([hash, feeHash])
})

test.each([
  ['was cancelled', { ...voided, state: 'cancelled' }, 'authorization_cancelled'],
  ['was used elsewhere', { ...over, state: 'foreign_use', isLost: true }, 'authorization_used'],
  ['was voided', voided, 'payment_voided'],
  ['failed on chain', { ...failed, isLost: true }, 'insufficient_balance'],
  ['failed for an unknown reason', { ...failed, failureCode: null, isLost: true }, 'settlement_failed'],
  ['has expired', { isLost: true }, 'authorization_expired'],
] as const)('error: names the reason for the refusal of a payment that %s', (_, change, code) => {
  const { code: told, message } = describeFailure(verdictOf({ ...waiting, ...change }))
  expect([told, message.length > 0]).toEqual([code, true])
})
