import { afterAll, expect, test } from 'vitest'
import { noBadRows } from '../../../test/support/badRows.ts'
import { createTestDatabase } from '../../../test/support/database.ts'
import { call } from '../../../test/support/gateway.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { findTakenTab } from '../../../test/support/takenTab.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { endPayments } from '../queue/stages.ts'
import { openTabDatabase, type TabDatabase } from './tabDatabase.ts'
import { createTabStore } from './tabStore.ts'
import { closingTimes, createTabUpkeep } from './upkeep.ts'

// The tab store in a separate Postgres without Citus: no statement may join it with the ledger. For Citus see citus.test.ts.

const gateway = useGateway()
const shop = useShop(gateway)
const opened: TabDatabase[] = []
afterAll(() => Promise.all(opened.map((one) => one.end({ timeout: 1 }))))

async function openOwn(url: string): Promise<TabDatabase> {
  const tabs = await openTabDatabase({ url, ledger: gateway.database, applicationName: 'test' })
  opened.push(tabs)
  return tabs
}

test('default: purchases on a tab in another database, a lower charge, closing, the import into the ledger and a credit work', async () => {
  const url = await createTestDatabase()
  // Two processes that start at the same time create the store once.
  const [tabs] = (await Promise.all([openOwn(url), openOwn(url)])) as [TabDatabase, TabDatabase]
  const app = gateway.withOptions({ tabDatabase: tabs })
  const payer = await gateway.buyer(1_000_000n)
  const tab = openTab({ ...gateway, app }, payer)
  for (let n = 0; n < 2; n++) expect((await tab.present(await tab.sign(shop), { app })).status).toBe(200)
  const store = createTabStore(tabs)
  // The views use the same store.
  const open = await store.read(tab)
  expect(await call(app, 'GET', `/payments/${open?.paymentId}`)).toMatchObject({ status: 200 })
  expect(await store.charge({ payer: tab.payer, tabId: tab.tabId, sequence: 2 }, 20_000n)).toBe('charged')
  const upkeepAt = (now: number) =>
    createTabUpkeep({
      sql: gateway.database,
      tabs,
      networks: [gateway.served],
      minimumPrices: {},
      onBadRow: noBadRows,
      rules: { ...closingTimes, amount: 10_000_000n },
      now: () => new Date(now),
    })
  await upkeepAt(Date.now()).watch(gateway.served)
  await upkeepAt(Date.now() + 360_000).closeAndTake()
  await upkeepAt(Date.now() + 3_600_000).releaseUnopened()
  const stored = await store.read(tab)
  expect(stored).toMatchObject({ closeReason: 'idle', takenAt: expect.any(Date) })
  const paymentId = stored?.paymentId ?? ''
  expect(await findTakenTab(gateway.database, paymentId)).toMatchObject({ value: 100_000n, requests: 2 })
  await endPayments(gateway.database, [{ paymentId, kind: 'settled', code: null, isFinal: true }], new Date())
  await upkeepAt(Date.now()).closeAndTake()
  expect([...(await tabs.all`select amount from tabs.credit`)]).toEqual([{ amount: 30_000n }])
  // The tab store in the ledger's database stays empty.
  expect([...(await gateway.database`select from tabs.tab`)]).toEqual([])
})
