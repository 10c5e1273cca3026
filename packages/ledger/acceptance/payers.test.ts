import type { ChainReads, PayerState } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Address } from 'viem'
import { afterEach, expect, test, vi } from 'vitest'
import type { Database } from '../store/database.ts'
import { createPayers } from './payers.ts'

const state: PayerState = {
  blockNumber: 1n,
  balance: 1n,
  hasCode: false,
  isBlacklisted: false,
  isPaused: false,
  isUsed: [false, false],
}

afterEach(() => {
  vi.useRealTimers()
})

test('behavior: balances that were first read together are read again over half of a balance’s lifetime, several balances per call', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'Date'] })
  const began = Date.now()
  const turn = () => new Promise((resolve) => setImmediate(resolve))
  let under = 0
  let most = 0
  let readAt: number[] = []
  const reads: Pick<ChainReads, 'read'> = {
    async read() {
      readAt.push(Date.now() - began)
      under += 1
      most = Math.max(most, under)
      await turn()
      under -= 1
      return state
    },
  }
  let drawn = 0
  const payers = createPayers({} as ServedNetwork, reads, {
    database: {} as Database,
    checkBalance: true,
    caps: { payer: null, newPayer: null },
    balanceTtlMs: 30_000,
    now: Date.now,
    // The multiples of the golden ratio, modulo 1, are evenly spread.
    random: () => (drawn++ * 0.618034) % 1,
  })
  const addresses = Array.from({ length: 600 }, (_, i): Address => `0x${i.toString(16).padStart(40, '0')}`)
  const askAll = () => Promise.all(addresses.map((address) => payers.hasCode(address)))
  await askAll()
  expect(readAt).toHaveLength(600)

  most = 0
  readAt = []
  while (Date.now() < began + 30_000) {
    await askAll()
    await turn()
    vi.advanceTimersByTime(50)
    await turn()
    await turn()
  }
  expect(most).toBeLessThanOrEqual(64)
  expect(readAt[0]).toBeGreaterThanOrEqual(7_500)
  // 600 balances become due over 15 s, 40 per second. The first ones become due a second time before the last ones become due at all.
  for (let second = 8; second < 30; second++) {
    const inSecond = readAt.filter((at) => Math.floor(at / 1_000) === second)
    expect(inSecond.length).toBeGreaterThan(20)
    expect(inSecond.length).toBeLessThan(80)
    // All balances that become due at the same time share one call to the node.
    expect(new Set(inSecond).size).toBeLessThanOrEqual(5)
  }
})
