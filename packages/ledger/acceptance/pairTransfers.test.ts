import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { Address, Hex } from 'viem'
import { expect, test } from 'vitest'
import { pairTransfers } from './pairTransfers.ts'

const address = (digit: string): Address => `0x${digit.repeat(40)}`
const platform = address('f')
let nonce = 0n
const transfer = (
  from: string,
  to: string,
  change: Partial<SignedAuthorization> = {},
): SignedAuthorization => ({
  from: address(from),
  to: address(to),
  value: 1n,
  validAfter: 0n,
  validBefore: 100n,
  nonce: `0x${(++nonce).toString(16).padStart(64, '0')}` as Hex,
  signature: `0x${'11'.repeat(65)}`,
  ...change,
})
const isFee = (to: string) => to === platform

test('default: pairs each fee with the transfer before it', () => {
  const transfers = [transfer('1', 'a'), transfer('1', 'f'), transfer('2', 'b'), transfer('2', 'f')]
  expect(pairTransfers(transfers, isFee)).toEqual([null, 0, null, 2])
})

test('behavior: transfers that can’t be paired stay single', () => {
  expect(pairTransfers([transfer('1', 'a'), transfer('2', 'f')], isFee)).toEqual([null, null])
  expect(pairTransfers([transfer('1', 'a'), transfer('1', 'f', { validBefore: 99n })], isFee)).toEqual([
    null,
    null,
  ])
  expect(pairTransfers([transfer('1', 'a'), transfer('1', 'b')], isFee)).toEqual([null, null])
  expect(pairTransfers([transfer('1', 'f'), transfer('1', 'f')], isFee)).toEqual([null, null])
  expect(pairTransfers([transfer('1', 'a'), transfer('1', 'f'), transfer('1', 'f')], isFee)).toEqual([
    null,
    0,
    null,
  ])
  expect(pairTransfers([], isFee)).toEqual([])
})
