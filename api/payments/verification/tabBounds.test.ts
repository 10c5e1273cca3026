import { maxIdleTabLines } from '@tollkeeper/sdk/protocol/tab'
import { describe, expect, test } from 'vitest'
import { call, openShop, type Shop, signedBody } from '../../../test/support/gateway.ts'
import { codesOf, openTab, readReserved } from '../../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../../test/support/tabUpkeep.ts'
import { until } from '../../../test/support/until.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway)
const price = 50_000n

const reserved = (tabId: string) => readReserved(gateway.database, tabId)
const openedTab = async (usdc = 5_000_000n) => openTab(gateway, await gateway.buyer(usdc))

describe('lines', () => {
  /** Adds lines on which nothing is bought to the buyer's state. */
  function addIdleLines(tab: ReturnType<typeof openTab>, count: number): void {
    for (let n = 0; n < count; n++) tab.lines.push({ split: BigInt(randomHex(32)), amount: 0n })
  }

  test('error: rejects a state with more than eight lines on which nothing was bought', async () => {
    const others = await Promise.all(Array.from({ length: 2 }, () => openShop(gateway.app, '0.05')))
    const tab = await openedTab()
    addIdleLines(tab, maxIdleTabLines)
    expect((await tab.buy(shop)).status).toBe(200)
    // This request buys on the second shop's line, so that line isn't idle.
    expect((await tab.buy(others[0] as Shop)).status).toBe(200)
    addIdleLines(tab, 1)
    const refused = await tab.buy(others[1] as Shop)
    expect(refused.body).toMatchObject({ code: 'tab_mismatch', detail: expect.stringContaining('at most 8') })
    expect((await tab.read()).body).toMatchObject({ requests: 2 })
    // A state without these lines can still buy.
    tab.lines.splice(-2)
    expect((await tab.buy(others[1] as Shop)).status).toBe(200)
  })

  test('error: rejects a new tab with more than eight idle lines before reserving credit', async () => {
    const tab = await openedTab()
    addIdleLines(tab, maxIdleTabLines + 1)
    expect((await tab.buy(shop)).body.code).toBe('tab_mismatch')
    expect([await reserved(tab.tabId), (await tab.read()).status]).toEqual([undefined, 404])
  })

  test('error: concurrent requests can’t bring the tab above eight idle lines', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    const shops = await Promise.all(Array.from({ length: 2 }, () => openShop(gateway.app, '0.01')))
    const bodies = []
    for (const own of shops) {
      addIdleLines(tab, 5)
      bodies.push(await tab.sign(own))
    }
    const answers = await Promise.all(bodies.map((body) => tab.present(body)))
    const lines = (await tab.read()).body.lines as unknown[]
    expect(codesOf(answers)).toContain('tab_mismatch')
    expect(lines.length).toBeLessThanOrEqual(2 + maxIdleTabLines)
  })

  test('behavior: keeps two lines with the same split separate, also in the settlement', async () => {
    const tab = await openedTab()
    expect((await tab.buy(shop)).status).toBe(200)
    const { macaroon } = await tab.challenge(shop)
    tab.lines.push({ split: tab.lines[0]?.split as bigint, amount: price })
    const { providerId, endpointId } = shop
    const second = { macaroon, tab: await tab.signState(1), providerId, endpointId, x402Version: 2 }
    expect((await tab.present(second)).status).toBe(200)
    expect((await tab.close()).status).toBe(200)
    await openTabUpkeep(gateway, Date.now()).closeAndTake()
    const { body: closed } = await tab.read()
    const lines = await gateway.database`
      select amount, charged from tab_line where payment_id = ${closed.paymentId as string} order by position`
    expect(lines).toEqual(Array(2).fill({ amount: price, charged: price }))
  })

  test('behavior: a process that does not know a tab reads all its lines from the store', async () => {
    const shops = await Promise.all(Array.from({ length: 12 }, () => openShop(gateway.app, '0.01')))
    const tab = await openedTab()
    for (const own of shops) expect((await tab.buy(own)).status).toBe(200)
    const next = await tab.sign(shops[11] as Shop)
    expect((await tab.present(next, { app: gateway.another() })).status).toBe(200)
  })

  test('error: each further line raises the minimum amount for settling a tab by a fifth', async () => {
    const shops = await Promise.all(Array.from({ length: 6 }, () => openShop(gateway.app, '0.0016')))
    const tab = await openedTab()
    for (const own of shops) await tab.buy(own)
    // 0.0096 USDC on six lines, which settle only from 0.010 USDC on.
    expect((await tab.close()).body).toMatchObject({
      code: 'tab_too_small',
      detail: expect.stringContaining('0.010000'),
    })
    await tab.buy(shops[0] as Shop)
    expect((await tab.close()).status).toBe(200)
  })

  test('behavior: a tab on which the buyer has credit on one line settles the charges of its other lines', async () => {
    const [first, second] = [await openShop(gateway.app, '0.0016'), await openShop(gateway.app, '0.006')]
    const tab = await openedTab()
    const body = await tab.sign(first)
    await gateway.database`insert into tabs.credit ${gateway.database({
      payer: Buffer.from(tab.payer.slice(2), 'hex'),
      chain_id: gateway.served.network.chainId,
      split: Buffer.from((tab.lines[0]?.split ?? 0n).toString(16).padStart(64, '0'), 'hex'),
      amount: 5_000n,
    })}`
    await tab.present(body)
    await tab.buy(second)
    // 0.006 USDC on two lines, which is exactly their minimum. 0.0034 USDC of the credit are left.
    expect((await tab.close()).status).toBe(200)
  })
})

