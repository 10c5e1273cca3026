import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { readQueueDepth } from '@tollkeeper/ledger/queue/queueDepth'
import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { beforeEach, expect, test } from 'vitest'
import { call, openShop, type Shop } from '../../test/support/gateway.ts'
import { failPayments } from '../../test/support/paymentPosition.ts'
import { seedPayment, seedSettlement } from '../../test/support/seedPayments.ts'
import {
  type SeedTab,
  seedOlderState,
  seedTab,
  seedTabSettlement,
  settleTab,
} from '../../test/support/seedTabs.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)
const other = {} as Shop
beforeEach(async () => {
  Object.assign(other, await openShop(gateway.app))
})

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const get = (path: string, of = shop) =>
  call<Body>(gateway.app, 'GET', `/providers/${of.providerId}${path}`, { key: of.key })
const look = (paymentId: string, key?: string) =>
  call<Body>(gateway.app, 'GET', `/payments/${paymentId}`, key === undefined ? {} : { key })

const seller = (of: Shop) => ({ ...of, endpointIds: [of.endpointId] })
const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000)

/** Seeds a tab with 12 requests to the shop, later 8 more, and 5 requests to another shop. */
const seed = (options: Partial<SeedTab> = {}) =>
  seedTab(gateway.database, {
    closedAt: minutesAgo(10),
    sales: [
      { provider: seller(shop), requests: 12, acceptedAt: minutesAgo(30) },
      { provider: seller(other), requests: 5 },
      { provider: seller(shop), requests: 8, acceptedAt: minutesAgo(11) },
    ],
    ...options,
  })

const fail = (paymentId: string) =>
  recordFailure(
    gateway.database,
    { paymentId, batchId: null, isFinal: false, code: 'insufficient_balance', detail: 'too little' },
    { now: new Date() },
  )

/** Seeds a tab of each possible status, and a tab of which an older state settled. */
async function seedStatuses() {
  const { database } = gateway
  const verified = await seed()
  const settling = await seed()
  const settled = await seed()
  const retrying = await seed()
  const failed = await seed()
  const older = await seed()
  const final = await seed()
  const lost = await seed()
  await database`insert into batch (batch_id, chain_id, token, fee_recipient, trigger, lane, wallet, fence)
    select ${settling.nonces[0]}, chain_id, token, fee_recipient, 'time', 'tab', ${randomHex(20)}, 1 from payment where id = ${settling.paymentId}`
  await database`
    update queue set stage = 'sent', batch_id = (select id from batch where batch_id = ${settling.nonces[0]})
    where payment_id = ${settling.paymentId}`
  await settleTab(database, settled)
  await fail(retrying.paymentId)
  await failPayments(database, [failed.paymentId])
  await seedOlderState(database, older, [1_600n, 500n])
  await settleTab(database, final)
  const ending = { code: 'authorization_expired', isFinal: true }
  const ends = [
    { paymentId: final.paymentId, kind: 'settled', ...ending, code: null },
    { paymentId: lost.paymentId, kind: 'failed', ...ending },
    { paymentId: older.paymentId, kind: 'failed', ...ending, code: 'authorization_used' },
  ] as const
  expect(await endPayments(database, ends, new Date())).toHaveLength(3)
  return { verified, settling, settled, retrying, failed, older, final, lost }
}

const idsOf = (body: Body) => body.payments.map(({ paymentId, tab }: Body) => `${paymentId} ${tab?.sale}`)

test('default: lists a provider’s own sales on a tab by endpoint and hour', async () => {
  const { paymentId, tabId, payer } = await seed()
  const { body } = await get('/payments')
  const row = {
    paymentId,
    requestId: null,
    source: 'tab',
    payment_status: 'verified',
    payer,
    payTo: shop.wallet,
    endpointId: shop.endpointId,
    resource: shop.url,
    network: 'localhost',
    splitter: null,
    transactionHash: null,
    settledUsdc: '0',
  }
  expect(body.payments).toMatchObject([
    {
      ...row,
      tab: { tabId, sale: 2, requests: 8 },
      totalUsdc: '800',
      providerUsdc: '720',
      platformUsdc: '80',
    },
    { ...row, tab: { tabId, sale: 0, requests: 12 }, totalUsdc: '1200' },
  ])
  expect((await get('/payments', other)).body.payments).toMatchObject([
    { paymentId, tab: { sale: 1, requests: 5 } },
  ])
})

