import type { App } from '@tollkeeper/api/http/app'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { closingTimes, createTabUpkeep } from '@tollkeeper/ledger/tabs/upkeep'
import { expect, test } from 'vitest'
import { noBadRows } from '../support/badRows.ts'
import { call } from '../support/gateway.ts'
import { openTab } from '../support/tabBuyer.ts'
import { findTakenTab } from '../support/takenTab.ts'
import { death, portOf } from './children.ts'
import type { ApiStep } from './crashingApi.ts'
import { useCrashingApi } from './useCrashingApi.ts'

// A gateway dies at each step of an open tab. packages/ledger/tabs/upkeep.test.ts and keeper.test.ts cover the steps after the tab is closed.

const { gateway, shop, startApi } = useCrashingApi()

/** Starts a gateway that dies at a step. `died` resolves when it has killed itself. */
async function startDying(crashAt: ApiStep): Promise<{ app: App; died: Promise<void> }> {
  const child = startApi(crashAt)
  const died = death(child)
  const url = `http://127.0.0.1:${await portOf(child)}`
  const request = (path: string, init?: RequestInit) => fetch(`${url}${path}`, init)
  return { app: { request } as unknown as App, died }
}

const upkeep = () =>
  createTabUpkeep({
    sql: gateway.database,
    tabs: onOnePostgres(gateway.database),
    networks: [gateway.served],
    rules: { ...closingTimes, amount: 10_000_000n },
    minimumPrices: {},
    onBadRow: noBadRows,
    now: () => new Date(),
  })

/** Closes a tab and adds it to the ledger. Checks that the tab becomes one payment, which replaces all its reservations. */
async function expectTaken(tab: ReturnType<typeof openTab>, value: bigint): Promise<void> {
  await tab.close()
  await upkeep().closeAndTake()
  const { body } = await tab.read()
  expect(await findTakenTab(gateway.database, body.paymentId as string)).toMatchObject({ value })
  expect(await gateway.database`select from tab_reservation where tab_id = ${tab.tabId}`).toEqual([])
}

test.each([
  ['before-reservation', 0],
  ['before-tab-commit', 0],
  ['before-tab-commit', 1],
  ['after-commit', 0],
  ['after-commit', 1],
] as const)(
  'behavior: a repeated request is charged once if the gateway dies at %s, with %i earlier requests on the tab',
  async (step, others) => {
    const tab = openTab(gateway, await gateway.buyer(1_000_000n))
    for (let n = 0; n < others; n++) expect((await tab.buy(shop)).status).toBe(200)
    const body = await tab.sign(shop)
    const { app, died } = await startDying(step)
    await expect(tab.present(body, { app, key: 'one' })).rejects.toThrow('fetch failed')
    await died
    const stored = step === 'after-commit' ? others + 1 : others
    expect((await tab.read()).body.requests ?? 0).toBe(stored)
    const answers = [await tab.present(body, { key: 'one' }), await tab.present(body, { key: 'one' })]
    expect(answers.map(({ body }) => [body.verified, body.tab?.sequence])).toEqual(
      Array(2).fill([true, others + 1]),
    )
    expect((await tab.present(body)).body.code).toBe('payment_replayed')
    expect((await tab.read()).body.requests).toBe(others + 1)
    await expectTaken(tab, BigInt(others + 1) * 50_000n)
  },
)

test.each(['before-charge', 'after-charge'] as const)(
  'behavior: if the gateway dies at %s while a provider reduces a charge, the provider’s repeated call leaves the charge reduced only once',
  async (step) => {
    const tab = openTab(gateway, await gateway.buyer(1_000_000n))
    for (let n = 0; n < 2; n++) await tab.buy(shop)
    const { app, died } = await startDying(step)
    const charging = call(app, 'POST', `/tabs/${tab.tabId}/requests/2/charge`, {
      key: shop.key,
      json: { amount: '0.02' },
    })
    await expect(charging).rejects.toThrow('fetch failed')
    await died
    expect((await tab.read()).body.chargedUsdc).toBe(step === 'after-charge' ? '0.070000' : '0.100000')
    expect((await tab.charge(shop, 2, '0.02')).status).toBe(200)
    const [line] = tab.lines
    if (line) line.amount = 70_000n
    await expectTaken(tab, 70_000n)
  },
)

test.each(['before-close', 'after-close'] as const)(
  'behavior: if the gateway dies at %s while a buyer closes a tab, the buyer’s repeated call closes the tab with the same state',
  async (step) => {
    const tab = openTab(gateway, await gateway.buyer(1_000_000n))
    await tab.buy(shop)
    const last = { json: { tab: await tab.signState(0, { known: 0 }) } }
    const { app, died } = await startDying(step)
    await expect(call(app, 'POST', `/tabs/${tab.tabId}/close`, last)).rejects.toThrow('fetch failed')
    await died
    expect((await tab.read()).body.closeReason).toBe(step === 'after-close' ? 'buyer' : null)
    const { status, body } = await call(gateway.app, 'POST', `/tabs/${tab.tabId}/close`, last)
    expect([status, body.closeReason, body.sequence]).toEqual([200, 'buyer', 2])
    await expectTaken(tab, 50_000n)
  },
)
