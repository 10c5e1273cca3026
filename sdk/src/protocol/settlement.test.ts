import { type Address, decodeFunctionData, type Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/payments.json' with { type: 'json' }
import { batchSettlementAbi } from './abi/batchSettlement.ts'
import { parsePayload } from './payload.ts'
import {
  decodeOutcomes,
  encodePayment,
  encodeSettle,
  type SettlementItem,
  settlementItems,
  triggerCodes,
  triggerOfCode,
} from './settlement.ts'

function itemOf({ authorization, fee }: (typeof vectors.payments)[number]): SettlementItem {
  return {
    authorization: parsePayload(authorization.payload),
    ...(fee && { fee: parsePayload(fee.payload) }),
  }
}

function vectorOf(name: string) {
  const vector = vectors.payments.find((payment) => payment.name === name)
  if (!vector) throw new Error(`No payment is named ${name}`)
  return vector
}

test.each(vectors.payments)('default: encodePayment, $name', (vector) => {
  const signatures: Hex[] = []
  const packed = encodePayment(itemOf(vector), 0, (signature) => signatures.push(signature) - 1)
  expect(packed).toEqual({
    ...vector.packed,
    head: BigInt(vector.packed.head),
    values: BigInt(vector.packed.values),
  })
  expect(signatures).toEqual(vector.signatures)
})

describe('encodeSettle', () => {
  test.each(vectors.batches)(
    'default: $payments.length payments',
    ({ batch, payments, payees, signatures, calldata }) => {
      const encoded = encodeSettle(
        {
          token: batch.token as Address,
          feeRecipient: batch.feeRecipient.toLowerCase() as Address,
          batchId: batch.batchId as Hex,
          trigger: batch.trigger,
          callGasLimit: BigInt(batch.callGasLimit),
        },
        payments.map((name) => itemOf(vectorOf(name))),
      )
      expect(encoded.calldata).toBe(calldata)
      expect(encoded.payees).toEqual(payees.map((payee) => payee.toLowerCase()))
      expect(encoded.signatures).toEqual(signatures)
    },
  )

  test('behavior: the ABI is the contract’s', () => {
    const { functionName } = decodeFunctionData({
      abi: batchSettlementAbi,
      data: vectors.batches[0]?.calldata as Hex,
    })
    expect(functionName).toBe('settle')
  })

  test.each([
    ['recipient', { to: `0x${'1'.repeat(40)}` }],
    ['payer', { from: `0x${'1'.repeat(40)}` }],
    ['window', { validBefore: 7n }],
    ['value', { value: 0n }],
    ['nonce that the contract would take for a derived one', { nonce: `0x${'0'.repeat(64)}` }],
  ])('error: a fee with another %s', (_, change) => {
    const { authorization, fee } = itemOf(vectorOf('bound nonces'))
    if (!fee) throw new Error('The vector has a fee')
    const batch = {
      token: `0x${'2'.repeat(40)}`,
      feeRecipient: fee.to,
      batchId: `0x${'3'.repeat(64)}`,
      trigger: 0,
      callGasLimit: 1n,
    } as const
    const other = { ...fee, ...change } as typeof fee
    expect(() => encodeSettle(batch, [{ authorization, fee: other }])).toThrow(/Item 0/)
    expect(settlementItems(authorization, other, fee.to)).toEqual([
      { authorization },
      { authorization: other },
    ])
    expect(settlementItems(authorization, fee, fee.to)).toEqual([{ authorization, fee }])
  })
})

describe('decodeOutcomes', () => {
  test('default', () => {
    expect(decodeOutcomes('0x1134200122')).toEqual([
      { provider: 'settled', fee: 'settled' },
      { provider: 'failed', fee: 'skipped' },
      { provider: 'used', fee: 'not_tried' },
      { provider: 'not_tried', fee: 'settled' },
      { provider: 'used', fee: 'used' },
    ])
  })

  test('args: none', () => {
    expect(decodeOutcomes('0x')).toEqual([])
  })

  test.each(['0x51', '0x1f', '0x1'] as const)('error: %s', (hex) => {
    expect(() => decodeOutcomes(hex)).toThrow(/outcome/)
  })
})

test('behavior: trigger codes, and a stranger’s byte', () => {
  expect(triggerCodes).toEqual({ amount: 0, count: 1, time: 2, high_value: 3, expiry: 4, direct: 5 })
  expect(triggerOfCode(3)).toBe('high_value')
  expect(triggerOfCode(200)).toBeUndefined()
})