describe('closing', () => {
  test('behavior: lets the buyer close its tab with exactly the charged amounts, and then refuses further requests', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    await tab.buy(shop)
    await tab.charge(shop, 2, '0.01')
    const own = tab.lines[0] as (typeof tab.lines)[number]
    own.amount = 60_000n
    const { status, body } = await tab.close()
    expect([status, body.closeReason, body.signedUsdc]).toEqual([200, 'buyer', '0.060000'])
    expect((await tab.buy(shop)).body.code).toBe('tab_closed')
    expect((await tab.charge(shop, 1, '0')).body.code).toBe('payment_claimed')
    // Closing it again has the same result.
    expect((await tab.close()).status).toBe(200)
  })

  test('error: refuses to close a tab with a state below the charges, an older state, or a state with other terms', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    expect((await tab.close({ amount: price - 1n })).body.code).toBe('tab_behind')
    expect((await tab.close({ sequence: 1 })).body.code).toBe('tab_behind')
    expect((await tab.close({ terms: { rewardShare: 0 } })).body.code).toBe('invalid_signature')
    expect((await tab.read()).body).toMatchObject({ closedAt: null })
  })

  test('error: refuses another payer that signs for the tab’s id', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    const thief = openTab(gateway, await gateway.buyer(1_000_000n))
    thief.lines.push(...tab.lines.map((line) => ({ ...line })))
    const state = await thief.signState(0, { known: 0, tabId: tab.tabId, sequence: 2 })
    const { body } = await call(gateway.app, 'POST', `/tabs/${tab.tabId}/close`, { json: { tab: state } })
    expect(body.code).toBe('unknown_tab')
    expect((await tab.read()).body).toMatchObject({ closedAt: null })
  })

  test('error: refuses to close a tab that is too small to settle', async () => {
    const cheap = await openShop(gateway.app, '0.0001')
    const tab = await openedTab()
    await tab.buy(cheap)
    expect((await tab.close()).body.code).toBe('tab_too_small')
    expect((await tab.buy(cheap)).status).toBe(200)
  })
})

