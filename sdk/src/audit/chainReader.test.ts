import fc from 'fast-check'
import { createPublicClient, custom, type Hex, numberToHex } from 'viem'
import { describe, expect, test } from 'vitest'
import { openChainReader } from './chainReader.ts'

/** Creates a chain that has only block times, and counts the blocks that are read. */
function timesOnly(times: readonly number[]) {
  let asked = 0
  const head = times.length - 1
  const client = createPublicClient({
    transport: custom({
      request: async ({ method, params }: { method: string; params?: [Hex | 'latest'] }) => {
        if (method === 'eth_chainId') return numberToHex(8453)
        if (method !== 'eth_getBlockByNumber') throw new Error(`not asked for: ${method}`)
        asked++
        const tag = params?.[0] ?? 'latest'
        const number = tag === 'latest' ? head : Number(tag)
        return {
          number: numberToHex(number),
          hash: numberToHex(number, { size: 32 }),
          timestamp: numberToHex(times[number] ?? 0),
          transactions: [],
        }
      },
    }),
  })
  return { client, asked: () => asked }
}

describe('findBlockBefore', () => {
  test('default: finds the block in a few steps if block times are constant', async () => {
    const chain = timesOnly(Array.from({ length: 1_000_000 }, (_, i) => 1_700_000_000 + 2 * i))
    const reader = await openChainReader(chain.client, { fromBlock: 0n })
    const block = await reader.findBlockBefore(1_701_000_000n)
    expect(block).toBeLessThanOrEqual(500_000n)
    // The result may be two hours too early. With a block every two seconds, that is 3,600 blocks.
    expect(block).toBeGreaterThanOrEqual(500_000n - 3_600n)
    expect(chain.asked()).toBeLessThan(6)
  })

  test('behavior: finds a block at most two hours before the requested time, in few steps, whatever the block times are', async () => {
    const gaps = fc.array(fc.oneof(fc.integer({ min: 0, max: 5 }), fc.integer({ min: 0, max: 100_000 })), {
      minLength: 1,
      maxLength: 500,
    })
    await fc.assert(
      fc.asyncProperty(gaps, fc.double({ min: -0.1, max: 1.1, noNaN: true }), async (differences, share) => {
        let time = 1_700_000_000
        const times = [time, ...differences.map((gap) => (time += gap))]
        const wanted = Math.floor(1_700_000_000 + (time - 1_700_000_000) * share)
        const chain = timesOnly(times)
        const reader = await openChainReader(chain.client, { fromBlock: 0n })
        const found = Number(await reader.findBlockBefore(BigInt(wanted)))
        const next = times[found + 1]
        if (found > 0) expect(times[found]).toBeLessThanOrEqual(wanted)
        // The result may be two hours early. It may be even earlier if the next block is already later than the wanted time.
        const isClose = (times[found] ?? 0) >= wanted - 7200 || next === undefined || next > wanted
        expect(isClose).toBe(true)
        expect(chain.asked()).toBeLessThan(30)
      }),
      { numRuns: 300 },
    )
  })
})
