import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { expect, test } from 'vitest'
import { openTab } from '../test/support/tabBuyer.ts'
import { useGateway, useShop } from '../test/support/useGateway.ts'
import { createApiMetrics } from './http/metrics.ts'
import { collectApiState } from './stateMetrics.ts'

const gateway = useGateway()
const shop = useShop(gateway)

/** The values of one metric, by its only label. */
async function read(name: string): Promise<Record<string, number>> {
  const metrics = createApiMetrics()
  collectApiState(metrics, {
    sql: gateway.database,
    tabDatabase: onOnePostgres(gateway.database),
    networks: [gateway.served.network],
    tabBudget: 100_000_000n,
  })
  const metric = await metrics.registry.getSingleMetric(`tollkeeper_api_${name}`)?.get()
  return Object.fromEntries(
    metric?.values.map(({ labels, value }) => [String(Object.values(labels)[0]), value]) ?? [],
  )
}

test('default: metrics show open tabs, those not taken in, those that failed, and what is lent', async () => {
  expect([
    await read('open_tabs'),
    await read('closed_tabs_oldest_seconds'),
    await read('failed_tabs'),
  ]).toEqual(Array(3).fill({ localhost: 0 }))
  const tabs = [1, 2].map(async () => openTab(gateway, await gateway.buyer(5_000_000n)))
  const [open, closed] = await Promise.all(tabs)
  for (const tab of [open, closed]) await tab?.buy(shop)
  await closed?.close()
  const hour = gateway.database`interval '1 hour'`
  await gateway.database`update tabs.tab set closed_at = now() - ${hour}, retries = 3 where closed_at is not null`
  expect(await read('open_tabs')).toEqual({ localhost: 1 })
  expect((await read('closed_tabs_oldest_seconds')).localhost).toBeGreaterThanOrEqual(3_600)
  expect(await read('failed_tabs')).toEqual({ localhost: 1 })
  // Each is lent one price of 0.05 USDC.
  expect(await read('tab_credit_usdc')).toEqual({ real: 0, test: 0.1 })
  expect(await read('tab_budget_usdc')).toEqual({ real: 100, test: 100 })
})

test('default: a metric shows what the platform owes to providers for defaults', async () => {
  const cover = {
    provider_id: shop.providerId,
    payee: shop.wallet.toLowerCase(),
    payer: `0x${'aa'.repeat(20)}`,
  }
  await gateway.database`insert into covered_default ${gateway.database([
    { ...cover, payment_id: `pay_${'01'.repeat(16)}`, chain_id: 31_337, amount: 1_500_000 },
    { ...cover, payment_id: `pay_${'02'.repeat(16)}`, chain_id: 8_453, amount: 9_000_000 },
  ])}`
  expect(await read('covered_defaults_usdc')).toEqual({ localhost: 1.5 })
})