test('behavior: filters by status: a tab’s sales have the status of its payment', async () => {
  const { verified, settling, settled, retrying, failed, older, final, lost } = await seedStatuses()
  const own = { verified: [verified], settling: [settling], settled: [final, settled], retrying: [retrying] }
  for (const [status, tabs] of Object.entries({ ...own, failed: [lost, older, failed], voided: [] })) {
    const { body } = await get(`/payments?status=${status}`)
    const found = new Set(body.payments.map(({ paymentId }: Body) => paymentId))
    expect(found, status).toEqual(new Set(tabs.map(({ paymentId }) => paymentId)))
    expect(body.payments, status).toHaveLength(2 * tabs.length)
    for (const { paymentId } of tabs) expect((await look(paymentId)).body.payment_status).toBe(status)
  }
  const rows = (await get(`/payments?status=failed&payer=${older.payer}`)).body.payments
  const transactionHash = expect.stringMatching(/^0x/)
  expect(rows).toMatchObject([
    { tab: { sale: 2 }, settledUsdc: '360', failureCode: 'authorization_used', transactionHash },
    { tab: { sale: 0 }, settledUsdc: '1080', transactionHash },
  ])
  // An expired payment is failed even if it hasn't been marked yet.
  gateway.setNow(Date.now() + 2 * 86_400_000)
  expect((await get('/payments?status=failed')).body.payments).toHaveLength(10)
  expect((await get('/payments?status=verified')).body.payments).toEqual([])
})

test('behavior: pages contain sales on tabs and payments, each row once', async () => {
  const acceptedAt = minutesAgo(30)
  const one = await seedPayment(gateway.database, { provider: seller(shop), acceptedAt })
  const sales = Array.from({ length: 4 }, () => ({ provider: seller(shop), acceptedAt }))
  const [first, second] = [await seed({ sales }), await seed({ sales })]
  await seed()
  const all = idsOf((await get('/payments')).body)
  expect(all).toHaveLength(11)
  expect(new Set(all).size).toBe(11)
  expect(all).toEqual(
    expect.arrayContaining([`${one.paymentId} undefined`, `${first.paymentId} 3`, `${second.paymentId} 0`]),
  )
  for (const limit of [1, 3]) {
    const pages: string[] = []
    let cursor: string | null = ''
    while (cursor !== null) {
      const { body }: Body = await get(`/payments?limit=${limit}${cursor && `&cursor=${cursor}`}`)
      pages.push(...idsOf(body))
      cursor = body.cursor
    }
    expect(pages).toEqual(all)
  }
})

test('args: filters apply to sales on tabs', async () => {
  const tab = await seed()
  const txHash = await settleTab(gateway.database, tab)
  await seed()
  const count = async (query: string) => (await get(`/payments?${query}`)).body.payments.length
  expect(await count(`payer=${tab.payer}`)).toBe(2)
  expect(await count(`endpointId=${shop.endpointId}`)).toBe(4)
  expect(await count(`endpointId=${other.endpointId}`)).toBe(0)
  expect(await count('network=localhost')).toBe(4)
  expect(await count('min_usdc=0.000801')).toBe(2)
  expect(await count('max_usdc=0.0008')).toBe(2)
  expect(await count(`from=${minutesAgo(20).toISOString()}`)).toBe(2)
  expect(await count(`to=${minutesAgo(20).toISOString()}`)).toBe(2)
  expect(await count(`tx_hash=${txHash}`)).toBe(2)
})

test('behavior: a transaction that settled an older state of a tab is shown only for the sales that this state paid', async () => {
  const tab = await seed()
  const txHash = await seedOlderState(gateway.database, tab, [1_200n, 0n])
  expect((await get(`/payments?tx_hash=${txHash}`)).body.payments).toMatchObject([
    { tab: { sale: 0 }, settledUsdc: '1080', transactionHash: txHash, settledAt: '2026-11-21T12:00:00.000Z' },
  ])
  expect((await get(`/payments?tx_hash=${txHash}`, other)).body.payments).toEqual([])
})