describe('credit', () => {
  const expensiveShop = () => openShop(gateway.app, '0.3')

  test('behavior: limits the total that a payer may owe on all its tabs', async () => {
    const payer = await gateway.buyer(5_000_000n)
    const expensive = await expensiveShop()
    const [one, two] = [openTab(gateway, payer), openTab(gateway, payer)]
    expect(codesOf([await one.buy(expensive), await one.buy(expensive), await two.buy(expensive)])).toEqual(
      Array(3).fill('verified'),
    )
    expect((await two.buy(expensive)).body.code).toBe('tab_limit_exceeded')
    expect([await reserved(one.tabId), await reserved(two.tabId)]).toEqual([600_000n, 300_000n])
  })

  test('behavior: one reservation of credit serves many requests', async () => {
    const cheap = await openShop(gateway.app, '0.001')
    const tab = await openedTab()
    for (let n = 0; n < 33; n++) expect((await tab.buy(cheap)).status).toBe(200)
    expect(await reserved(tab.tabId)).toBe(64_000n)
  })

  test('behavior: serves hundreds of concurrent requests, and reserves credit as often as they need it', async () => {
    const cheap = await openShop(gateway.app, '0.001')
    const tab = await openedTab()
    await tab.buy(cheap)
    const signed = []
    for (let n = 0; n < 400; n++) signed.push(await tab.sign(cheap))
    const answers = await Promise.all(signed.map((body) => tab.present(body)))
    expect(new Set(codesOf(answers))).toEqual(new Set(['verified']))
    expect((await tab.read()).body).toMatchObject({ requests: 401, chargedUsdc: '0.401000' })
  })

  test('behavior: never lends more than the payer’s balance minus everything else that it owes', async () => {
    const payer = await gateway.buyer(400_000n)
    const expensive = await expensiveShop()
    const exact = await signedBody(gateway, shop, payer)
    expect((await call(gateway.app, 'POST', '/verify', { json: exact })).status).toBe(200)
    const tab = openTab(gateway, payer)
    expect((await tab.buy(expensive)).status).toBe(200)
    // The gateway caches the payer's debt, and the code of a refusal depends on it. So the test repeats the request until the new debt has been read.
    await until(
      'the refusal names the balance',
      async () => (await tab.buy(expensive)).body.code === 'insufficient_balance',
    )
    expect((await tab.buy(shop)).status).toBe(200)
    // Amounts on the tab also count when an ordinary payment is checked.
    const another = await signedBody(gateway, shop, payer)
    expect((await call(gateway.app, 'POST', '/verify', { json: another })).body.code).toBe(
      'insufficient_balance',
    )
  })

  test('behavior: reserves and lends nothing for the tab of another payer', async () => {
    const [tab, thief] = [await openedTab(), openTab(gateway, await gateway.buyer(5_000_000n))]
    await tab.buy(shop)
    const read = () => gateway.database`
      select (select sum(lent) from tab_budget) as lent, (select sum(accepted_total) from payer) as accepted`
    const before = await read()
    const stolen = await thief.present(await thief.sign(shop, { tabId: tab.tabId }))
    expect(stolen.body.code).toBe('tab_mismatch')
    expect(await read()).toEqual(before)
  })

  test('behavior: all payers without a settled payment share one daily budget, regardless of their number', async () => {
    const app = gateway.another({
      tabs: {
        credit: { base: 1_000_000n, basisPoints: 1_000n },
        budget: 700_000n,
        rewardShare: 1_000,
        earnedHours: 1,
      },
    })
    const day = Date.now() + 5 * 86_400_000
    gateway.setNow(day)
    const expensive = await expensiveShop()
    const codes: string[] = []
    for (let n = 0; n < 4; n++) {
      const tab = openTab(gateway, await gateway.buyer(5_000_000n), day)
      codes.push(...codesOf([await tab.present(await tab.sign(expensive), { app })]))
    }
    expect(codes).toEqual(['verified', 'verified', 'tab_limit_exceeded', 'tab_limit_exceeded'])
  })
})
