import { openDatabase } from '@tollkeeper/ledger/store/database'
import { closingTimeOf } from '@tollkeeper/ledger/tabs/closeTabs'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { createTabReads } from '@tollkeeper/ledger/tabs/tabReads'
import { createLogger } from '@tollkeeper/runtime/log'
import { tabNonce } from '@tollkeeper/sdk/protocol/tab'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { startCutProxy } from '../../test/support/cutProxy.ts'
import { call, openShop, type Shop } from '../../test/support/gateway.ts'
import { seedTab, settleTab } from '../../test/support/seedTabs.ts'
import { openTab } from '../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../test/support/tabUpkeep.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)
const other = {} as Shop
beforeEach(async () => {
  Object.assign(other, await openShop(gateway.app, '0.02'))
})

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const get = (query = '', of = shop, app = gateway.app) =>
  call<Body>(app, 'GET', `/providers/${of.providerId}/tabs${query}`, { key: of.key })
const openedTab = async () => openTab(gateway, await gateway.buyer(5_000_000n))
const closeAndTake = (at = Date.now()) => openTabUpkeep(gateway, at).closeAndTake()

/** Registers another endpoint. */
async function addEndpoint(
  of: Shop,
  path: string,
  usdcPerUnit: string,
  walletId = of.walletId,
): Promise<Shop> {
  const url = `${new URL(of.url).origin}${path}`
  const { body } = await call<Body>(gateway.app, 'POST', `/providers/${of.providerId}/endpoints`, {
    key: of.key,
    json: { url, method: 'GET', pricing: { usdcPerUnit }, walletId },
  })
  return { ...of, endpointId: body.endpointId, url }
}

