import { networks } from '@tollkeeper/sdk/protocol/networks'
import { afterEach, expect, test, vi } from 'vitest'
import { useDatabase } from '../../test/support/database.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { createMetrics } from '../settings/metrics.ts'
import { createReporter } from './report.ts'

const sql = await useDatabase()

afterEach(() => {
  vi.useRealTimers()
})

test('default: what the index could not read is counted by reason, and gone when it was read', async () => {
  const metrics = createMetrics()
  const served = { network: networks.localhost, token: randomHex(20) }
  const quarantined = async () => {
    // A reporter of its own, since one counts no more often than its share of time allows.
    await createReporter({ sql, served, metrics, now: () => new Date() })()
    const { values } = await metrics.indexQuarantined.get()
    return Object.fromEntries(values.map(({ labels, value }) => [labels.reason, value]))
  }
  expect(await quarantined()).toEqual({
    receipt_unavailable: 0,
    unpaired_authorization: 0,
    outcomes_mismatch: 0,
  })
  for (const [chainId, reason] of [
    [31337, 'receipt_unavailable'],
    [31337, 'receipt_unavailable'],
    [31337, 'outcomes_mismatch'],
    [8453, 'receipt_unavailable'],
  ] as const) {
    await sql`
      insert into indexer.quarantine (chain_id, tx_hash, log_index, reason, detail, block_number, block_hash, block_time)
      values (${chainId}, ${randomHex(32)}, 0, ${reason}, 'a test', 1, ${randomHex(32)}, 1)`
  }
  expect(await quarantined()).toEqual({
    receipt_unavailable: 2,
    unpaired_authorization: 0,
    outcomes_mismatch: 1,
  })
  await sql`delete from indexer.quarantine where reason = 'receipt_unavailable'`
  expect(await quarantined()).toMatchObject({ receipt_unavailable: 0, outcomes_mismatch: 1 })
})

test('error: a count that fails waits for its next time like any other', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  let statements = 0
  const down = new Proxy(sql, {
    apply() {
      statements += 1
      vi.advanceTimersByTime(8_000)
      throw new Error('canceling statement due to statement timeout')
    },
  })
  const served = { network: networks.localhost, token: randomHex(20) }
  const report = createReporter({ sql: down, served, metrics: createMetrics(), now: () => new Date() })
  await expect(report()).rejects.toThrow('statement timeout')
  const first = statements
  await report()
  expect(statements).toBe(first)
})
