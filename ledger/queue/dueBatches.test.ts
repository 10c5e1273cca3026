import type { Address } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { ServedNetwork } from '#chain/servedNetworks'
import { networks } from '#protocol/networks'
import { createMigratedDatabase } from '../../test/support/database.ts'
import { type SeedProvider, seedPayment, seedProvider } from '../../test/support/seedPayments.ts'
import { type Database, openDatabase } from '../store/database.ts'
import { createDueBatches } from './dueBatches.ts'
import { recordFailure } from './failures.ts'
import { defaultTriggers } from './triggers.ts'

// Nothing here is full enough for the cost of settling it to matter, so no chain is asked.
const served = {
  network: networks.localhost,
  token: `0x${'ab'.repeat(20)}` as Address,
} as unknown as ServedNetwork

let sql: Database
let provider: SeedProvider
beforeAll(async () => {
  sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
  provider = await seedProvider(sql)
})
afterAll(() => sql.end())

test('behavior: a payment of high value travels alone on its retries as well, and makes nothing else due', async () => {
  // Of that size while this test's threshold holds.
  const triggers = { ...defaultTriggers, highValue: 1_000_000n }
  const settings = { triggers, priorityFeePerGas: 0n, maxFeePerGas: 10n ** 12n, gasTokenUsd: 3_000_000_000n }
  const { paymentId: great } = await seedPayment(sql, { provider, providerAmount: 1_000_000n })
  const { paymentId: small } = await seedPayment(sql, { provider })
  const { paymentId: young } = await seedPayment(sql, { provider })
  const failedAt = new Date()
  const retriedAt = failedAt.getTime() + 60_000
  const fail = (paymentId: string) => {
    const failure = { paymentId, batchId: null, code: 'insufficient_balance', detail: '', isFinal: false }
    return recordFailure(sql, failure, { now: failedAt, leadMs: triggers.expiryLeadMs })
  }
  const read = createDueBatches(sql, served)
  const dueAt = async (ms: number) =>
    (await read({ settings, from: provider.wallet, now: new Date(ms) })).map(({ lane, payments }) => [
      lane,
      payments.map(({ id }) => id),
    ])

  expect(await dueAt(retriedAt)).toEqual([['high_value', [great]]])
  await fail(great)
  expect(await dueAt(retriedAt - 1)).toEqual([])
  expect(await dueAt(retriedAt)).toEqual([['high_value', [great]]])
  await fail(small)
  expect(await dueAt(retriedAt)).toEqual([
    ['high_value', [great]],
    ['shared', [small, young]],
  ])
})
