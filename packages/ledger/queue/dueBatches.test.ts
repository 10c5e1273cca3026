import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'
import { describe, expect, test } from 'vitest'
import { failPayment } from '../../../test/support/claim.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { seedHalf, seedPayment, seedProvider, seedTransfer } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { setGasGrant } from '../registry/apiKeys.ts'
import { createDueBatches } from './dueBatches.ts'
import { readAwaited, readGroups, readMostUrgent } from './queue.ts'
import { defaultTriggers } from './triggers.ts'

// Batches here are so small that the cost of settling doesn't matter, so no chain is asked.
const served = {
  network: networks.localhost,
  token: `0x${'ab'.repeat(20)}` as Address,
} as unknown as ServedNetwork

const sql = await useDatabase()
const provider = await seedProvider(sql)

test('behavior: a payment of high value travels alone on its retries as well, and makes nothing else due', async () => {
  // This is a high value while the test's threshold holds.
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

test('behavior: a payment counts from its acceptance on; with a middleware of its seller’s own, once that has had time to void it', async () => {
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

test('behavior: what a seller’s own middleware may still void is in no batch, but for what is great or runs out', async () => {
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
    // Made anew each time: after a vain look for a full wallet, one doesn't look again for a while by the machine's clock.
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
  // Urgent with two fifths of its window left, and at the latest 15 minutes before it runs out.
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

test('behavior: retries are at most half of a batch', async () => {
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

describe('what callers of /settle wait for', () => {
  const common = 1_000n
  /** A facilitator's payment that has waited since then (ms), of a provider or of a seller without a key. */
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

  test('behavior: beside a hundred free keys and wallets, one who has a grant waits for one payment of all of them', async () => {
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

  test('behavior: without a grant a caller has at most 64 payments of a batch, so that the next batch comes soon', async () => {
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

  test('behavior: of sellers without a key, each has its turn, whoever else has how much open', async () => {
    await sql`delete from queue`
    const wallet = randomHex(20)
    const many: string[] = []
    for (let index = 0; index < 30; index++) many.push(await settle(null, index, wallet))
    const other = await settle(null, 1_000)
    expect(await readOrder(3)).toEqual([many[0], other, many[1]])
  })
})