describe('GET /providers/{id}/tabs', () => {
  test("behavior: shows an open tab with the provider's own requests alone", async () => {
    const second = await addEndpoint(shop, '/second', '0.03')
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    for (const seller of [other, second, shop, other, second]) await tab.buy(seller)
    await tab.charge(second, 6, '0')
    await tab.charge(shop, 4, '0.01')
    const { status, body } = await get()
    expect(status).toBe(200)
    expect(body.tabs).toEqual([
      {
        tabId: tab.tabId,
        paymentId,
        network: 'localhost',
        payer: tab.payer,
        state: 'open',
        payment_status: 'verified',
        openedAt: expect.any(String),
        lastRequestAt: expect.any(String),
        closesAt: expect.any(String),
        closeReason: 'idle',
        requests: 3,
        amount_usdc: '0.090000',
        net_usdc: '0.085500',
        // A reduced charge doesn't change what is signed.
        signed_usdc: '0.160000',
        lines: [
          {
            endpointId: shop.endpointId,
            requests: 2,
            amount_usdc: '0.060000',
            net_usdc: '0.057000',
            lastRequestAt: expect.any(String),
          },
          {
            endpointId: second.endpointId,
            requests: 1,
            amount_usdc: '0.030000',
            net_usdc: '0.028500',
            lastRequestAt: body.tabs[0].lastRequestAt,
          },
        ],
      },
    ])
    expect(body).toMatchObject({ cursor: null, indexedBlocks: { localhost: expect.any(Number) } })
    expect((await get('', other)).body.tabs).toMatchObject([
      { paymentId, requests: 2, amount_usdc: '0.040000', lines: [{ endpointId: other.endpointId }] },
    ])
    const stranger = await openShop(gateway.app)
    expect((await get('', stranger)).body.tabs).toEqual([])
  })

  test('behavior: shows the same amounts once the tab is closing, closed and settled', async () => {
    const tab = await openedTab()
    const { paymentId } = (await tab.buy(shop)).body
    for (const seller of [other, shop, other]) await tab.buy(seller)
    await tab.charge(shop, 3, '0.01')
    const [open] = (await get()).body.tabs
    await tab.close()
    const [closing] = (await get()).body.tabs
    const { closesAt: _, state: __, closeReason: ___, signed_usdc: ____, ...kept } = open
    expect(closing).toMatchObject({ ...kept, state: 'closing', closeReason: 'buyer' })
    await closeAndTake()
    expect((await get()).body.tabs).toEqual([])
    for (const query of ['?state=closed', '?state=all', `?state=all&paymentId=${paymentId}`]) {
      const { tabs } = (await get(query)).body
      expect(tabs, query).toMatchObject([{ ...kept, state: 'closed', closeReason: 'buyer' }])
      expect(Date.parse(tabs[0].closesAt)).toBe(Date.parse(closing.closesAt))
    }
    const [item] = await gateway.database<{ isTaken: boolean }[]>`
      select bool_and(is_taken) as "isTaken" from tabs.item where tab_id = ${Buffer.from(tab.tabId.slice(4), 'hex')}`
    expect(item?.isTaken).toBe(true)
  })

  test('behavior: shows a settled tab as settled', async () => {
    const tab = await seedTab(gateway.database, {
      sales: [{ provider: { ...shop, endpointIds: [shop.endpointId] } }],
    })
    await settleTab(gateway.database, tab, { blockNumber: 1 })
    expect((await get('?state=closed')).body.tabs).toMatchObject([
      { paymentId: tab.paymentId, payment_status: 'settled', amount_usdc: '0.001000', net_usdc: '0.000900' },
    ])
  })

  test('behavior: leaves out a tab on which the provider charged nothing', async () => {
    const tab = await openedTab()
    await tab.buy(other)
    await tab.buy(shop)
    await tab.charge(shop, 2, '0')
    expect((await get()).body.tabs).toEqual([])
    await tab.charge(shop, 2, '0.05')
    expect((await get()).body.tabs).toMatchObject([{ requests: 1, amount_usdc: '0.050000' }])
  })

  test("behavior: doesn't show another provider's sales, even if they pay the same wallet", async () => {
    const twin = await openShop(gateway.app, '0.07')
    const { body } = await call<Body>(gateway.app, 'POST', `/providers/${twin.providerId}/wallets`, {
      key: twin.key,
      json: { network: 'localhost', address: shop.wallet },
    })
    const same = await addEndpoint(twin, '/same', '0.07', body.walletId)
    const tab = await openedTab()
    await tab.buy(shop)
    await tab.buy(same)
    const own = { requests: 1, amount_usdc: '0.050000', signed_usdc: '0.050000' }
    expect((await get()).body.tabs).toMatchObject([own])
    expect((await get('', same)).body.tabs).toMatchObject([
      { amount_usdc: '0.070000', signed_usdc: '0.070000' },
    ])
    await tab.close()
    await closeAndTake()
    expect((await get('?state=closed')).body.tabs).toMatchObject([own])
  })

  test('behavior: pages contain each open or closed tab once', async () => {
    const sales = [{ provider: { ...shop, endpointIds: [shop.endpointId] } }]
    for (let n = 0; n < 3; n++) await seedTab(gateway.database, { sales })
    const opened: string[] = []
    for (let n = 0; n < 3; n++) opened.unshift((await (await openedTab()).buy(shop)).body.paymentId)
    const idsOf = ({ tabs }: Body): string[] => tabs.map(({ paymentId }: Body) => paymentId)
    const all = idsOf((await get('?state=all')).body)
    expect(all.slice(0, 3)).toEqual(opened)
    expect(new Set(all).size).toBe(6)
    for (const [state, expected] of [
      ['all', all],
      ['open', all.slice(0, 3)],
      ['closed', all.slice(3)],
    ] as const)
      for (const limit of [1, 2, 3]) {
        const found: string[] = []
        let cursor = ''
        do {
          const { body } = await get(`?state=${state}&limit=${limit}${cursor && `&cursor=${cursor}`}`)
          found.push(...idsOf(body))
          cursor = body.cursor
        } while (cursor !== null)
        expect(found, `${state} ${limit}`).toEqual(expected)
      }
    const { cursor } = (await get('?state=all&limit=1')).body
    expect((await get(`?state=open&limit=1&cursor=${cursor}`)).body.code).toBe('invalid_cursor')
  })

  test('behavior: finds tabs by their payer and network', async () => {
    const [first, second] = [await openedTab(), await openedTab()]
    await first.buy(shop)
    await second.buy(shop)
    expect((await get(`?payer=${first.payer}`)).body.tabs).toMatchObject([{ tabId: first.tabId }])
    expect((await get('?network=localhost')).body.tabs).toHaveLength(2)
    expect((await get(`?paymentId=pay_${'0'.repeat(32)}`)).body.tabs).toEqual([])
    expect(await get('?payer=me')).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
  })

  test("error: refuses another provider's key", async () => {
    const { status, body } = await call<Body>(gateway.app, 'GET', `/providers/${shop.providerId}/tabs`, {
      key: other.key,
    })
    expect([status, body.code]).toEqual([403, 'forbidden'])
  })

  test('error: answers 503 while the tab store is down', async () => {
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
    expect((await get('', shop, app)).status).toBe(200)
    proxy.cut()
    expect(await get('', shop, app)).toMatchObject({ status: 503, body: { code: 'dependency_unavailable' } })
    expect((await get('?state=closed', shop, app)).status).toBe(200)
  })

  test('behavior: a tab closes at the time and for the reason that the list shows', async () => {
    const least = '0.0001'
    const small = await openShop(gateway.app, least)
    const cases = [
      { seller: shop, change: gateway.database`used_at = used_at`, reason: 'idle' },
      { seller: shop, change: gateway.database`opened_at = now() - interval '58 minutes'`, reason: 'old' },
      { seller: small, change: gateway.database`used_at = used_at`, reason: 'expiring' },
    ] as const
    for (const { seller, change, reason } of cases) {
      const tab = await openedTab()
      const { paymentId } = (await tab.buy(seller)).body
      await gateway.database`update tabs.tab set ${change} where payment_id = ${paymentId}`
      const [shown] = (await get(`?paymentId=${paymentId}`, seller)).body.tabs
      expect(shown.closeReason).toBe(reason)
      const closesAt = Date.parse(shown.closesAt)
      const closeReason = async (at: number) => {
        await closeAndTake(at)
        return (await tab.read()).body.closeReason
      }
      expect([reason, await closeReason(closesAt - 1_000)]).toEqual([reason, null])
      expect([reason, await closeReason(closesAt + 1_001)]).toEqual([reason, reason])
    }
  })

  test('behavior: counts match the stored requests, regardless of what is bought and charged', async () => {
    const second = await addEndpoint(shop, '/second', '0.03')
    const tab = await openedTab()
    const sellers = [shop, second, other]
    let random = 7
    const next = (below: number) => {
      random = (random * 48_271) % 2_147_483_647
      return random % below
    }
    const bought: Shop[] = []
    const { paymentId } = (await tab.buy(shop)).body
    bought.push(shop)
    for (let step = 0; step < 40; step++) {
      if (next(2) === 0) {
        const seller = sellers[next(3)] as Shop
        await tab.buy(seller)
        bought.push(seller)
      } else {
        const at = next(bought.length)
        await tab.charge(bought[at] as Shop, at + 1, ['0', '0.01', '0.005', '0.02'][next(4)] as string)
      }
    }
    const reads = createTabReads(onOnePostgres(gateway.database))
    const stored = await reads.readByPayment(paymentId)
    if (stored === undefined) throw new Error('the tab is stored')
    const sales = await reads.readSales(stored)
    for (const of of [shop, other]) {
      const own = sales.filter(({ providerId }) => providerId === of.providerId)
      const [found] = await reads.findCurrent({ providerId: of.providerId, after: null, limit: 1 })
      const sum = (amounts: bigint[]) => amounts.reduce((total, one) => total + one, 0n)
      expect(sum(found?.items.map(({ charged }) => charged) ?? [])).toBe(
        sum(own.map(({ providerAmount, feeAmount }) => providerAmount + feeAmount)),
      )
      expect(found?.items.reduce((total, { requests }) => total + requests, 0)).toBe(
        own.reduce((total, { requests }) => total + requests, 0),
      )
    }
  })
})

