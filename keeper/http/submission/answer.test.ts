import { expect, test } from 'vitest'
import type { SettlementVerdict } from '../settleNow/verdict.ts'
import { answerOf, codeOfFailure, toRefusal } from './answer.ts'

test.each([
  // Results of our batches.
  ['deferred', 'dependency_unavailable'],
  ['token_paused', 'dependency_unavailable'],
  ['account_blacklisted', 'settlement_failed'],
  // Failures on chain that have a code of the protocol.
  ['insufficient_balance', 'insufficient_balance'],
  ['insufficient_gas_funds', 'insufficient_gas_funds'],
  ['payment_voided', 'payment_voided'],
  ['authorization_cancelled', 'authorization_cancelled'],
])('default: answers the failure %s with the code %s', (failure, code) => {
  expect(codeOfFailure(failure)).toBe(code)
})

test('default: names each transfer that fails, and answers with the code of the first failure', () => {
  const refusal = toRefusal([
    { index: 1, code: 'insufficient_balance', detail: 'too little' },
    { index: 3, code: 'authorization_used', detail: 'used' },
  ])
  expect(refusal).toMatchObject({
    code: 'insufficient_balance',
    message: 'too little',
    details: { transfer: 1, failures: [{ transfer: 1 }, { transfer: 3, code: 'authorization_used' }] },
  })
  expect(toRefusal([])).toBeUndefined()
})

const hash = `0x${'c'.repeat(64)}` as const
const queued: SettlementVerdict = {
  status: 'queued',
  state: 'open',
  txHash: null,
  isOpen: true,
  fault: null,
  failureCode: null,
}
const sent: SettlementVerdict = { ...queued, status: 'sent', txHash: hash }
const settled: SettlementVerdict = { ...queued, status: 'settled', state: 'settled', txHash: hash }
const voided: SettlementVerdict = { ...queued, status: 'failed', isOpen: false, fault: 'payment_voided' }
const failed: SettlementVerdict = {
  ...queued,
  status: 'failed',
  isOpen: false,
  failureCode: 'insufficient_balance',
}
const blamed = [{ index: 1, code: 'authorization_used', detail: 'used' }] as const

test('default: returns the transaction of a submission that is sent or settled', () => {
  expect(answerOf([settled, sent])).toEqual({
    txHash: hash,
    transfers: [
      { status: 'settled', txHash: hash },
      { status: 'sent', txHash: hash },
    ],
  })
})

test.each([
  ['waits', [sent, queued], {}, 'dependency_unavailable'],
  ['waits, and no wallet has gas money', [queued, queued], { isUnfunded: true }, 'insufficient_gas_funds'],
  ['may still settle', [{ ...failed, status: 'doubtful' }, voided], { blamed }, 'settlement_pending'],
  ['failed because of a transfer that the chain refuses', [failed, failed], { blamed }, 'authorization_used'],
  ['failed because of a transfer that was voided', [failed, voided], {}, 'payment_voided'],
  ['failed, although the chain refuses no transfer', [failed, failed], {}, 'insufficient_balance'],
  [
    'failed because nothing could be sent',
    [{ ...failed, failureCode: 'deferred' }],
    {},
    'dependency_unavailable',
  ],
  ['is released', [settled, { ...queued, status: 'released' }], {}, 'dependency_unavailable'],
] as const)(
  'error: answers with the reason if a payment of the submission %s',
  (_, verdicts, options, code) => {
    expect(() => answerOf(verdicts, options)).toThrow(expect.objectContaining({ code }))
  },
)
