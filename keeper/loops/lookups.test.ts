import { expect, test } from 'vitest'
import { randomHex } from '../../test/support/usdc.ts'
import { findUnexplained } from './lookups.ts'

test('behavior: a payer’s use of a nonce does not explain that another payer’s authorization with the same nonce was used', () => {
  const nonce = randomHex(32)
  const [one, other] = [randomHex(20), randomHex(20)]
  const used = [
    { paymentId: 'pay_one', from: one, nonce },
    { paymentId: 'pay_other', from: other, nonce },
  ]
  expect([...findUnexplained(used, [{ authorizer: one, nonce }])]).toEqual(['pay_other'])
  expect([...findUnexplained(used, [])]).toEqual(['pay_one', 'pay_other'])
})
