import type { Hex } from 'viem'
import { beforeEach, expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedBatch } from '../../../test/support/seedBatch.ts'
import {
  blockHashOf,
  type SeedProvider,
  seedChainId,
  seedPayment,
  seedProvider,
  seedSettlement,
} from '../../../test/support/seedPayments.ts'
import { type SeededTab, seedOlderState, seedTab, settleTab } from '../../../test/support/seedTabs.ts'
import { dropBlock, setConfirmed } from '../facts/record.ts'
import { recordFailure } from '../queue/failures.ts'
import { notifyBatches, notifyReverted, notifySettled, readTold } from './notifications.ts'

const network = 'localhost'
const confirmedAt = new Date('2026-11-21T13:00:00Z')
const closedAt = new Date('2026-11-21T11:30:00.250Z')

const sql = await useDatabase()
let provider: SeedProvider
let other: SeedProvider
beforeEach(async () => {
  provider = await seedProvider(sql, 2)
  other = await seedProvider(sql)
})

/** Creates a tab with 30 requests to two endpoints of the provider, and 7 requests to the other provider. */
const seed = () =>
  seedTab(sql, {
    closedAt,
    sales: [
      { provider, requests: 10, acceptedAt: new Date(closedAt.getTime() - 1_900_000) },
      { provider: other, requests: 7 },
      { provider, requests: 15 },
      { provider, endpointId: provider.endpointIds[1] as string, requests: 5 },
    ],
  })

let height = 1_000
const blockOf = (blockNumber: number) => ({
  blockNumber: BigInt(blockNumber),
  blockHash: blockHashOf(blockNumber),
})
const scopeOf = (blockNumber: number) => ({ chainId: seedChainId, network, block: blockOf(blockNumber) })

/** Confirms a block. @returns the number of messages written. */
function confirm(blockNumber: number): Promise<number> {
  return sql.begin(async (tx) => {
    await setConfirmed(tx, seedChainId, blockOf(blockNumber), confirmedAt)
    return notifySettled(tx, scopeOf(blockNumber))
  }) as Promise<number>
}

type Message = {
  event: string
  paymentId: string
  occurrence: number
  txHash: Hex | null
  data: Record<string, unknown>
}
const messages = ({ providerId }: SeedProvider) =>
  sql<Message[]>`
    select event, payment_id as "paymentId", occurrence, tx_hash as "txHash", data from outbox
    where provider_id = ${providerId} order by id`
const eventsOf = async (of: SeedProvider) =>
  (await messages(of)).map(({ event, occurrence }) => `${event} ${occurrence}`)

const ownSales = ({ tabId }: SeededTab, settled: boolean | [string, string] = false) => {
  const part = (amount: string, at: 0 | 1) => (Array.isArray(settled) ? settled[at] : settled ? amount : '0')
  const sum = Number(part('2250', 0)) + Number(part('450', 1))
  return {
    tabId,
    closeReason: 'idle',
    requests: 30,
    providerUsdc: '2700',
    platformUsdc: '300',
    settledUsdc: `${sum}`,
    lines: [
      {
        endpointId: provider.endpointIds[0],
        payTo: provider.wallet,
        requests: 25,
        providerUsdc: '2250',
        platformUsdc: '250',
        settledUsdc: part('2250', 0),
      },
      {
        endpointId: provider.endpointIds[1],
        payTo: provider.wallet,
        requests: 5,
        providerUsdc: '450',
        platformUsdc: '50',
        settledUsdc: part('450', 1),
      },
    ].sort((a, b) => ((a.endpointId ?? '') < (b.endpointId ?? '') ? -1 : 1)),
  }
}

test('default: notifies each provider with sales on a tab about its own sales when the tab closes and when it has settled', async () => {
  const tab = await seed()
  const { paymentId } = tab
  const closed = {
    event: 'tab.closed',
    paymentId,
    occurrence: 1,
    txHash: null,
    data: { ...ownSales(tab), network, closedAt: '2026-11-21T11:30:00.250Z' },
  }
  expect(await messages(provider)).toEqual([closed])
  expect(await messages(other)).toMatchObject([
    { event: 'tab.closed', data: { requests: 7, providerUsdc: '630', lines: [{ payTo: other.wallet }] } },
  ])
  const txHash = await settleTab(sql, tab, { blockNumber: ++height })
  expect(await messages(provider)).toHaveLength(1)
  expect(await confirm(height)).toBe(2)
  expect(await confirm(height)).toBe(0)
  const settled = {
    event: 'tab.settled',
    paymentId,
    occurrence: 1,
    txHash,
    data: { ...ownSales(tab, true), network, blockNumber: height, settledAt: '2026-11-21T12:00:00.000Z' },
  }
  expect(await messages(provider)).toEqual([closed, settled])
  expect(await eventsOf(other)).toEqual(['tab.closed 1', 'tab.settled 1'])
})

