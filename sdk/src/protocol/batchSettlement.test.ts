import fc from 'fast-check'
import { type Address, decodeFunctionData, encodeFunctionData, type Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/payments.json' with { type: 'json' }
import { batchSettlementAbi } from './abi/batchSettlement.ts'
import {
  decodeOutcomes,
  decodeSettle,
  encodePayment,
  encodeSettle,
  encodeSettleAuthorizations,
  type SettlementItem,
  settlementItems,
  triggerCodes,
  triggerOfCode,
} from './batchSettlement.ts'
import { feeNonce } from './challenge.ts'
import { parsePayload } from './payload.ts'

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

test.each(vectors.payments)(
  'default: encodePayment packs the payment of the test vector "$name"',
  (vector) => {
    const signatures: Hex[] = []
    const packed = encodePayment(itemOf(vector), 0, (signature) => signatures.push(signature) - 1)
    expect(packed).toEqual({
      ...vector.packed,
      head: BigInt(vector.packed.head),
      values: BigInt(vector.packed.values),
    })
    expect(signatures).toEqual(vector.signatures)
  },
)

describe('encodeSettle', () => {
  test.each(vectors.batches)(
    'default: encodes $payments.length payments',
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

  test('behavior: has the same ABI as the contract', () => {
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
    ['nonce (0 represents the derived nonce)', { nonce: `0x${'0'.repeat(64)}` }],
  ])('error: rejects a fee with the wrong %s', (_, change) => {
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

const batchOf = ({ batch }: (typeof vectors.batches)[number]) => ({
  token: batch.token.toLowerCase() as Address,
  feeRecipient: batch.feeRecipient.toLowerCase() as Address,
  batchId: batch.batchId as Hex,
  trigger: batch.trigger,
  callGasLimit: BigInt(batch.callGasLimit),
})

describe('encodeSettleAuthorizations', () => {
  test.each(vectors.authorizationBatches)(
    'default: encodes and decodes $payments.length payments',
    (vector) => {
      const { payments, payees, signatures, calldata } = vector
      const authorizations = payments.map((name) => itemOf(vectorOf(name)).authorization)
      const sweep = {
        factory: vector.sweep.factory.toLowerCase() as Address,
        gasLimit: BigInt(vector.sweep.gasLimit),
        splits: vector.sweep.splits.map(BigInt),
      }
      const encoded = encodeSettleAuthorizations(batchOf(vector), authorizations, sweep)
      expect(encoded.calldata).toBe(calldata)
      expect(encoded.payees).toEqual(payees.map((payee) => payee.toLowerCase()))
      expect(encoded.signatures).toEqual(signatures)
      expect(decodeSettle(calldata as Hex)).toEqual({
        batch: batchOf(vector),
        items: authorizations.map((authorization) => ({ authorization })),
        sweep,
      })
    },
  )

  test('args: encodes a batch without a sweep', () => {
    const batch = batchOf(vectors.batches[0] as (typeof vectors.batches)[number])
    const { authorization } = itemOf(vectorOf('one authorization alone'))
    const { sweep } = decodeSettle(encodeSettleAuthorizations(batch, [authorization]).calldata)
    expect(sweep?.splits).toEqual([])
  })
})

describe('decodeSettle', () => {
  test.each(vectors.batches)(
    'default: decodes $payments.length payments',
    ({ batch, payments, calldata }) => {
      expect(decodeSettle(calldata as Hex)).toEqual({
        batch: {
          token: batch.token.toLowerCase(),
          feeRecipient: batch.feeRecipient.toLowerCase(),
          batchId: batch.batchId,
          trigger: batch.trigger,
          callGasLimit: BigInt(batch.callGasLimit),
        },
        items: payments.map((name) => itemOf(vectorOf(name))),
      })
    },
  )

  const hex = (bytes: number) =>
    fc
      .uint8Array({ minLength: bytes, maxLength: bytes })
      .map((all): Hex => `0x${Buffer.from(all).toString('hex')}`)
  const uint = (bits: bigint) => fc.bigInt({ min: 0n, max: 2n ** bits - 1n })
  // Some signatures of 65 bytes have a v that can be compacted. The others must be sent unchanged.
  const signature = fc.oneof(
    fc.tuple(hex(64), fc.constantFrom('1b', '1c')).map(([rs, v]): Hex => `${rs}${v}`),
    fc
      .uint8Array({ minLength: 65, maxLength: 300 })
      .map((all): Hex => `0x${Buffer.from(all).toString('hex')}`),
  )
  // Only a few recipients, so that several items have the same recipient.
  const recipient = fc.oneof(
    hex(20),
    fc.constantFrom<Address>(`0x${'a1'.repeat(20)}`, `0x${'b2'.repeat(20)}`),
  )
  const item = (feeRecipient: Address) =>
    fc
      .record({
        shared: fc.record({ from: hex(20), validAfter: uint(40n), validBefore: uint(40n) }),
        own: fc.record({ to: recipient, value: uint(64n), nonce: hex(32), signature }),
        fee: fc.option(
          fc.record({ value: fc.bigInt({ min: 1n, max: 2n ** 64n - 1n }), nonce: hex(32), signature }),
          { nil: undefined },
        ),
        isFeeNonceDerived: fc.boolean(),
      })
      .map(({ shared, own, fee, isFeeNonceDerived }): SettlementItem => {
        const authorization = { ...shared, ...own }
        if (!fee) return { authorization }
        const nonce = isFeeNonceDerived ? feeNonce(own.nonce) : fee.nonce
        return { authorization, fee: { ...shared, ...fee, nonce, to: feeRecipient } }
      })

  test('behavior: decodes everything that encodeSettle encodes', () => {
    const batch = fc.record({
      token: hex(20),
      feeRecipient: hex(20),
      batchId: hex(32),
      trigger: fc.integer({ min: 0, max: 255 }),
      callGasLimit: uint(64n),
    })
    const both = batch.chain((one) =>
      fc.tuple(fc.constant(one), fc.array(item(one.feeRecipient), { maxLength: 8 })),
    )
    fc.assert(
      fc.property(both, ([one, items]) => {
        expect(decodeSettle(encodeSettle(one, items).calldata)).toEqual({ batch: one, items })
      }),
    )
  })

  test('behavior: decodes everything that encodeSettleAuthorizations encodes', () => {
    const authorization = fc.record({
      from: hex(20),
      to: recipient,
      value: uint(256n),
      nonce: hex(32),
      signature,
      validAfter: uint(40n),
      validBefore: uint(40n),
    })
    const sweep = fc.record({
      factory: hex(20),
      gasLimit: uint(64n),
      splits: fc.array(uint(256n), { maxLength: 4 }),
    })
    const all = fc.array(authorization, { maxLength: 8 })
    const batch = batchOf(vectors.batches[0] as (typeof vectors.batches)[number])
    fc.assert(
      fc.property(all, sweep, (authorizations, sweep) => {
        const { calldata } = encodeSettleAuthorizations(batch, authorizations, sweep)
        const items = authorizations.map((authorization) => ({ authorization }))
        expect(decodeSettle(calldata)).toEqual({ batch, items, sweep })
      }),
    )
  })

  test('error: rejects a call of a function other than settle, and a reference to a missing payee or signature', () => {
    const name = encodeFunctionData({
      abi: [{ type: 'function', name: 'name', inputs: [], outputs: [], stateMutability: 'view' }],
    })
    expect(() => decodeSettle(name)).toThrow()
    const { batch, calldata } = vectors.batches[0] as (typeof vectors.batches)[number]
    const { args } = decodeFunctionData({ abi: batchSettlementAbi, data: calldata as Hex }) as unknown as {
      args: [never, Address[], never, Hex[]]
    }
    const encode = (payees: Address[], payments: unknown[], signatures: Hex[]) =>
      encodeFunctionData({
        abi: batchSettlementAbi,
        functionName: 'settle',
        args: [
          { ...batch, callGasLimit: BigInt(batch.callGasLimit) } as never,
          payees,
          payments as never,
          signatures,
        ],
      })
    const [first] = args[2] as [object]
    expect(() => decodeSettle(encode([], [first], args[3]))).toThrow(/payee/)
    const zeroWord: Hex = `0x${'0'.repeat(64)}`
    expect(() => decodeSettle(encode(args[1], [{ ...first, r: zeroWord, vs: zeroWord }], []))).toThrow(
      /signature 0/,
    )
  })
})

describe('decodeOutcomes', () => {
  test('default: decodes one byte per payment', () => {
    expect(decodeOutcomes('0x1134200122')).toEqual([
      { provider: 'settled', fee: 'settled' },
      { provider: 'failed', fee: 'skipped' },
      { provider: 'used', fee: 'not_tried' },
      { provider: 'not_tried', fee: 'settled' },
      { provider: 'used', fee: 'used' },
    ])
  })

  test('args: returns an empty list if there are no outcomes', () => {
    expect(decodeOutcomes('0x')).toEqual([])
  })

  test.each(['0x61', '0x1f', '0x1'] as const)('error: rejects %s', (hex) => {
    expect(() => decodeOutcomes(hex)).toThrow(/outcome/)
  })
})

test('behavior: triggerOfCode returns the trigger of a byte, and undefined for an unknown byte', () => {
  expect(triggerCodes).toEqual({ amount: 0, count: 1, time: 2, high_value: 3, expiry: 4, submission: 5 })
  expect(triggerOfCode(3)).toBe('high_value')
  expect(triggerOfCode(200)).toBeUndefined()
})