test('behavior: shows a tab’s payment like any other payment to everyone, and a provider’s own lines to that provider', async () => {
  const { paymentId, tabId } = await seed({ closeReason: 'buyer' })
  const shown = {
    paymentId,
    source: 'tab',
    providerId: null,
    totalUsdc: '2500',
    platform: null,
    splitter: null,
    tab: {
      tabId,
      sequence: 25,
      requests: 25,
      rewardShare: 500,
      closeReason: 'buyer',
      lines: null,
      covered: null,
    },
  }
  expect((await look(paymentId)).body).toMatchObject(shown)
  const stranger = await openShop(gateway.app)
  expect((await look(paymentId, stranger.key)).body).toMatchObject(shown)
  const lines = [
    {
      payTo: shop.wallet,
      signedUsdc: '2000',
      movedUsdc: '0',
      requests: 20,
      sales: [
        { sale: 0, endpointId: shop.endpointId, requests: 12, providerUsdc: '1080', settledUsdc: '0' },
        { sale: 2, requests: 8, providerUsdc: '720', platformUsdc: '80' },
      ],
    },
  ]
  expect((await look(paymentId, shop.key)).body.tab).toMatchObject({ ...shown.tab, lines })
  const theirs = (await look(paymentId, other.key)).body.tab.lines
  expect(theirs).toMatchObject([{ payTo: other.wallet, signedUsdc: '500', sales: [{ sale: 1 }] }])
  expect(theirs).toHaveLength(1)
  const own = await seedPayment(gateway.database, { provider: seller(shop) })
  expect((await look(own.paymentId, shop.key)).body.tab).toBeNull()
})

test('behavior: shows the moved amount of a tab’s lines: everything that was signed, or the part that an older state covers', async () => {
  const [settled, older] = [await seed(), await seed()]
  await settleTab(gateway.database, settled)
  await seedOlderState(gateway.database, older, [1_600n, 0n])
  expect((await look(settled.paymentId, shop.key)).body.tab.lines).toMatchObject([
    { signedUsdc: '2000', movedUsdc: '2000', sales: [{ settledUsdc: '1080' }, { settledUsdc: '720' }] },
  ])
  expect((await look(older.paymentId, shop.key)).body.tab.lines).toMatchObject([
    { signedUsdc: '2000', movedUsdc: '1600', sales: [{ settledUsdc: '1080' }, { settledUsdc: '360' }] },
  ])
  expect((await look(older.paymentId, other.key)).body.tab.lines).toMatchObject([{ movedUsdc: '0' }])
})

test('behavior: a provider sees what the platform owes it for a defaulted tab, and the transaction that paid it', async () => {
  const { paymentId, payer } = await seed()
  await gateway.database`insert into covered_default ${gateway.database([
    {
      payment_id: paymentId,
      provider_id: shop.providerId,
      payee: shop.wallet,
      chain_id: 31_337,
      payer,
      amount: 1_800,
    },
  ])}`
  const covered = async ({ key }: Shop) => (await look(paymentId, key)).body.tab.covered
  expect([await covered(shop), await covered(other)]).toEqual([{ usdc: '1800', transactionHash: null }, null])
  const paidTx = randomHex(32)
  await gateway.database`update covered_default set paid_tx = ${paidTx}, paid_at = now() where payment_id = ${paymentId}`
  expect(await covered(shop)).toEqual({ usdc: '1800', transactionHash: paidTx })
})

test('behavior: a tab’s timeline and failures are visible to its providers', async () => {
  const { paymentId } = await seed()
  await fail(paymentId)
  for (const of of [shop, other]) {
    const timeline = await get(`/payments/${paymentId}/timeline`, of)
    expect([timeline.status, timeline.body]).toMatchObject([200, { paymentId, failures: [{ attempt: 1 }] }])
  }
  const stranger = await openShop(gateway.app)
  expect((await get(`/payments/${paymentId}/timeline`, stranger)).status).toBe(404)
  const failure = { paymentId, failures: [{ attempt: 1, code: 'insufficient_balance' }] }
  expect((await get('/failures')).body.failures).toMatchObject([failure, failure])
  expect((await get('/failures', stranger)).body.failures).toEqual([])
})

test('behavior: a tab whose requests are deleted leaves no gap among the receipts', async () => {
  await seed()
  gateway.setNow(Date.now() + 60_000)
  expect((await get('/receipts')).body).toBe('')
})

