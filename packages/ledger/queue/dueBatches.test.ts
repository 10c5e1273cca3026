import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'
import { describe, expect, test } from 'vitest'
import { failPayment } from '../../../test/support/claim.ts'
import { countStatements } from '../../../test/support/countStatements.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { explain } from '../../../test/support/explain.ts'
import { seedHalf, seedPayment, seedProvider, seedTransfer } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { setGasGrant } from '../registry/apiKeys.ts'
import type { Database } from '../store/database.ts'
import { createDueBatches } from './dueBatches.ts'
import type { Lane } from './lanes.ts'
import { readAwaited, readGroups, readMostUrgent, readWaiting } from './queue.ts'
import { deferPayments } from './stages.ts'
import { defaultTriggers } from './triggers.ts'

// Batches here are too small for the cost of settling to matter, so no chain is asked.
const served = {
  network: networks.localhost,
  token: `0x${'ab'.repeat(20)}` as Address,
} as unknown as ServedNetwork

const sql = await useDatabase()
const provider = await seedProvider(sql)

test('behavior: a high-value payment is sent alone, even when it is retried, and makes no other payment due', async () => {
  // This amount is a high value by the test's threshold.
  const triggers = { ...defaultTriggers, highValue: 1_000_000n, minAgeMs: 0 }
  const settings = { triggers, priorityFeePerGas: 0n, maxFeePerGas: 10n ** 12n, gasTokenUsd: 3_000_000_000n }
  const { paymentId: great } = await seedPayment(sql, { provider, providerAmount: 1_000_000n })
  const { paymentId: small } = await seedPayment(sql, { provider })
  const { paymentId: young } = await seedPayment(sql, { provider })
  const failedAt = new Date()
  const retriedAt = failedAt.getTime() + 60_000
  const fail = (paymentId: string) => failPayment(sql, paymentId, { now: failedAt })
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

test('behavior: a payment counts for triggers from its acceptance, or 150 s later if its seller has its own middleware', async () => {
  const triggers = { ...defaultTriggers, count: 2, raisedCount: 2 }
  const settings = { triggers, priorityFeePerGas: 0n, maxFeePerGas: 10n ** 12n, gasTokenUsd: 3_000_000_000n }
  const seller = await seedProvider(sql)
  const acceptedAt = new Date()
  const dueAfter = async (ms: number) => {
    const now = new Date(acceptedAt.getTime() + ms)
    const due = await createDueBatches(sql, served)({ settings, from: provider.wallet, now })
    return due.map(({ trigger, payments }) => [trigger, payments.length])
  }
  for (const isOwn of [false, true]) {
    await sql`delete from queue`
    await sql`update provider set own_middleware = ${isOwn} where id = ${seller.providerId}`
    for (let n = 0; n < 2; n++) await seedPayment(sql, { provider: seller, acceptedAt })
    expect(await dueAfter(0), `own: ${isOwn}`).toEqual(isOwn ? [] : [['count', 2]])
    expect(await dueAfter(150_000)).toEqual([['count', 2]])
  }
})

test('behavior: while a seller’s own middleware may still void a payment, a batch includes the payment only if it is large or expires soon', async () => {
  await sql`delete from queue`
  await sql`update provider set own_middleware = true where id = ${provider.providerId}`
  const triggers = { ...defaultTriggers, count: 3, raisedCount: 3, timeMs: 1_000 }
  const settings = { triggers, priorityFeePerGas: 0n, maxFeePerGas: 10n ** 12n, gasTokenUsd: 3_000_000_000n }
  const now = new Date()
  const seed = async (ageSeconds: number, more: object = {}) => {
    const acceptedAt = new Date(now.getTime() - ageSeconds * 1000)
    return (await seedPayment(sql, { provider, acceptedAt, ...more })).paymentId
  }
  const due = async (ms = 0) =>
    // Create a new instance each time. After an unsuccessful search for a full wallet, an instance pauses by the machine's clock, not by `now`.
    (
      await createDueBatches(
        sql,
        served,
      )({ settings, from: provider.wallet, now: new Date(now.getTime() + ms) })
    ).map(({ trigger, payments }) => [trigger, payments.map(({ id }) => id)])

  const young = [await seed(149), await seed(100), await seed(99)]
  expect(await due()).toEqual([])
  const great = await seed(0, { providerAmount: 10_000_000n })
  expect(await due()).toEqual([['high_value', [great]]])
  await sql`delete from queue where payment_id = ${great}`
  expect(await due(1_000)).toEqual([['time', young.slice(0, 1)]])
  expect(await due(51_000)).toEqual([['count', young]])
  // A payment is urgent once two fifths of its window are left, but not earlier than 15 minutes before it expires.
  const runsOutIn = (seconds: number) => ({ validBefore: Math.floor(now.getTime() / 1000) + seconds })
  const short = await seed(0, runsOutIn(300))
  expect(await due(178_000)).toMatchObject([['count', [...young, short]]])
  await sql`delete from queue where payment_id <> ${short}`
  const long = await seed(0, runsOutIn(3_600))
  expect([await due(100_000), await due(181_000)]).toEqual([[], [['expiry', [short, long]]]])
  await sql`delete from queue where payment_id = ${short}`
  settings.triggers.timeMs = 3_600_000
  expect([await due(2_690_000), await due(2_701_000)]).toEqual([[], [['expiry', [long]]]])
  await sql`update provider set own_middleware = false where id = ${provider.providerId}`
})

test('behavior: at most half of the payments in a batch are retries', async () => {
  const other = await seedProvider(sql)
  const groupOf = async (paymentId: string) => {
    const [row] = await sql<
      { id: number }[]
    >`select group_id as id from queue where payment_id = ${paymentId}`
    return { ...served, id: row?.id ?? 0, feeRecipient: other.wallet, chainId: 31_337 }
  }
  await sql`delete from queue`
  const ids: string[] = []
  for (let i = 0; i < 8; i++) ids.push((await seedPayment(sql, { provider: other })).paymentId)
  const failing = ids.slice(0, 4)
  const now = new Date()
  for (const paymentId of failing) await failPayment(sql, paymentId, { now })
  const due = new Date(now.getTime() + 60_000)
  const asked = {
    now: due,
    acceptedBy: due,
    isTab: false,
    hasCode: false,
    below: 10n ** 12n,
    limit: 4,
  }
  const group = await groupOf(ids[7] ?? '')
  const read = async (more: object = {}) =>
    (await readMostUrgent(sql, group, { ...asked, ...more })).map(({ id }) => failing.includes(id))
  expect(await read()).toEqual([true, true, false, false])
  expect(await read({ limit: 100 })).toHaveLength(8)
})

describe('reading the queue', () => {
  const triggers = { ...defaultTriggers, count: 2, raisedCount: 2, minAgeMs: 0 }
  const settings = { triggers, priorityFeePerGas: 0n, maxFeePerGas: 10n ** 12n, gasTokenUsd: 3_000_000_000n }
  const lookAt = async (inFlight: readonly Lane[], at: Date) => {
    const counted = countStatements(sql)
    const read = createDueBatches(counted.sql, served)
    // The groups are read only once a second, so the first call caches them and isn't counted.
    await read({ settings, from: provider.wallet, mayBegin: () => false, now: at })
    const before = counted.count()
    const due = await read({
      settings,
      from: provider.wallet,
      mayBegin: (lane) => !inFlight.includes(lane),
      now: at,
    })
    return { lanes: due.map(({ lane }) => lane), statements: counted.count() - before }
  }

  test('behavior: takes two SQL statements if every lane with waiting payments already has a batch in flight', async () => {
    await sql`delete from queue`
    const now = new Date()
    expect(await lookAt([], now)).toEqual({ lanes: [], statements: 2 })
    for (let n = 0; n < 2; n++) await seedPayment(sql, { provider })
    expect(await lookAt([], now)).toEqual({ lanes: ['shared'], statements: 4 })
    expect(await lookAt(['shared'], now)).toEqual({ lanes: [], statements: 2 })
    await seedPayment(sql, { provider, providerAmount: 20_000_000n })
    expect(await lookAt(['shared'], now)).toEqual({ lanes: ['high_value'], statements: 3 })
  })

  test('behavior: does not read other payments to find that no payment of a kind waits', async () => {
    await sql`delete from queue`
    for (let n = 0; n < 300; n++) await seedPayment(sql, { provider })
    const [group] = await readGroups(sql, { chainId: 31_337, token: served.token })
    const asked = { highValue: 10_000_000n, acceptedBy: new Date(), now: new Date() }
    if (!group) throw new Error('no group')
    await sql`analyze queue`
    // The statement runs as `explain`, so it doesn't return its rows, and `readWaiting` fails.
    const run = (own: Database) => readWaiting(own, group, asked).catch(() => {})
    const read = await explain(sql, /^\s*select\s+least/, run)
    // The statement reads three rows: the oldest payment, the first payment to expire, and one payment to see that its kind waits.
    expect(read).toEqual({ 'Index Scan queue': 3 })
  })

  test('behavior: reads a free lane while another lane is in flight', async () => {
    await sql`delete from queue`
    const now = new Date()
    const ids: string[] = []
    for (let n = 0; n < 3; n++) ids.push((await seedPayment(sql, { provider })).paymentId)
    await sql`update queue set has_code = true where payment_id = ${ids[2] ?? ''}`
    expect((await lookAt(['shared'], now)).lanes).toEqual(['code'])
    expect((await lookAt(['code'], now)).lanes).toEqual(['shared'])
    expect((await lookAt([], now)).lanes).toEqual(['shared', 'code'])
    await deferPayments(sql, ids, new Date(now.getTime() + 5_000))
    expect((await lookAt([], now)).lanes).toEqual([])
    expect((await lookAt([], new Date(now.getTime() + 5_000))).lanes).toEqual(['shared', 'code'])
  })
})

describe('payments that callers of /settle wait for', () => {
  const common = 1_000n
  /** Stores a facilitator payment that has waited since `at` (ms), of a provider or of a seller without a key. */
  async function settle(providerId: string | null, at: number, payee = randomHex(20)): Promise<string> {
    const { paymentId } = await seedTransfer(sql, {
      source: 'facilitator',
      providerId,
      feeRecipient: provider.wallet,
      halves: [seedHalf({ recipient: payee })],
      acceptedAt: new Date(at),
      first: { stage: 'due', since: at },
      facilitation: { providerId, paymentIdentifier: null },
      gas: { providerId, amount: 1n, common },
    })
    return paymentId
  }
  async function readOrder(limit: number): Promise<string[]> {
    const groups = await readGroups(sql, { chainId: served.network.chainId, token: served.token })
    const read = await Promise.all(groups.map((group) => readAwaited(sql, group, { hasCode: false, limit })))
    return read.flat().map(({ id }) => id)
  }

  test('behavior: all callers without a grant together get as many turns as one caller with a grant', async () => {
    await sql`delete from queue`
    const strangers: string[] = []
    for (let index = 0; index < 50; index++) {
      const { providerId } = await seedProvider(sql)
      strangers.push(await settle(providerId, index * 2), await settle(null, index * 2 + 1))
    }
    await setGasGrant(sql, provider.providerId, 1_000n)
    const honest = [await settle(provider.providerId, 1_000), await settle(provider.providerId, 1_001)]
    const [first, second] = strangers
    expect(await readOrder(4)).toEqual([first, honest[0], second, honest[1]])
  })

  test('behavior: a caller without a grant has at most 64 payments in a batch, so that the next batch follows soon', async () => {
    await sql`delete from queue`
    const { providerId } = await seedProvider(sql)
    const free: string[] = []
    for (let index = 0; index < 70; index++) free.push(await settle(providerId, index))
    expect(await readOrder(172)).toEqual(free.slice(0, 64))
    const other = await settle(null, 1_000)
    expect((await readOrder(172)).toSorted()).toEqual([...free.slice(0, 64), other].toSorted())
    await sql`delete from queue`
    await setGasGrant(sql, provider.providerId, 1_000n)
    const granted: string[] = []
    for (let index = 0; index < 70; index++) granted.push(await settle(provider.providerId, index))
    expect(await readOrder(172)).toEqual(granted)
  })

  test('behavior: sellers without a key take turns, regardless of how many payments each seller has open', async () => {
    await sql`delete from queue`
    const wallet = randomHex(20)
    const many: string[] = []
    for (let index = 0; index < 30; index++) many.push(await settle(null, index, wallet))
    const other = await settle(null, 1_000)
    expect(await readOrder(3)).toEqual([many[0], other, many[1]])
  })
})
