import { createLogger } from '@tollkeeper/runtime/log'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { afterEach, expect, test } from 'vitest'
import { refuseWrites } from '../../test/support/badRows.ts'
import { useDatabase } from '../../test/support/database.ts'
import {
  type SeededPayment,
  seedChainId,
  seedPayment,
  seedProvider,
  seedSettlement,
  seedToken,
} from '../../test/support/seedPayments.ts'
import { createMetrics } from '../settings/metrics.ts'
import { type Context, createMemory } from './context.ts'
import { reconcilePayments } from './reconcile.ts'

const sql = await useDatabase()
const provider = await seedProvider(sql)
const head = 1_000n

afterEach(async () => {
  await sql`truncate outbox cascade`
  await sql`delete from payment`
  await sql`truncate recorded_block, record_head cascade`
})

/** Returns the parts of a keeper's context that a reconciliation uses, and the number of transactions that it began. */
function openReconciler(database = sql) {
  const begun = { count: 0 }
  const counting = new Proxy(database, {
    get(target, key) {
      if (key !== 'begin') return Reflect.get(target, key)
      return (...args: never[]) => {
        begun.count += 1
        return Reflect.apply(target.begin, target, args)
      }
    },
  })
  const context = {
    sql: counting,
    served: { network: networks.localhost, token: seedToken },
    finalityBlocks: 10n,
    now: () => new Date(),
    checkpoint: async () => {},
    log: createLogger('test', 'silent'),
    metrics: createMetrics(),
    memory: createMemory(),
  } as unknown as Context
  return { context, begun, reconcile: () => reconcilePayments(context) }
}

/** Creates payments that settled in separate blocks, and whose authorizations are all final. */
async function seedSettled(count: number): Promise<SeededPayment[]> {
  const payments: SeededPayment[] = []
  for (let n = 0; n < count; n++) {
    const payment = await seedPayment(sql, { provider })
    await seedSettlement(sql, payment, { blockNumber: 100 + n })
    payments.push(payment)
  }
  await setHead()
  return payments
}

async function setHead(): Promise<void> {
  await sql`
    insert into record_head (chain_id, block_number, read_number, block_time)
    values (${seedChainId}, ${head}, ${head}, 1795263400)`
}

const idOf = ({ paymentId }: SeededPayment) => paymentId
const among = (payments: readonly SeededPayment[]) =>
  `new.payment_id in (${payments.map(({ paymentId }) => `'${paymentId}'`).join()})`

async function readFinalized(): Promise<string[]> {
  const rows = await sql<
    { id: string }[]
  >`select payment_id as id from payment_result where final_at is not null`
  return rows.map(({ id }) => id).toSorted()
}

async function countUnlooked(): Promise<number> {
  const [row] = await sql<
    [{ count: number }]
  >`select count(*)::int as count from recorded_block where looked < 2`
  return row.count
}

test.each(['25P04', '57014', '55P03'])(
  'behavior: a payment whose finalization always hits a time limit of the database (%s) does not delay other payments, and is retried later',
  async (code) => {
    const payments = await seedSettled(9)
    const bad = payments.slice(3, 4)
    const allow = await refuseWrites(sql, 'payment_result', 'insert', among(bad), code)
    const { context, begun, reconcile } = openReconciler()
    await reconcile()
    const others = payments.filter((one) => !bad.includes(one))
    expect(await readFinalized()).toEqual(others.map(idOf).toSorted())
    expect(context.memory.unfinalized.waiting()).toEqual(bad.map(idOf))
    // Only the block of the bad payment will be read again.
    expect(await countUnlooked()).toBe(1)
    begun.count = 0
    await reconcile()
    expect(begun.count).toBe(0)
    await allow()
    await openReconciler().reconcile()
    expect(await readFinalized()).toEqual(payments.map(idOf).toSorted())
    expect(await countUnlooked()).toBe(0)
  },
)

test('behavior: fails at most 25 payments in one database transaction', async () => {
  const payments = await seedSettled(60)
  await sql`update authorization_event set state = 'cancelled'`
  const { begun, reconcile } = openReconciler()
  await reconcile()
  expect(begun.count).toBe(3)
  const failed = await sql`select from payment_result where kind = 'failed'`
  expect(failed).toHaveLength(payments.length)
})

test('behavior: skips payments that another keeper is finalizing, and reads their blocks again later', async () => {
  const payments = await seedSettled(4)
  const held = payments.slice(0, 1)
  const { reconcile } = openReconciler()
  await sql.begin(async (other) => {
    await other`select from queue where payment_id = any(${held.map(idOf)}::text[]) for update`
    await reconcile()
    expect(await readFinalized()).toEqual(payments.slice(1).map(idOf).toSorted())
    expect(await countUnlooked()).toBe(1)
  })
  await reconcile()
  expect(await readFinalized()).toEqual(payments.map(idOf).toSorted())
  expect(await countUnlooked()).toBe(0)
})

test('behavior: if a read of payments takes too long, repeats it with half the number of payments until it succeeds', async () => {
  const payments = await seedSettled(3)
  const limits: number[] = []
  const slow = new Proxy(sql, {
    apply(target, self, args: [TemplateStringsArray, ...unknown[]]) {
      if (!args[0].raw?.join('').includes('order by b.number limit')) return Reflect.apply(target, self, args)
      const limit = args.at(-1) as number
      limits.push(limit)
      if (limit > 13) return sql.unsafe(`do $$ begin raise 'too slow' using errcode = '57014'; end $$`)
      return Reflect.apply(target, self, args)
    },
  })
  await openReconciler(slow).reconcile()
  expect(limits).toEqual([100, 50, 25, 13])
  expect(await readFinalized()).toEqual(payments.map(idOf).toSorted())
})
