import { createLogger } from '@tollkeeper/runtime/log'
import type { Hex } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { backdate, withinMonth } from '../../../test/support/backdate.ts'
import { countStatements } from '../../../test/support/countStatements.ts'
import {
  call,
  openShop,
  pay,
  type Shop,
  startGateway,
  type TestGateway,
} from '../../../test/support/gateway.ts'
import { setIndexedHead, withoutIndex } from '../../../test/support/indexTables.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { readRecordState } from '../facts/recordState.ts'
import { createRecorder } from './recorder.ts'

const { month, time, ageMs } = withinMonth()
let gateway: TestGateway
let shop: Shop
beforeAll(async () => {
  gateway = await startGateway()
  shop = await openShop(gateway.app)
  // The provider's monthly statement lists only networks on which it has accepted payments, so make a payment.
  await backdate(gateway.database, await pay(gateway, shop), ageMs)
})
afterAll(() => gateway?.close())

const ask = (method: string, ...params: unknown[]) =>
  gateway.served.client.request({ method, params } as never) as Promise<unknown>

/** Adds someone else's batch that paid the shop to the index, like Ponder: in the newest block, but with the block time `time`. */
async function indexBatch(sequence: number, txHash: Hex): Promise<void> {
  const { database, served } = gateway
  const { number, hash } = await served.client.getBlock()
  const blockTime = BigInt(Math.floor(time.getTime() / 1_000))
  const place = {
    chain_id: served.network.chainId,
    tx_hash: txHash,
    log_index: 7,
    sequence,
    block_number: number,
  }
  await database`
    insert into indexer.batch ${database({
      ...place,
      block_hash: hash,
      block_time: blockTime,
      batch_id: randomHex(32),
      keeper: `0x${'5a'.repeat(20)}`,
      token: served.token,
      trigger: 1,
      authorizations: 4,
      payment_count: 2,
      provider_total: 95_000,
      fee_total: 5_000,
      outcomes: '0x1111',
      gas_used: 100_000,
      effective_gas_price: 1_000_000_000,
      l1_fee: null,
    })}`
  await database`
    insert into indexer.batch_recipient ${database({
      ...place,
      block_time: blockTime,
      recipient: shop.wallet,
      payment_count: 2,
      total: 95_000,
    })}`
}

async function setHead(): Promise<void> {
  const { number, timestamp } = await gateway.served.client.getBlock()
  const { chainId } = gateway.served.network
  await setIndexedHead(gateway.database, {
    chainId,
    blockNumber: Number(number),
    blockTime: Number(timestamp),
  })
}

async function dropIndex(): Promise<void> {
  await gateway.database`delete from indexer.batch`
  await gateway.database`delete from indexer.batch_recipient`
}

/** Returns the answers of the views of batches, from an app without a cache. */
async function readViews(): Promise<unknown[]> {
  const app = gateway.another()
  const at = `/providers/${shop.providerId}`
  return Promise.all(
    [
      `/settlements/batches?wallet=${shop.wallet}`,
      `/settlements/export?wallet=${shop.wallet}&start=2020-01-01&end=2100-01-01`,
      ...['/network', '/network/batches', `${at}/batches`, `${at}/statement?month=${month}`],
    ].map(async (path) => {
      const { status, body } = await call<Record<string, unknown>>(app, 'GET', path, { key: shop.key })
      return [path.split('?')[0], status, body]
    }),
  )
}

const summed = async () => {
  const { body } = await call<{ total: object }>(gateway.another(), 'GET', '/network')
  return body.total
}

test('behavior: GET /network counts another keeper’s batch from its recording until a reorg drops it, also while the index is rebuilt', async () => {
  const { database: sql, served, settings } = gateway
  const log = createLogger('test', 'fatal')
  const lookEveryMs = { young: 0, final: 0 }
  const recorder = createRecorder({ sql, served, finalityBlocks: 30n, log, lookEveryMs })
  const step = async () => {
    const state = await readRecordState(sql, served, settings.maxIndexLagBlocks)
    if ((await recorder.followReorgs(state)) !== null) await recorder.record()
  }
  await step()
  expect(await summed()).toMatchObject({ batches: 0, keepers: 0 })

  await ask('evm_mine')
  const [before, txHash] = [randomHex(32), randomHex(32)]
  await indexBatch(1, before)
  const snapshot = await ask('evm_snapshot')
  await ask('evm_mine')
  await indexBatch(2, txHash)
  await ask('evm_mine')
  await setHead()
  expect(await summed()).toMatchObject({ batches: 0 })
  await step()
  expect(await summed()).toMatchObject({
    batches: 2,
    payments: 4,
    total_usdc: '0.200000',
    gas_used: '200000',
  })
  const shown = await readViews()
  expect(shown.map((view) => (view as unknown[])[1])).toEqual(shown.map(() => 200))
  expect(JSON.stringify(shown)).toContain(txHash)

  await step()
  expect(await readViews()).toEqual(shown)
  await withoutIndex(sql, async () => {
    await step()
    expect(await readViews()).toEqual(shown)
  })
  const rows = await sql`select * from indexer.batch`
  await dropIndex()
  // As during a rebuild, the index is behind its earlier position.
  await setIndexedHead(sql, { chainId: served.network.chainId, blockNumber: 1, blockTime: 1 })
  await step()
  expect(await readViews()).toEqual(shown)
  await sql`insert into indexer.batch ${sql(rows)}`
  await setHead()
  await step()
  expect(await readViews()).toEqual(shown)

  await ask('evm_revert', snapshot)
  await ask('evm_increaseTime', 60)
  for (let i = 0; i < 3; i++) await ask('evm_mine')
  await sql`delete from indexer.batch where tx_hash = ${txHash}`
  await setHead()
  for (let i = 0; i < 2; i++) await step()
  expect(await summed()).toMatchObject({
    batches: 1,
    payments: 2,
    total_usdc: '0.100000',
    gas_used: '100000',
  })
  const after = JSON.stringify(await readViews())
  expect([after.includes(before), after.includes(txHash)]).toEqual([true, false])
  expect(after).toContain('"others":{"batches":1,')
})

test('behavior: makes no query about reorgs until the next check is due', async () => {
  const { database, served, settings } = gateway
  const { sql, count } = countStatements(database)
  const recorder = createRecorder({ sql, served, finalityBlocks: 30n, log: createLogger('test', 'fatal') })
  const state = await readRecordState(database, served, settings.maxIndexLagBlocks)
  const safeBlock = await recorder.followReorgs(state)
  const before = count()
  expect(before).toBeGreaterThan(0)
  expect([await recorder.followReorgs(state), count()]).toEqual([safeBlock, before])
})
