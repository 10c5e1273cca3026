import { networks } from '@tollkeeper/sdk/protocol/networks'
import { afterEach, expect, test, vi } from 'vitest'
import { useDatabase } from '../../test/support/database.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { createMetrics } from '../settings/metrics.ts'
import { createReporter } from './report.ts'

const sql = await useDatabase()
const settings = { gasAllowance: 1_000_000n }

afterEach(() => {
  vi.useRealTimers()
})

test('default: index gaps are counted by reason, and no longer counted once they are read', async () => {
  const metrics = createMetrics()
  const served = { network: networks.localhost, token: randomHex(20) }
  const gaps = async () => {
    // Uses a new reporter each time, because a reporter limits how often it counts.
    await createReporter({ sql, served, settings, metrics, now: () => new Date() })()
    expect((await metrics.refundGasLeft.get()).values).toMatchObject([{ value: 1 }])
    const { values } = await metrics.indexGaps.get()
    return Object.fromEntries(values.map(({ labels, value }) => [labels.reason, value]))
  }
  expect(await gaps()).toEqual({
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
      insert into indexer.index_gap (chain_id, tx_hash, log_index, reason, detail, block_number, block_hash, block_time)
      values (${chainId}, ${randomHex(32)}, 0, ${reason}, 'a test', 1, ${randomHex(32)}, 1)`
  }
  expect(await gaps()).toEqual({
    receipt_unavailable: 2,
    unpaired_authorization: 0,
    outcomes_mismatch: 1,
  })
  await sql`delete from indexer.index_gap where reason = 'receipt_unavailable'`
  expect(await gaps()).toMatchObject({ receipt_unavailable: 0, outcomes_mismatch: 1 })
})

test('error: after a failed count, the next count is delayed as long as after a successful count', async () => {
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
  const report = createReporter({
    sql: down,
    served,
    settings,
    metrics: createMetrics(),
    now: () => new Date(),
  })
  await expect(report()).rejects.toThrow('statement timeout')
  const first = statements
  await report()
  expect(statements).toBe(first)
})

test('default: the counter of reorgs starts at 0, so that the first reorg triggers its alert', async () => {
  const metrics = createMetrics()
  const served = { network: networks.localhost, token: randomHex(20) }
  createReporter({ sql, served, settings, metrics, now: () => new Date() })
  expect((await metrics.reorgs.get()).values).toEqual([{ labels: { network: 'localhost' }, value: 0 }])
})
