import { expect, test } from 'vitest'
import { answerOf, codeOfFailure, toRefusal } from './answer.ts'

test.each([
  // How a batch of ours can end.
  ['deferred', 'dependency_unavailable'],
  ['token_paused', 'dependency_unavailable'],
  ['account_blacklisted', 'settlement_failed'],
  // Failures on chain that have a code of the protocol.
  ['insufficient_balance', 'insufficient_balance'],
  ['insufficient_gas_funds', 'insufficient_gas_funds'],
  ['payment_voided', 'payment_voided'],
  ['authorization_cancelled', 'authorization_cancelled'],
])('default: %s is answered as %s', (failure, code) => {
  expect(codeOfFailure(failure)).toBe(code)
})

test('default: each transfer that fails is named, and the first gives the answer its code', () => {
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

test.each([
  [true, 'insufficient_gas_funds'],
  [false, 'dependency_unavailable'],
])('behavior: where nothing was sent and no gas is left is %s, the answer is %s', (isUnfunded, code) => {
  const progress = { state: 'open', feeState: 'open', txHash: null, feeTxHash: null, ended: null } as never
  const watched = [{ half: 0, progress }] as const
  expect(() => answerOf(watched, isUnfunded)).toThrow(expect.objectContaining({ code }))
})
