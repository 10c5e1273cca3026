import { afterAll, beforeAll, expect, test } from 'vitest'
import { createMigratedDatabase } from '../test/support/database.ts'
import { createIndexTables } from '../test/support/indexTables.ts'
import { randomHex } from '../test/support/usdc.ts'
import { readSweptBlock } from './conclusions.ts'
import { type Database, openDatabase } from './database.ts'
import { followIndexHoles } from './indexHoles.ts'
import { readNotifiedBlock } from './notifications.ts'

const chainId = 31337

let sql: Database
beforeAll(async () => {
  sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
  await createIndexTables(sql)
  await sql`
    insert into acted_block (chain_id, block_number, swept_block, notified_block)
    values (${chainId}, 500, 450, 400), (1, 500, 450, 400)`
})
afterAll(() => sql?.end())

const acted = async () => [await readSweptBlock(sql, chainId), await readNotifiedBlock(sql, chainId)]

async function leave(blockNumber: number, reason = 'receipt_unavailable'): Promise<void> {
  await sql`
    insert into indexer.quarantine (chain_id, tx_hash, log_index, reason, detail, block_number, block_hash, block_time)
    values (${chainId}, ${randomHex(32)}, 0, ${reason}, 'no node has it', ${blockNumber}, ${randomHex(32)}, 1)`
}

test('behavior: a hole that is filled after its block was final is acted on from there, once', async () => {
  await leave(120)
  await leave(300)
  await leave(60, 'outcomes_mismatch')
  expect(await followIndexHoles(sql, chainId)).toBe(false)
  expect(await acted()).toEqual([450n, 400n])

  // As the index does it when a node has the receipt at last.
  await sql`delete from indexer.quarantine where block_number in (60, 300)`
  expect(await followIndexHoles(sql, chainId)).toBe(true)
  expect(await acted()).toEqual([299n, 299n])
  expect(await followIndexHoles(sql, chainId)).toBe(false)

  await sql`update acted_block set swept_block = 450, notified_block = 50 where chain_id = ${chainId}`
  await sql`delete from indexer.quarantine`
  expect(await followIndexHoles(sql, chainId)).toBe(true)
  // What wasn't told yet is no further on for that.
  expect(await acted()).toEqual([119n, 50n])
  expect(await readNotifiedBlock(sql, 1)).toBe(400n)
})
