import { encodeSettle, encodeSettleAuthorizations } from '@tollkeeper/sdk/protocol/batchSettlement'
import { feeNonce } from '@tollkeeper/sdk/protocol/challenge'
import { type Address, bytesToHex, type Hex, hexToBytes, keccak256 as keccak, type PublicClient } from 'viem'
import { describe, expect, test } from 'vitest'
import type { BatchShape } from './gas.ts'
import { readGasTokenPrice, sampleCalldata, weiToUsd } from './settlementCost.ts'

// The OP stack's formula since Fjord (specs.optimism.io, protocol/fjord/exec-engine), which the GasPriceOracle applies on chain.
// Our code only creates sample calldata, and asks the GasPriceOracle for the fee.

/**
 * Returns the length of a transaction after FastLZ (level 1) compression. The last literals are counted without a search for
 * matches.
 */
function compressedSize(data: Uint8Array): number {
  const slots = new Uint32Array(8_192)
  const triple = (at: number) => (data[at] ?? 0) | ((data[at + 1] ?? 0) << 8) | ((data[at + 2] ?? 0) << 16)
  const slotOf = (value: number) => (Math.imul(2_654_435_769, value) >>> 19) & 0x1fff
  const remember = (at: number) => {
    slots[slotOf(triple(at))] = at
  }
  const literals = (count: number) => Math.floor(count / 32) * 33 + (count % 32 === 0 ? 0 : (count % 32) + 1)
  const matched = (length: number) => 3 * Math.floor((length - 1) / 262) + ((length - 1) % 262 >= 6 ? 3 : 2)
  const limit = data.length < 13 ? 0 : data.length - 13
  let size = 0
  let anchor = 0
  let at = 2
  while (at < limit) {
    let from = 0
    let isFound = false
    while (at < limit && !isFound) {
      const slot = slotOf(triple(at))
      from = slots[slot] ?? 0
      slots[slot] = at
      isFound = at - from <= 0x1fff && triple(from) === triple(at)
      if (!isFound) at += 1
    }
    if (!isFound || at >= limit) break
    if (at > anchor) size += literals(at - anchor)
    // The first byte that differs also counts, as in the original formula.
    let length = 0
    while (at + 3 + length < limit + 9) {
      length += 1
      if (data[from + 2 + length] !== data[at + 2 + length]) break
    }
    size += matched(length)
    at += length
    remember(at)
    remember(at + 1)
    at += 2
    anchor = at
  }
  return size + literals(data.length - anchor)
}

/** Returns the fee in wei: with the base fee 10^9, the blob base fee 10^7, and their scalars 2 and 3. */
function fjordFee(size: number): bigint {
  const scaled = BigInt(Math.max(100_000_000, 836_500 * size - 42_585_600))
  return (scaled * (16n * 10n ** 9n * 2n + 10n ** 7n * 3n)) / 10n ** 12n
}

const call: Hex = `0x02f901550a758302df1483be21b88304743f94f8${[
  '0e51afb613d764fa61751affd3313c190a86bb870151bd62fd12adb8',
  'e41ef24f3f0000000000000000000000000000000000000000000000',
  '00000000000000006e000000000000000000000000af88d065e77c8c',
  'c2239327c5edb3a432268e5831000000000000000000000000000000',
  '000000000000000000000000000003c1e50000000000000000000000',
  '00000000000000000000000000000000000000000000000000000000',
  '000000000000000000000000000000000000000000000000a0000000',
  '00000000000000000000000000000000000000000000000000000000',
  '148c89ed219d02f1a5be012c689b4f5b731827bebe00000000000000',
  '0000000000c001a033fd89cb37c31b2cba46b6466e040c61fc9b2a36',
  '75a7f5f493ebd5ad77c497f8a07cdf65680e238392693019b4092f61',
  '0222e71b7cec06449cb922b93b6a12744e',
].join('')}`

describe('the fee formula in this test file', () => {
  test.each([
    ['empty data', '0x', 0, 3_203_000n],
    ['a thousand bytes of 1', bytesToHex(new Uint8Array(1_000).fill(1)), 21, 3_203_000n],
    ['a thousand bytes of 0', bytesToHex(new Uint8Array(1_000)), 21, 3_203_000n],
    [
      'an empty transaction',
      '0xdd80808094095e7baea6a6c7c4c2dfeb977efac326af552d878080808080',
      31,
      3_203_000n,
    ],
    ['a call of a contract', call, 202, 4_048_188n],
  ] as const)('default: computes the known size and fee of %s', (_, data, size, fee) => {
    expect(compressedSize(hexToBytes(data))).toBe(size)
    expect(fjordFee(compressedSize(hexToBytes(data)))).toBe(fee)
  })
})