test('behavior: a statement’s sums equal the revenue’s sums and the totals of its lines, for every result of a tab', async () => {
  await seedStatuses()
  const payment = await seedPayment(gateway.database, { provider: seller(shop), acceptedAt: minutesAgo(20) })
  await seedSettlement(gateway.database, payment)
  const month = minutesAgo(20).toISOString().slice(0, 7)
  const { body } = await get(`/statement?month=${month}`)
  const from = `${month}-01`
  const revenue = await get(`/revenue?interval=month&groupBy=network&from=${from}`)
  const [sums] = body.networks
  const { startsAt: _, ...row } = revenue.body.revenue[0]
  expect(sums).toMatchObject(row)
  // 8 tabs with 20 requests for 0.0001 USDC each, and one payment for 0.05 USDC.
  expect(sums).toMatchObject({
    payments: 161,
    settledPayments: 57,
    failedPayments: 44,
    outstandingPayments: 60,
    gross_usdc: '0.066000',
    fee_usdc: '0.004100',
    settled_usdc: '0.052540',
    failed_usdc: '0.003960',
  })
  const csv: string = (await get(`/statement?month=${month}&format=csv`)).body
  const [head = '', ...lines] = csv.trimEnd().split('\r\n')
  const columns = head.split(',')
  const rows = lines.map((line) => line.split(','))
  const sum = (column: string) =>
    formatUsdc(rows.reduce((all, cells) => all + parseUsdc(cells[columns.indexOf(column)] ?? '0'), 0n))
  for (const column of ['gross_usdc', 'fee_usdc', 'net_usdc', 'settled_usdc', 'settled_fee_usdc'])
    expect(sum(column), column).toBe(sums[column])
  const requests = rows.map((cells) => Number(cells[columns.indexOf('requests')]))
  expect(requests.reduce((all, one) => all + one)).toBe(161)
  const kinds = Map.groupBy(rows, ([kind]) => kind)
  expect([kinds.get('tab')?.length, kinds.get('payment')?.length]).toEqual([16, 1])
  // The list's own CSV has the same lines.
  const exported: string = (await get('/payments?format=csv')).body
  expect(new Set(exported.split('\r\n'))).toEqual(new Set(csv.split('\r\n')))
})

test('behavior: requests on closed tabs are in a wallet’s queue, but don’t count for its triggers', async () => {
  const { database } = gateway
  // Uses the chain's own USDC, because queues count only this token.
  const { token } = gateway.served
  const closedAt = minutesAgo(10)
  await seed({ closedAt, token })
  const retrying = await seed({ closedAt, token })
  await fail(retrying.paymentId)
  const moved = await seed({ closedAt, token })
  await settleTab(database, moved)
  await seed({ closedAt: minutesAgo(5), token })
  // The requests have waited since their tab was opened.
  const openedAt = new Date(closedAt.getTime() - 1_800_000)
  const settlesAt = new Date(openedAt.getTime() + 3_600_000).toISOString()
  const { body } = await get('/queue')
  expect(body.wallets).toMatchObject([
    {
      payments: 40,
      tabs: 2,
      accumulated_usdc: '0.003600',
      settlingPayments: 0,
      retryingPayments: 20,
      fired: null,
      settlesAt,
      triggers: { count: { counted: 0 }, amount: { counted_usdc: '0.000000' } },
    },
  ])
  const status = (await call<Body>(gateway.app, 'GET', `/settlements/status?wallet=${shop.wallet}`)).body
  expect(status).toMatchObject({
    payment_count: 60,
    accumulated_usdc: '0.005400',
    first_payment_at: openedAt.toISOString(),
  })
  await failPayments(database, [retrying.paymentId])
  const { body: left } = await call<Body>(gateway.app, 'GET', `/settlements/status?wallet=${shop.wallet}`)
  expect(left).toMatchObject({ payment_count: 40, estimated_settlement: settlesAt })
  // The operator's view shows the requests as tabs, under the TabSettlement contract.
  const depths = await readQueueDepth(database, { chainId: gateway.served.network.chainId, token })
  expect(depths.find(({ payee }) => payee === seedTabSettlement)).toMatchObject({ isTabs: true })
})
