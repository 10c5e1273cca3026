import { expect, test } from 'vitest'
import { address, word } from '../../test/audited.ts'
import { maxTimeoutSeconds } from '../protocol/challenge.ts'
import { authorizationOf } from './payment.ts'

const now = 1_800_000_000.9
const offer = {
  amount: 10_000n,
  payTo: address('1'),
  maxTimeoutSeconds: 60,
  nonce: word('2'),
  description: 'Weather',
}

test('default: signs the price for the payee, for as long as it asks for', () => {
  expect(authorizationOf(offer, address('a'), now)).toEqual({
    from: address('a'),
    to: address('1'),
    value: 10_000n,
    validAfter: 0n,
    validBefore: 1_800_000_060n,
    nonce: word('2'),
  })
})

test.each([
  ['an end of its own', { validBefore: 1_800_000_030 }, 1_800_000_030n],
  ['a year', { maxTimeoutSeconds: 31_536_000 }, BigInt(Math.floor(now + maxTimeoutSeconds))],
  ['an end in years', { validBefore: 2_000_000_000 }, BigInt(Math.floor(now + maxTimeoutSeconds))],
])('args: an offer that asks for %s', (_, change, validBefore) => {
  expect(authorizationOf({ ...offer, ...change }, address('a'), now)).toMatchObject({ validBefore })
})