describe('closingTimeOf', () => {
  const at = new Date('2026-11-21T12:00:00Z')
  const rules = {
    idleMs: 300_000,
    ageMs: 3_540_000,
    earnedTimes: 3,
    requests: 50_000,
    amount: 10_000_000n,
    expiryLeadMs: 3_600_000,
    least: new Map([[1, 1_000n]]),
  }
  const tab = {
    chainId: 1,
    openedAt: at,
    usedAt: at,
    expiresAt: at.getTime() / 1000 + 93_600,
    requests: 1,
    charged: 2_000n,
    lines: 1,
    reserved: 5_000n,
    lent: 5_000n,
    credit: 100_000n,
  }
  test.each([
    ['idle', {}, 300_000],
    ['within earned credit, and therefore stays open several times as long', { lent: 0n }, 900_000],
    ['without charges, and therefore closes as if no credit were earned', { charged: 0n, lent: 0n }, 300_000],
    ['too small for its lines, and therefore stays open until it expires', { lines: 8 }, 90_000_000],
    [
      'on a network that is no longer served, and therefore stays open until it expires',
      { chainId: 2 },
      90_000_000,
    ],
    ['at the maximum amount', { charged: 10_000_000n, credit: null }, 0],
    ['at the maximum number of requests', { requests: 50_000 }, 0],
    ['at four fifths of the credit', { charged: 80_000n }, 0],
    ['without a credit limit', { charged: 80_000n, credit: null }, 300_000],
  ])('behavior: returns the closing time of a tab that is %s', (_, change, afterMs) => {
    expect(closingTimeOf({ ...tab, ...change }, rules).at.getTime() - at.getTime()).toBe(afterMs)
  })
})

describe('GET /authorizations/{authorizer}/{nonce}', () => {
  const statusOf = async ({ payer, tabId }: { payer: string; tabId: string }) => {
    const nonce = tabNonce(gateway.settings.issuer, tabId)
    const { status, body } = await call<Body>(gateway.app, 'GET', `/authorizations/${payer}/${nonce}`)
    return [status, body.payment_status ?? body.code]
  }

  test('behavior: finds a tab by its nonce, from the first request on, also after its payment failed', async () => {
    const [tab, unpaid] = [await openedTab(), await openedTab()]
    expect(await statusOf(tab)).toEqual([404, 'unknown_payment'])
    await tab.buy(shop)
    expect(await statusOf(tab)).toEqual([200, 'verified'])
    await tab.close()
    expect(await statusOf(tab)).toEqual([200, 'verified'])
    await closeAndTake()
    expect(await statusOf(tab)).toEqual([200, 'verified'])
    await unpaid.buy(await openShop(gateway.app, '0.0001'))
    const later = Date.now() + 93_700_000
    await closeAndTake(later)
    expect(await statusOf(unpaid)).toEqual([200, 'failed'])
    await openTabUpkeep(gateway, later).forget(new Date(Date.now() + 60_000))
    expect(await statusOf(unpaid)).toEqual([200, 'failed'])
    expect(await statusOf({ ...tab, payer: unpaid.payer })).toEqual([404, 'unknown_payment'])
  })
})
