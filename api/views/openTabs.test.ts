import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { createTabReads } from '@tollkeeper/ledger/tabs/tabReads'
import { createLogger } from '@tollkeeper/runtime/log'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { parseReceiptClaims, type ReceiptClaims, zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { tabNonce } from '@tollkeeper/sdk/protocol/tab'
import { parsePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { decodeJwt } from 'jose'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { startCutProxy } from '../../test/support/cutProxy.ts'
import { call, openShop, pay, type Shop } from '../../test/support/gateway.ts'
import { seedSettlement } from '../../test/support/seedPayments.ts'
import { seedTab, settleTab } from '../../test/support/seedTabs.ts'
import { openTab } from '../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../test/support/tabUpkeep.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { findPaymentOrTab } from '../payments/records/tabPayments.ts'

// Purchases on a tab appear in every view, whether the tab is open, closed, settled or was never paid.

const gateway = useGateway()
const shop = useShop(gateway)
let other: Shop
let cheap: Shop

beforeAll(async () => {
  other = await openShop(gateway.app, '0.02')
  cheap = await openShop(gateway.app, '0.0001')
})

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const get = (path: string, key?: string) =>
  call<Body>(gateway.app, 'GET', path, key === undefined ? {} : { key })
const openedTab = async () => openTab(gateway, await gateway.buyer(5_000_000n))
type Tab = Awaited<ReturnType<typeof openedTab>>

/** Closes the tabs that are due at a time, and imports them into the ledger. */
const closeAndTake = (at: number) => openTabUpkeep(gateway, at).closeAndTake()

async function claimsOf(paymentId: string): Promise<ReceiptClaims> {
  const { body } = await get(`/receipts/${paymentId}`)
  return parseReceiptClaims(decodeJwt(body.receipt))
}

/** Records that a state settled the tab, as the keeper does when it finds the state on chain. */
async function move(
  { payer, tabId }: Pick<Tab, 'payer' | 'tabId'>,
  paymentId: string,
  state: 'settled' | 'foreign_use',
  moved: bigint | null,
) {
  const { database } = gateway
  const nonce = tabNonce(gateway.settings.issuer, tabId)
  await gateway.index()
  const txHash = await seedSettlement(
    database,
    { paymentId, payer, nonces: [nonce, nonce] },
    { halves: [0], blockNumber: 1 },
  )
  await database`update authorization_event set state = ${state} where payment_id = ${paymentId}`
  if (moved !== null) await database`update tab_line set moved = ${moved} where payment_id = ${paymentId}`
  return txHash
}

describe('GET /payments/{paymentId} and GET /receipts/{id}', () => {
  test('default: shows a tab from its first request on, then closed, then with the transaction that settled it', async () => {
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    const first = await get(`/payments/${paymentId}`)
    expect([first.status, first.body]).toMatchObject([
      200,
      {
        payment_status: 'verified',
        source: 'tab',
        providerId: null,
        payer: tab.payer,
        totalUsdc: '50000',
        providerUsdc: '47500',
        platformUsdc: '2500',
        provider: { state: 'open', value: '50000', transactionHash: null },
        platform: null,
        tab: {
          tabId: tab.tabId,
          isOpen: true,
          sequence: 1,
          requests: 1,
          closeReason: null,
          closedAt: null,
          lines: null,
        },
      },
    ])
    await tab.buy(other)
    const open = await claimsOf(paymentId)
    expect(open).toMatchObject({
      paymentId,
      providerId: tab.tabId,
      endpointId: tab.tabId,
      resource: tab.tabId,
      totalUsdc: '70000',
      providerUsdc: '66500',
      platformUsdc: '3500',
      status: 'verified',
      transactionHash: zeroHash,
      authorizations: [{ to: gateway.served.deployment.tabSettlement, value: '70000' }],
    })
    expect(open).not.toHaveProperty('tab')

    expect((await tab.close()).status).toBe(200)
    // The tab is closed, but not imported into the ledger yet.
    expect((await get(`/payments/${paymentId}`)).body).toMatchObject({
      payment_status: 'verified',
      totalUsdc: '70000',
      tab: { isOpen: false, closeReason: 'buyer', closedAt: expect.any(String) },
    })
    await closeAndTake(Date.now())
    expect((await get(`/payments/${paymentId}`)).body).toMatchObject({
      payment_status: 'verified',
      totalUsdc: '70000',
      tab: { tabId: tab.tabId, isOpen: false, requests: 2, closeReason: 'buyer' },
    })
    expect(await claimsOf(paymentId)).toMatchObject({
      ...open,
      timestamp: expect.any(String),
      iat: expect.any(Number),
    })
  })

  test('behavior: shows the transaction of a settled tab', async () => {
    const tab = await seedTab(gateway.database, {
      sales: [{ provider: { ...shop, endpointIds: [shop.endpointId] } }],
    })
    expect(await claimsOf(tab.paymentId)).toMatchObject({ status: 'verified', transactionHash: zeroHash })
    const transactionHash = await settleTab(gateway.database, tab, { blockNumber: 1 })
    await gateway.index()
    expect((await get(`/payments/${tab.paymentId}`)).body).toMatchObject({ payment_status: 'settled' })
    expect(await claimsOf(tab.paymentId)).toMatchObject({
      providerId: tab.tabId,
      totalUsdc: '1000',
      platformUsdc: '100',
      status: 'settled',
      transactionHash,
    })
  })

  test('behavior: leaves out reduced and voided charges', async () => {
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    await tab.buy(shop)
    await tab.charge(shop, 1, '0.01')
    await tab.charge(shop, 2, '0')
    expect((await get(`/payments/${paymentId}`)).body).toMatchObject({
      totalUsdc: '10000',
      tab: { requests: 2 },
    })
    expect(await claimsOf(paymentId)).toMatchObject({ totalUsdc: '10000', status: 'verified' })
  })

  test('behavior: shows a tab that expired too small to settle as failed, and a tab without charges as voided', async () => {
    const [small, free] = [await openedTab(), await openedTab()]
    const { paymentId } = (await small.buy(cheap)).body
    const voided = (await free.buy(cheap)).body.paymentId
    await free.charge(cheap, 1, '0')
    const later = Date.now() + 93_700_000
    await closeAndTake(later)
    expect((await get(`/payments/${paymentId}`)).body).toMatchObject({
      payment_status: 'failed',
      failureCode: 'tab_too_small',
      totalUsdc: '100',
    })
    expect(await claimsOf(paymentId)).toMatchObject({ status: 'failed', transactionHash: zeroHash })
    expect((await get(`/payments/${voided}`)).body).toMatchObject({
      payment_status: 'voided',
      totalUsdc: '0',
      voidedAt: expect.any(String),
    })
    expect(await claimsOf(voided)).toMatchObject({ status: 'voided', totalUsdc: '0' })
  })

  test('behavior: a tab that is imported after the ledger was queried, but before the tab store is, is shown as the ledger’s payment', async () => {
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    await tab.close()
    const reads = createTabReads(onOnePostgres(gateway.database))
    const tabReads = {
      readByPayment: async (id: string) => {
        await closeAndTake(Date.now())
        return reads.readByPayment(id)
      },
    }
    const found = await findPaymentOrTab({ sql: gateway.database, tabReads }, paymentId, new Date())
    expect(found).toMatchObject({ paymentId, status: 'verified', failureCode: null })
    expect(found?.storedTab).toBeUndefined()
  })

  test('behavior: shows a provider its own lines, with the same values before and after the tab is imported', async () => {
    const stranger = await openShop(gateway.app)
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    for (const seller of [other, shop, other, shop]) await tab.buy(seller)
    await tab.charge(shop, 3, '0.01')
    await tab.charge(shop, 5, '0')
    const linesFor = async (key?: string) => (await get(`/payments/${paymentId}`, key)).body.tab.lines
    const own = [
      {
        payTo: shop.wallet,
        signedUsdc: '150000',
        movedUsdc: '0',
        requests: 2,
        sales: [
          {
            endpointId: shop.endpointId,
            requests: 2,
            providerUsdc: '57000',
            platformUsdc: '3000',
            settledUsdc: '0',
            lastRequestAt: expect.any(String),
          },
        ],
      },
    ]
    expect(await linesFor(shop.key)).toMatchObject(own)
    expect(await linesFor(other.key)).toMatchObject([{ payTo: other.wallet, requests: 2 }])
    expect([await linesFor(stranger.key), await linesFor()]).toEqual([null, null])
    await tab.buy(shop)
    await tab.charge(shop, 6, '0')
    const open = await linesFor(shop.key)
    await tab.close()
    await closeAndTake(Date.now())
    const sales = (lines: { sales: unknown[] }[]) => lines.flatMap((line) => line.sales)
    expect(sales(await linesFor(shop.key))).toEqual(sales(open))
  })

  test('behavior: shows the timeline of an open tab to the providers that sold on it', async () => {
    const [stranger, unpaid] = [await openShop(gateway.app), await openShop(gateway.app)]
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    await tab.buy(unpaid)
    await tab.charge(unpaid, 2, '0')
    const timelineFor = ({ providerId, key }: Shop) =>
      get(`/providers/${providerId}/payments/${paymentId}/timeline`, key)
    const { openedAt } = (await tab.read()).body
    expect((await timelineFor(shop)).body).toMatchObject({
      paymentId,
      challengedAt: openedAt,
      acceptedAt: openedAt,
      batches: [],
      failures: [],
      mined: null,
      confirmations: 0,
    })
    const statuses = async () => [
      (await timelineFor(shop)).status,
      (await timelineFor(unpaid)).status,
      (await timelineFor(stranger)).status,
    ]
    expect(await statuses()).toEqual([200, 404, 404])
    await tab.close()
    await closeAndTake(Date.now())
    expect(await statuses()).toEqual([200, 404, 404])
  })

  test('behavior: answers while a tab is closed and imported, even if the process dies in between', async () => {
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    await tab.close()
    const dying = openTabUpkeep(gateway, Date.now(), {
      checkpoint: (name) => {
        if (name === 'after-tab-taken') throw new Error('killed')
      },
    })
    const answers: Promise<{ status: number }>[] = []
    const look = () => answers.push(get(`/payments/${paymentId}`), get(`/receipts/${paymentId}`))
    look()
    const taking = expect(dying.closeAndTake()).rejects.toThrow('killed')
    for (let n = 0; n < 5; n++) look()
    await taking
    look()
    const again = closeAndTake(Date.now())
    for (let n = 0; n < 5; n++) look()
    await again
    look()
    expect(new Set((await Promise.all(answers)).map(({ status }) => status))).toEqual(new Set([200]))
  })

  test('behavior: answers for a tab that the tab store marks as imported but a restored ledger lacks', async () => {
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    await tab.close()
    await gateway.database`update tabs.tab set taken_at = now() where payment_id = ${paymentId}`
    expect(await get(`/payments/${paymentId}`)).toMatchObject({
      status: 200,
      body: { payment_status: 'verified', tab: { tabId: tab.tabId, isOpen: false } },
    })
  })

  test('behavior: a tab’s failed or voided payment keeps its status after the tab is deleted from the tab store', async () => {
    const [small, free] = [await openedTab(), await openedTab()]
    const { paymentId } = (await small.buy(cheap)).body
    const voided = (await free.buy(cheap)).body.paymentId
    await free.charge(cheap, 1, '0')
    const later = Date.now() + 93_700_000
    await closeAndTake(later)
    const [failedBefore, voidedBefore] = [
      await get(`/payments/${paymentId}`),
      await get(`/payments/${voided}`),
    ]
    await openTabUpkeep(gateway, later).forget(new Date(Date.now() + 60_000))
    expect([(await small.read()).status, (await free.read()).status]).toEqual([404, 404])
    expect(await get(`/payments/${paymentId}`)).toMatchObject({ status: 200, body: failedBefore.body })
    expect(await get(`/payments/${voided}`)).toMatchObject({ status: 200, body: voidedBefore.body })
    expect(failedBefore.body).toMatchObject({
      payment_status: 'failed',
      failureCode: 'tab_too_small',
      validBefore: expect.any(Number),
      tab: { tabId: small.tabId, isOpen: false, sequence: 1, requests: 1, closeReason: 'expiring' },
    })
    expect(await claimsOf(paymentId)).toMatchObject({ status: 'failed', totalUsdc: '100' })
    expect(await claimsOf(voided)).toMatchObject({ status: 'voided', totalUsdc: '0' })
  })

  test('behavior: a provider cannot void a tab, open or imported, because several providers share it', async () => {
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    const voidIt = async () => {
      const { status, body } = await call<Body>(gateway.app, 'POST', `/payments/${paymentId}/void`, {
        key: shop.key,
      })
      return [status, body.code]
    }
    expect(await voidIt()).toEqual([403, 'forbidden'])
    await tab.close()
    await closeAndTake(Date.now())
    expect(await voidIt()).toEqual([403, 'forbidden'])
  })

  test('error: answers 503 if the tab store is down, because the payment may be an open tab', async () => {
    const url = new URL(gateway.databaseUrl)
    const proxy = await startCutProxy(url.hostname, Number(url.port))
    url.hostname = '127.0.0.1'
    url.port = String(proxy.port)
    const tabs = openDatabase({ url: url.href, max: 1, applicationName: 'tab store' })
    onTestFinished(async () => {
      await tabs.end({ timeout: 1 })
      await proxy.close()
    })
    const app = gateway.withOptions({ tabDatabase: onOnePostgres(tabs), log: createLogger('test', 'silent') })
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    const look = async (path: string) => {
      const { status, body } = await call<Body>(app, 'GET', path)
      return [status, body.code]
    }
    expect(await look(`/payments/${paymentId}`)).toEqual([200, undefined])
    proxy.cut()
    for (const path of ['payments', 'receipts'])
      expect(await look(`/${path}/${paymentId}`)).toEqual([503, 'dependency_unavailable'])
  })

  test('error: answers 404 for an unknown payment', async () => {
    const unknown = `pay_${'0'.repeat(32)}`
    for (const path of ['payments', 'receipts'])
      expect((await get(`/${path}/${unknown}`)).body).toMatchObject({ status: 404, code: 'unknown_payment' })
  })
})

test('behavior: a tab’s waiting time begins with its first purchase, so it settles within an hour of that purchase', async () => {
  const tab = await openedTab()
  const { paymentId } = (await tab.buy(shop)).body
  const boughtAt = Date.now() - 3_500_000
  await gateway.database`
    update tabs.tab set opened_at = ${new Date(boughtAt)} where payment_id = ${paymentId}`
  await closeAndTake(Date.now() + 41_000)
  const [queued] = await gateway.database<{ acceptedAt: Date }[]>`
    select accepted_at as "acceptedAt" from queue where payment_id = ${paymentId}`
  expect(queued?.acceptedAt.getTime()).toBe(boughtAt)
  const { body } = await call<Body>(gateway.another(), 'GET', `/settlements/status?wallet=${shop.wallet}`)
  expect(Date.parse(body.first_payment_at)).toBe(boughtAt)
  expect(Date.parse(body.estimated_settlement)).toBeLessThanOrEqual(
    boughtAt + gateway.settings.triggers.timeMs,
  )
  expect(parseUsdc(body.accumulated_usdc)).toBeGreaterThan(0n)
})

describe('GET /tabs/{tabId}/requests/{sequence}', () => {
  const position = async (tabId: string, sequence: number) => {
    const { body } = await get(`/tabs/${tabId}/requests/${sequence}`, shop.key)
    const { status, transactionHash } = parseReceiptClaims(decodeJwt(body.receipt))
    expect(status).toBe(body.payment_status)
    return [status, transactionHash]
  }
  test('default: shows a request as settled, with the transaction, once its tab has settled', async () => {
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    await tab.buy(shop)
    await tab.charge(shop, 2, '0')
    expect(await position(tab.tabId, 1)).toEqual(['verified', zeroHash])
    expect(await position(tab.tabId, 2)).toEqual(['voided', zeroHash])
    await tab.close()
    expect(await position(tab.tabId, 1)).toEqual(['verified', zeroHash])
    await closeAndTake(Date.now())
    const txHash = await move(tab, paymentId, 'settled', null)
    expect(await position(tab.tabId, 1)).toEqual(['settled', txHash])
    expect(await position(tab.tabId, 2)).toEqual(['voided', zeroHash])
  })

  test('behavior: shows no request as settled if the buyer settled the tab with another platform', async () => {
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    await tab.close()
    await closeAndTake(Date.now())
    await move(tab, paymentId, 'foreign_use', 50_000n)
    await gateway.database`
      update authorization_event set lost_fee_share = 10000 where payment_id = ${paymentId}`
    expect((await position(tab.tabId, 1))[0]).not.toBe('settled')
  })

  test('behavior: if an older state of the tab settled, shows the requests that this state covers as settled', async () => {
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    await tab.buy(shop)
    await tab.close()
    await closeAndTake(Date.now())
    const txHash = await move(tab, paymentId, 'foreign_use', 50_000n)
    expect(await position(tab.tabId, 1)).toEqual(['settled', txHash])
    expect(await position(tab.tabId, 2)).toEqual(['verified', zeroHash])
    const end = { paymentId, kind: 'failed', code: 'authorization_used', isFinal: true } as const
    await endPayments(gateway.database, [end], new Date())
    expect((await get(`/payments/${paymentId}`)).body.payment_status).toBe('failed')
    expect(await position(tab.tabId, 1)).toEqual(['settled', txHash])
    expect(await position(tab.tabId, 2)).toEqual(['failed', zeroHash])
  })
})

describe('GET /providers/{id}/receipts', () => {
  async function list(seller: Shop, query = '') {
    const { body } = await get(`/providers/${seller.providerId}/receipts?${query}`, seller.key)
    const lines = String(body).split('\n').filter(Boolean)
    return lines.map((line) => JSON.parse(line) as { paymentId: string; receipt: string; cursor: string })
  }
  const shown = (lines: Awaited<ReturnType<typeof list>>) =>
    lines.map(({ receipt }) => {
      const { totalUsdc, status, tab } = parseReceiptClaims(decodeJwt(receipt))
      return [tab?.sequence ?? 'alone', totalUsdc, status]
    })

  test('default: lists the receipt of each request on a tab once it is closed, next to the receipts of other payments', async () => {
    const seller = await openShop(gateway.app, '0.02')
    await pay(gateway, seller)
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(seller)).body
    await tab.buy(shop)
    await tab.buy(seller)
    await tab.buy(seller)
    await tab.charge(seller, 3, '0.01')
    await tab.charge(seller, 4, '0')
    gateway.setNow(Date.now() + 60_000)
    expect(shown(await list(seller))).toEqual([['alone', '20000', 'verified']])
    await tab.close()
    await closeAndTake(Date.now())
    const lines = await list(seller)
    expect(shown(lines)).toEqual([
      ['alone', '20000', 'verified'],
      [1, '20000', 'verified'],
      [3, '10000', 'verified'],
      [4, '0', 'voided'],
    ])
    expect(lines.slice(1).map((line) => line.paymentId)).toEqual(Array(3).fill(paymentId))
    // A listed receipt equals the receipt that the request's own route returns.
    const { body } = await get(`/tabs/${tab.tabId}/requests/3`, seller.key)
    const timeless = (receipt: string) => ({ ...decodeJwt(receipt), iat: 0 })
    expect(timeless(lines[2]?.receipt as string)).toEqual(timeless(body.receipt))
    for (const [index, { cursor }] of lines.entries())
      expect(shown(await list(seller, `cursor=${cursor}`))).toEqual(shown(lines).slice(index + 1))
    expect(shown(await list(seller, 'status=voided'))).toEqual([[4, '0', 'voided']])
    expect(shown(await list(seller, `payer=${tab.payer}`))).toHaveLength(3)
    expect(shown(await list(seller, `payer=${`0x${'1'.repeat(40)}`}`))).toEqual([])
    expect(shown(await list(seller, `endpointId=ep_${'0'.repeat(32)}`))).toEqual([])
    expect(shown(await list(seller, `to=${new Date(Date.now() - 3_600_000).toISOString()}`))).toEqual([])
  })

  test('behavior: pages cover tabs longer than a page, and many tabs', async () => {
    const seller = await openShop(gateway.app, '0.000001')
    const tab = await openedTab()
    await tab.buy(shop)
    const { paymentId } = (await tab.buy(seller)).body
    // Adds more than two pages of requests, as if they had been bought.
    await gateway.database`
      insert into tabs.request (price, line_total, accepted_at, sequence, item, payer, tab_id, request_hash, signature)
      select r.price, r.line_total, r.accepted_at, n, r.item, r.payer, r.tab_id, r.request_hash, r.signature
      from tabs.request r join tabs.tab t on t.payer = r.payer and t.id = r.tab_id, generate_series(3, 500) n
      where t.payment_id = ${paymentId} and r.sequence = 2`
    await tab.close()
    for (let n = 0; n < 55; n++)
      await seedTab(gateway.database, {
        sales: [{ provider: { ...seller, endpointIds: [seller.endpointId] } }],
      })
    await closeAndTake(Date.now())
    gateway.setNow(Date.now() + 60_000)
    await pay(gateway, shop)
    const lines = await list(seller)
    expect(shown(lines).map(([sequence]) => sequence)).toEqual(Array.from({ length: 499 }, (_, n) => n + 2))
    expect(new Set(lines.map(({ cursor }) => cursor)).size).toBe(499)
  })
})

describe('GET /settlements/status', () => {
  // A new process answers each request, because a process caches what it has read.
  const statusOf = async (wallet: string) =>
    (await call<Body>(gateway.another(), 'GET', `/settlements/status?wallet=${wallet}`)).body

  test('default: requests on open tabs count as waiting payments for the provider’s wallet and for the platform’s wallet', async () => {
    const seller = await openShop(gateway.app, '0.02')
    const before = await statusOf(gateway.settings.platformWallet)
    expect(await statusOf(seller.wallet)).toMatchObject({ payment_count: 0, estimated_settlement: null })
    const [first, second] = [await openedTab(), await openedTab()]
    const { openedAt } = (await first.buy(seller).then(() => first.read())).body
    await first.buy(seller)
    await first.buy(seller)
    await first.charge(seller, 2, '0')
    await first.charge(seller, 3, '0.01')
    await second.buy(other)
    await second.buy(seller)
    const waiting = {
      payment_count: 3,
      accumulated_usdc: '0.047500',
      first_payment_at: openedAt,
      held_by: null,
    }
    expect(await statusOf(seller.wallet)).toMatchObject({
      ...waiting,
      estimated_settlement: new Date(
        Date.parse(openedAt as string) + gateway.settings.triggers.timeMs,
      ).toISOString(),
    })
    const platform = await statusOf(gateway.settings.platformWallet)
    // 5% of 0.03 USDC and of 0.02 USDC here, and of 0.02 USDC at the other seller.
    expect(parseUsdc(platform.accumulated_usdc) - parseUsdc(before.accumulated_usdc)).toBe(3_500n)
    expect(platform.payment_count - before.payment_count).toBe(4)
    // After the tab is closed and imported, the same payments wait, and none of them is counted twice.
    await first.close()
    expect(await statusOf(seller.wallet)).toMatchObject(waiting)
    await closeAndTake(Date.now())
    expect(await statusOf(seller.wallet)).toMatchObject({
      accumulated_usdc: '0.047500',
      first_payment_at: openedAt,
    })
  })

  test('behavior: a tab that is too small to settle waits until it expires', async () => {
    const seller = await openShop(gateway.app, '0.0001')
    const tab = await openedTab()
    await tab.buy(seller)
    const { expiresAt } = (await tab.read()).body
    expect(await statusOf(seller.wallet)).toMatchObject({
      payment_count: 1,
      accumulated_usdc: '0.000090',
      estimated_settlement: expiresAt,
    })
  })
})

/** A `fetch` that needs no server: it answers as the seller, and passes requests for the gateway to the gateway's app. */
const fetchFrom =
  (seller: Shop): typeof fetch =>
  async (input, init) => {
    const { issuer } = gateway.settings
    if (String(input).startsWith(issuer)) return gateway.app.request(String(input).slice(issuer.length), init)
    const { providerId, endpointId } = seller
    const header = new Headers(init?.headers).get('payment-signature')
    const payment = header === null ? undefined : parsePaymentHeader(header)
    if (payment?.scheme !== 'tab') {
      const { body } = await call(gateway.app, 'POST', '/challenge', { json: { providerId, endpointId } })
      return Response.json(body, { status: 402 })
    }
    const { macaroon, tab } = payment
    const json = { macaroon, tab, providerId, endpointId, x402Version: 2 }
    const { status, body } = await call<Body>(gateway.app, 'POST', '/verify', { json })
    return Response.json(body, {
      status,
      headers: { 'service-receipt': body.receipt, 'service-payment-id': body.paymentId },
    })
  }

test('behavior: our client waits until its purchases on a tab have settled, whether it closes the tab or not', async () => {
  const account = await gateway.buyer(5_000_000n)
  const client = createClient({
    gatewayUrl: gateway.settings.issuer,
    network: 'localhost',
    account,
    usdcAddress: gateway.served.token,
    limits: { perPayment: '1' },
    tabs: true,
    fetch: fetchFrom(shop),
  })
  for (const closes of [true, false]) {
    const { paymentId = '', payment } = await client.request(shop.url)
    const payer = account.address.toLowerCase() as `0x${string}`
    const tabId = payment?.tab?.tab ?? ''
    const settlement = client.waitForSettlement(paymentId, { pollingInterval: 20, timeoutMs: 10_000 })
    if (closes) await client.close()
    await closeAndTake(Date.now() + (closes ? 0 : 301_000))
    const paymentTxHash = await move({ payer, tabId }, paymentId, 'settled', null)
    const settled = await settlement
    expect(settled).toMatchObject({ paymentId, status: 'settled', paymentTxHash })
    expect(parseReceiptClaims(decodeJwt(settled.receipt))).toMatchObject({ paymentId, totalUsdc: '50000' })
  }
})
