import type { OpenLine } from '@tollkeeper/ledger/tabs/tabReads'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import type { Address } from 'viem'
import { describe, expect, test } from 'vitest'
import { createOpenTabQueues, sumLines } from './openTabQueue.ts'

const now = new Date('2027-01-15T12:00:00Z')
const ago = (minutes: number) => new Date(now.getTime() - minutes * 60_000)
const split = encodeSplit({ provider: `0x${'a'.repeat(40)}`, providerShare: 9n, platformShare: 1n })
const platform = `0x${'b'.repeat(40)}` as const
const line: OpenLine = {
  split,
  platform,
  charged: 6_000n,
  tabCharged: 6_000n,
  requests: 3,
  firstAt: ago(20),
  openedAt: ago(30),
  expiresAt: now.getTime() / 1000 + 90_000,
}
const times = { least: 5_000n, timeMs: 3_600_000 }

describe('sumLines', () => {
  test('default: returns the provider’s or the platform’s part, the time of the first purchase, and the latest time at which the first tab settles', () => {
    const lines = [line, { ...line, requests: 1, charged: 19n, firstAt: ago(50), openedAt: ago(55) }]
    const waiting = { paymentCount: 4, firstQueuedAt: ago(50), settlesAt: ago(-5) }
    expect(sumLines(lines, 0, times)).toEqual({ ...waiting, amount: 5_400n + 18n })
    expect(sumLines(lines, 1, times)).toEqual({ ...waiting, amount: 600n + 1n })
  })

  test.each([
    ['too small to settle is when it expires', { tabCharged: 4_999n }, new Date(line.expiresAt * 1000)],
    ['that is already due is the time at which it became due', { openedAt: ago(61) }, ago(1)],
    ['that is open is an hour after its opening', {}, ago(-30)],
  ])('behavior: the settlement time of a tab %s', (_, change, settlesAt) => {
    expect(sumLines([{ ...line, ...change }], 0, times)).toMatchObject({ settlesAt })
  })

  test('behavior: a tab that may stay open for a day settles after a day', () => {
    expect(sumLines([line], 0, { ...times, timeMs: 86_400_000 })).toMatchObject({
      settlesAt: ago(30 - 1_440),
    })
  })

  test('behavior: returns null if no line is charged, or if the charge is too small for a fee', () => {
    expect(sumLines([{ ...line, charged: 0n, requests: 0, firstAt: null }], 0, times)).toBeNull()
    expect(sumLines([{ ...line, charged: 9n }], 1, times)).toBeNull()
    expect(sumLines([], 0, times)).toBeNull()
  })
})

describe('createOpenTabQueues', () => {
  const [provider, stranger] = [`0x${'a'.repeat(40)}`, `0x${'c'.repeat(40)}`] as const

  function openQueues() {
    const clock = { ms: 0 }
    const reads: PromiseWithResolvers<OpenLine[]>[] = []
    const ask = createOpenTabQueues({
      readLines: () => {
        const read = Promise.withResolvers<OpenLine[]>()
        reads.push(read)
        return read.promise
      },
      timesOn: () => times,
      clock: () => clock.ms,
    })
    const of = (wallet: Address, half: 0 | 1 = 0) => ask({ chainId: 1, wallet, half, now })
    return { clock, reads, of }
  }

  test('default: returns each wallet’s own part, and the current time as the settlement time of a due tab', async () => {
    const { reads, of } = openQueues()
    const answers = Promise.all([of(provider), of(platform, 1), of(stranger), of(provider, 1)])
    reads[0]?.resolve([{ ...line, openedAt: ago(61) }])
    expect(await answers).toMatchObject([
      { amount: 5_400n, settlesAt: now },
      { amount: 600n, settlesAt: now },
      null,
      null,
    ])
  })

  test('behavior: queries about any wallets share one read for several seconds, and only one read runs at a time', async () => {
    const { clock, reads, of } = openQueues()
    const first = of(provider)
    reads[0]?.resolve([line])
    await first
    for (const wallet of [provider, stranger, platform]) await of(wallet)
    clock.ms = 4_999
    await of(provider)
    expect(reads).toHaveLength(1)
    // The answer comes from the cache while the network is read again.
    clock.ms = 5_000
    expect(await of(provider)).toMatchObject({ paymentCount: 3 })
    expect(await of(stranger)).toBeNull()
    expect(reads).toHaveLength(2)
    // An answer that is ten seconds old isn't served: the caller waits for the read that is already running.
    clock.ms = 10_000
    const late = of(provider)
    expect(reads).toHaveLength(2)
    reads[1]?.resolve([line, line])
    expect(await late).toMatchObject({ paymentCount: 6 })
  })

  test('error: the next query retries a failed read', async () => {
    const { reads, of } = openQueues()
    const failing = of(provider)
    reads[0]?.reject(new Error('away'))
    await expect(failing).rejects.toThrow('away')
    const answer = of(provider)
    reads[1]?.resolve([line])
    expect(await answer).toMatchObject({ paymentCount: 3 })
  })
})