test('behavior: notifies all of a tab’s providers when a reorg reverts the settlement and when the tab settles again', async () => {
  const tab = await seed()
  const txHash = await settleTab(sql, tab, { blockNumber: ++height })
  await confirm(height)
  expect(await readTold(sql, scopeOf(height))).toEqual([{ paymentId: tab.paymentId, hashes: [txHash] }])
  await notifyReverted(sql, network, [tab.paymentId])
  await notifyReverted(sql, network, [tab.paymentId])
  expect(await readTold(sql, scopeOf(height))).toEqual([])
  await dropBlock(sql, seedChainId, blockOf(height))
  await settleTab(sql, tab, { blockNumber: ++height, txHash })
  await confirm(height)
  const events = ['tab.closed 1', 'tab.settled 1', 'tab.reverted 1', 'tab.settled 2']
  for (const of of [provider, other]) expect(await eventsOf(of)).toEqual(events)
  const [, , reverted] = await messages(provider)
  expect(reverted).toMatchObject({ txHash, data: { network, tabId: tab.tabId } })
})

test('behavior: after an older state settled, notifies each provider about the amount that arrived, and the underpaid providers about the failure', async () => {
  const tab = await seed()
  const third = await seedProvider(sql)
  const mixed = await seedTab(sql, {
    sales: [
      { provider, requests: 10 },
      { provider: other, requests: 7 },
      { provider: third, requests: 4 },
    ],
  })
  await seedOlderState(sql, tab, [1_900n, 0n], { blockNumber: ++height })
  // The older state pays the first provider in full, the second in part, and the third nothing.
  const txHash = await seedOlderState(sql, mixed, [1_000n, 300n, 0n], { blockNumber: height })
  expect(await confirm(height)).toBe(3)
  const failure = { batchId: null, code: 'authorization_used', detail: '', isFinal: true }
  await recordFailure(sql, { paymentId: mixed.paymentId, ...failure }, { now: new Date() })
  const ofMixed = async (of: SeedProvider) =>
    (await messages(of)).filter(({ paymentId }) => paymentId === mixed.paymentId).slice(1)
  const settled = { event: 'tab.settled', txHash }
  expect(await ofMixed(provider)).toMatchObject([
    { ...settled, data: { providerUsdc: '900', settledUsdc: '900' } },
  ])
  const failed = {
    event: 'settlement.failed',
    data: { code: 'authorization_used', attempts: 1, nextAttemptAt: null },
  }
  expect(await ofMixed(other)).toMatchObject([
    { ...settled, data: { providerUsdc: '630', settledUsdc: '270' } },
    { ...failed, data: { ...failed.data, tabId: mixed.tabId, requests: 7, settledUsdc: '270' } },
  ])
  expect(await ofMixed(third)).toMatchObject([{ ...failed, data: { requests: 4, settledUsdc: '0' } }])
  expect(await ofMixed(third)).toHaveLength(1)
  // The 1,900 that moved pays for the first sale and for nine requests of the second one.
  const own = (await messages(provider)).filter(({ paymentId }) => paymentId === tab.paymentId)
  expect(own).toMatchObject([{}, { event: 'tab.settled', data: ownSales(tab, ['1710', '0']) }])
  // A reorg reverts the settlement. Each provider that was notified about the settlement gets a message about that.
  await notifyReverted(sql, network, [mixed.paymentId])
  expect(await eventsOf(third)).toEqual(['tab.closed 1', 'settlement.failed 1'])
  expect((await ofMixed(other)).map(({ event }) => event)).toEqual([
    ...['tab.settled', 'settlement.failed', 'tab.reverted'],
  ])
})

test('behavior: notifies each provider about a tab’s third failure and its last failure', async () => {
  const { paymentId, tabId } = await seed()
  const failure = { paymentId, batchId: null, code: 'insufficient_balance', detail: '', isFinal: false }
  const times = { now: closedAt }
  for (const _ of [1, 2, 3]) await recordFailure(sql, failure, times)
  await recordFailure(sql, { ...failure, isFinal: true }, times)
  for (const [of, requests] of [
    [provider, 30],
    [other, 7],
  ] as const) {
    expect(await eventsOf(of)).toEqual(['tab.closed 1', 'settlement.failing 1', 'settlement.failed 1'])
    const [, failing] = await messages(of)
    expect(failing?.data).toMatchObject({ tabId, requests, attempts: 3, code: 'insufficient_balance' })
  }
})

test('behavior: a confirmed batch counts each request on a tab as a payment, and only the amount that arrived', async () => {
  const [tab, older] = [await seed(), await seed()]
  const payment = await seedPayment(sql, { provider })
  const txHash = await settleTab(sql, tab, { blockNumber: ++height })
  await seedSettlement(sql, payment, { txHash, blockNumber: height })
  await seedOlderState(sql, older, [1_900n, 0n], { blockNumber: height })
  await sql`update authorization_event set tx_hash = ${txHash} where payment_id = ${older.paymentId}`
  await seedBatch(sql, 7, { ...blockOf(height), blockTime: 1_795_262_400n, txHash, logIndex: 9 })
  await confirm(height)
  for (const _ of [1, 2])
    await notifyBatches(sql, {
      chainId: seedChainId,
      network,
      after: BigInt(height - 1),
      upTo: BigInt(height),
    })
  const told = async (of: SeedProvider) =>
    (await messages(of)).filter(({ event }) => event === 'batch.confirmed')
  expect(await told(provider)).toMatchObject([
    { txHash, data: { payments: 1 + 30 + 19, providerUsdc: `${47_500 + 2_700 + 1_710}` } },
  ])
  expect(await told(other)).toMatchObject([{ data: { payments: 7, providerUsdc: '630' } }])
})
