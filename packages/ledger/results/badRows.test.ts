import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createLogger } from '@tollkeeper/runtime/log'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { collectBadRows, refuseWrites } from '../../../test/support/badRows.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { setIndexedHead } from '../../../test/support/indexTables.ts'
import {
  blockHashOf,
  type SeededPayment,
  seedChainId,
  seedPayment,
  seedProvider,
  seedSettlement,
  seedToken,
} from '../../../test/support/seedPayments.ts'
import { postponeLookups, readLookupRequests, readRecordHead, requestLookups } from '../facts/record.ts'
import { markLooked, readPaymentsToFinalize } from './finalizations.ts'
import { createRecorder } from './recorder.ts'

// Puts 200 permanently failing rows before a good one in each loop that reads the oldest rows first. Only the chain is simulated.

const sql = await useDatabase()
const provider = await seedProvider(sql)
const head = 1_000n
const blockOf = (number: bigint) => ({
  number,
  hash: blockHashOf(Number(number)),
  parentHash: blockHashOf(Number(number) - 1),
  timestamp: 1_795_262_400n + number,
})
const served = {
  network: networks.localhost,
  token: seedToken,
  client: { getBlock: async ({ blockNumber = head } = {}) => blockOf(blockNumber) },
  clients: [],
} as unknown as ServedNetwork

// The clock is stopped, so that no row's pause ends during a test, even on a slow machine.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'] })
})
afterEach(async () => {
  vi.useRealTimers()
  await sql`truncate outbox cascade`
  await sql`delete from payment`
  await sql`truncate recorded_block, record_head, indexer.authorization cascade`
})

/** Creates 200 bad payments and then a good one, each settled in a separate block. */
async function seedSettled(): Promise<{ bad: SeededPayment[]; good: SeededPayment }> {
  const payments: SeededPayment[] = []
  for (let n = 0; n <= 200; n++) {
    const payment = await seedPayment(sql, { provider })
    await seedSettlement(sql, payment, { blockNumber: 100 + n })
    payments.push(payment)
  }
  await setIndexedHead(sql, { chainId: seedChainId, blockNumber: Number(head), blockTime: 1_795_263_400 })
  const good = payments.pop() as SeededPayment
  return { bad: payments, good }
}

const among = (column: string, payments: readonly SeededPayment[]) =>
  `${column} in (${payments.map(({ paymentId }) => `'${paymentId}'`).join()})`

function openRecorder() {
  const reports = collectBadRows()
  const log = createLogger('test', 'silent')
  const { onBadRow, bad } = reports
  return { recorder: createRecorder({ sql, served, finalityBlocks: 10n, log, onBadRow }), reports: bad }
}

test('behavior: 200 blocks whose providers can’t be notified don’t delay other blocks', async () => {
  const { bad, good } = await seedSettled()
  const allow = await refuseWrites(sql, 'outbox', 'insert', among('new.payment_id', bad))
  const { recorder, reports } = openRecorder()
  for (let round = 0; round < 3; round++) await recorder.record()
  const told = await sql`select payment_id from outbox where event = 'payment.settled'`
  expect([...told]).toEqual([{ payment_id: good.paymentId }])
  expect(reports.filter(({ step }) => step === 'notification')).toHaveLength(200)
  await allow()
})

test('behavior: 200 events that can’t be recorded don’t delay other events, and the record counts as incomplete from the first such event on', async () => {
  const { bad, good } = await seedSettled()
  await sql`truncate recorded_block cascade`
  const allow = await refuseWrites(sql, 'authorization_event', 'insert', among('new.payment_id', bad))
  const { recorder, reports } = openRecorder()
  await recorder.record()
  const recorded = await sql`select distinct payment_id from authorization_event`
  expect([...recorded]).toEqual([{ payment_id: good.paymentId }])
  // Each payment has two halves.
  expect(reports.filter(({ step }) => step === 'record')).toHaveLength(400)
  expect(await readRecordHead(sql, seedChainId)).toMatchObject({ blockNumber: 99n, readNumber: head })
  // The failed events wait for their retry time.
  await recorder.record()
  expect(reports.filter(({ step }) => step === 'record')).toHaveLength(400)
  await allow()
})

test('behavior: 200 payments that can’t be finalized, and their blocks, don’t delay other payments and blocks', async () => {
  const { bad, good } = await seedSettled()
  const chain = { safeBlock: head, blockTime: 1_795_263_400n }
  const waiting: string[] = []
  for (let round = 0; round < 3; round++) {
    const { blockIds, payments } = await readPaymentsToFinalize(sql, seedChainId, chain, 500, waiting)
    const ids = payments.map(({ paymentId }) => paymentId)
    if (ids.includes(good.paymentId)) return
    const failed = ids.filter((id) => bad.some(({ paymentId }) => paymentId === id))
    waiting.push(...failed)
    await markLooked(sql, blockIds, chain.safeBlock, failed)
  }
  expect.unreachable('the good payment was never read')
})

test('behavior: 200 payments whose look-ups are postponed don’t delay the look-ups of other payments', async () => {
  const payments: string[] = []
  for (let n = 0; n <= 200; n++) payments.push((await seedPayment(sql, { provider })).paymentId)
  const [good] = payments.slice(-1)
  await requestLookups(sql, payments.slice(0, -1), new Date(Date.now() - 60_000))
  await requestLookups(sql, payments.slice(-1), new Date())
  const read = async () => [
    ...new Set((await readLookupRequests(sql, seedChainId, 200)).map(({ paymentId }) => paymentId)),
  ]
  let due = await read()
  expect(due).not.toContain(good)
  // A payment has two halves, so a page has a hundred payments.
  for (let round = 0; round < 2; round++) {
    await postponeLookups(sql, due)
    due = await read()
  }
  expect(due).toEqual([good])
})
