import { expect, test } from 'vitest'
import { claimAs } from '../../../test/support/claim.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { seedChainId, seedPayment, seedProvider } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { readGasCost, sumGasCost } from './gasCosts.ts'
import { insertTransaction, markMined } from './transactions.ts'

const sql = await useDatabase()
const provider = await seedProvider(sql)

/** Stores that a transaction was mined. */
async function mineAt(now: Date, cost: bigint): Promise<void> {
  const { paymentId } = await seedPayment(sql, { provider })
  const { batch } = await claimAs(sql, 'shared', [paymentId])
  if (!batch) throw new Error('Expected a batch')
  const hash = randomHex(32)
  await insertTransaction(sql, {
    hash,
    batchId: batch.id,
    chainId: seedChainId,
    wallet: batch.wallet,
    nonce: 1,
    kind: 'settle',
    raw: '0x00',
    gas: 1n,
    maxFeePerGas: 1n,
    maxPriorityFeePerGas: 0n,
  })
  const block = { blockNumber: 1n, blockHash: randomHex(32) }
  await markMined(sql, hash, { ...block, succeeded: true, cost, now, refused: [] })
}

test('default: counts gas on its UTC day only, from the first to the last millisecond', async () => {
  const at = (time: string) => new Date(`${time}Z`)
  await mineAt(at('2026-11-30T23:59:59.999'), 1n)
  await mineAt(at('2026-12-01T00:00:00.000'), 10n)
  await mineAt(at('2026-12-01T23:59:59.999'), 100n)
  await mineAt(at('2026-12-02T00:00:00.000'), 1_000n)
  const read = (time: string) => readGasCost(sql, seedChainId, at(time))
  expect(await read('2026-11-30T00:00:00.000')).toBe(1n)
  expect(await read('2026-12-01T00:00:00.000')).toBe(110n)
  expect(await read('2026-12-01T23:59:59.999')).toBe(110n)
  expect(await read('2026-12-02T00:00:00.000')).toBe(1_000n)
  expect(await read('2026-12-03T00:00:00.000')).toBe(0n)
  expect(await readGasCost(sql, seedChainId + 1, at('2026-12-01T00:00:00.000'))).toBe(0n)

  expect(await sumGasCost(sql, seedChainId, at('2026-11-30T23:59:59.999'))).toBe(1_111n)
  expect(await sumGasCost(sql, seedChainId, at('2026-12-01T00:00:00.000'))).toBe(1_110n)
  expect(await sumGasCost(sql, seedChainId + 1, at('2026-12-01T00:00:00.000'))).toBe(0n)
})