/** Returns the calldata of a batch as the keeper sends it, with various buyers, prices and validity windows. */
function realCalldata({ pairs, singles, payees }: BatchShape): Hex {
  let word = keccak('0x02')
  const next = (bytes: number) => {
    word = keccak(word)
    return word.slice(0, 2 + 2 * bytes) as Hex
  }
  const recipients = Array.from({ length: payees }, () => next(20))
  const batch = {
    token: next(20),
    feeRecipient: next(20),
    batchId: next(32),
    trigger: 1,
    callGasLimit: 120_000n,
  }
  const items = Array.from({ length: pairs + singles }, (_, index) => {
    const price = 5_000n + BigInt(`0x${next(3).slice(2)}`)
    const shared = {
      from: next(20) as Address,
      validAfter: 0n,
      validBefore: 1_795_000_000n + BigInt(`0x${next(2).slice(2)}`),
    }
    const nonce = next(32)
    // The 3 makes s low, as in wallets' signatures.
    const sign = () => `${next(32)}3${next(32).slice(3)}1c` as Hex
    const to = recipients[index % payees] as Address
    const authorization = { ...shared, to, value: price, nonce, signature: sign() }
    const fee = {
      ...shared,
      to: batch.feeRecipient,
      value: price / 20n,
      nonce: feeNonce(nonce),
      signature: sign(),
    }
    return index < pairs ? { authorization, fee } : { authorization }
  })
  if (pairs > 0) return encodeSettle(batch, items).calldata
  return encodeSettleAuthorizations(
    batch,
    items.map(({ authorization }) => authorization),
  ).calldata
}

describe('sampleCalldata', () => {
  test.each([
    { pairs: 0, singles: 285, payees: 5 },
    { pairs: 0, singles: 100, payees: 100 },
    { pairs: 150, singles: 0, payees: 20 },
    { pairs: 10, singles: 2, payees: 3 },
    { pairs: 0, singles: 1, payees: 1 },
  ])(
    'behavior: has a fee within 5% of the fee for a real batch with $pairs pairs and $singles single authorizations',
    (sized) => {
      const shape = { ...sized, hasCode: false }
      const [sample, real] = [sampleCalldata(shape), realCalldata(shape)].map((data) =>
        Number(fjordFee(compressedSize(hexToBytes(data)))),
      ) as [number, number]
      expect(Math.abs(sample / real - 1)).toBeLessThan(0.05)
    },
  )
})

describe('readGasTokenPrice', () => {
  const feed: Address = `0x${'f'.repeat(40)}`
  /** Reads a feed that was updated `age` seconds ago. */
  const read = (answer: bigint, age: bigint) => {
    const client = {
      readContract: async ({ functionName }: { functionName: string }) =>
        functionName === 'decimals' ? 8 : [1n, answer, 0n, 1_000_000n - age, 1n],
      getBlock: async () => ({ timestamp: 1_000_000n }),
    } as unknown as PublicClient
    return readGasTokenPrice(client, { name: 'localhost', priceFeed: feed }, 42n)
  }
  const configured = { usdPerToken: 42n, source: 'configured' }

  test('default: returns the feed’s price in USDC base units, rounded down', async () => {
    expect(await read(300_000_000_099n, 7_200n)).toEqual({ usdPerToken: 3_000_000_000n, source: 'feed' })
  })

  test('behavior: returns the configured price if there is no feed, or its price is 0 or older than two hours', async () => {
    expect(await readGasTokenPrice({} as PublicClient, { name: 'localhost' }, 42n)).toEqual(configured)
    expect(await read(300_000_000_000n, 7_201n)).toEqual(configured)
    expect(await read(0n, 0n)).toEqual(configured)
  })
})

test.each([
  [0n, 0n],
  [1n, 1n],
  [10n ** 12n, 3_000n],
  [10n ** 12n + 1n, 3_001n],
])('default: rounds the cost of %d wei up to %d base units', (wei, expected) => {
  expect(weiToUsd(wei, 3_000_000_000n)).toBe(expected)
})
