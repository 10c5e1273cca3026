import { recordBackup } from '@tollkeeper/ledger/store/backups'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { readVersion } from '@tollkeeper/runtime/version'
import { type Network, networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { storePayments } from '../test/support/seedPayments.ts'
import { openTab } from '../test/support/tabBuyer.ts'
import { useGateway, useShop } from '../test/support/useGateway.ts'
import { createApiMetrics } from './http/metrics.ts'
import { collectApiState } from './stateMetrics.ts'

const gateway = useGateway()
const shop = useShop(gateway)

/** Reads the values of one metric, by labels. */
async function read(
  name: string,
  networks: Network[] = [gateway.served.network],
): Promise<Record<string, number>> {
  const metrics = createApiMetrics()
  collectApiState(metrics, {
    sql: gateway.database,
    tabDatabase: onOnePostgres(gateway.database),
    networks,
    tabBudget: 100_000_000n,
    issuer: 'https://gateway.example',
  })
  const metric = await metrics.registry.getSingleMetric(`tollkeeper_api_${name}`)?.get()
  return Object.fromEntries(
    metric?.values.map(({ labels, value }) => [Object.values(labels).join(' '), value]) ?? [],
  )
}

test('default: metrics show open tabs, closed tabs that are not imported yet or could not be imported, and lent credit', async () => {
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
  // Each tab has a credit of one price, 0.05 USDC.
  expect(await read('tab_credit_usdc')).toEqual({ real: 0, test: 0.1 })
  expect(await read('tab_budget_usdc')).toEqual({ real: 100, test: 100 })
})

test('default: a metric shows what the platform owes providers for payments that their payers defaulted on', async () => {
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

test('default: a metric names the version, and the URL of the gateway', async () => {
  expect(await read('info')).toEqual({ [`${readVersion()} https://gateway.example`]: 1 })
})

test('default: a metric shows when the newest backup was made, only on real networks', async () => {
  const sql = gateway.database
  const real = [networks.localhost, networks.base]
  expect(await read('backup_timestamp_seconds')).toEqual({})
  const [made] = await sql`select extract(epoch from min(applied_at))::float8 as at from migration`
  expect((await read('backup_timestamp_seconds', real))['']).toBeCloseTo(made?.at, 2)
  await recordBackup(sql, { kind: 'dump', takenAt: new Date('2026-11-21T03:00:00Z') })
  await recordBackup(sql, { kind: 'dump', takenAt: new Date('2026-11-20T03:00:00Z') })
  expect(await read('backup_timestamp_seconds', real)).toEqual({
    '': Date.parse('2026-11-21T03:00:00Z') / 1000,
  })
})

test('default: a metric sums the day’s settled sales, fees and gas for each served network', async () => {
  const sql = gateway.database
  const today = new Date(new Date().toISOString().slice(0, 10))
  const day = (starts_at: Date, chain_id: number, settled_net: number) => ({
    provider_id: shop.providerId,
    period: 'day',
    starts_at,
    chain_id,
    payee: shop.wallet.toLowerCase(),
    payments: 1,
    voided_payments: 0,
    settled_payments: 1,
    failed_payments: 0,
    gross: 0,
    fee: 0,
    settled_net,
    settled_fee: settled_net / 10,
    failed_net: 0,
  })
  await sql`insert into revenue ${sql([
    day(today, 31_337, 4_000_000),
    { ...day(today, 31_337, 2_000_000), payee: `0x${'bb'.repeat(20)}` },
    day(new Date(today.getTime() - 86_400_000), 31_337, 9_000_000),
    day(today, 8_453, 8_000_000),
    { ...day(today, 31_337, 9_000_000), period: 'month' },
  ])}`
  await sql`insert into gas_cost ${sql([{ chain_id: 31_337, day: today, cost: 70_000 }])}`
  expect(await read('today_usdc')).toEqual({
    'localhost test provider': 6,
    'localhost test fee': 0.6,
    'localhost test gas': 0.07,
  })
})

test('default: a metric counts, by failure code, the refunds that failed in the last 24 hours and were not retried', async () => {
  const sql = gateway.database
  const provider_id = shop.providerId
  const refund = async (code: string, { hoursAgo = 1, chainId = 31_337 } = {}) => {
    const [of, own] = [newId('pay'), newId('pay')]
    await storePayments(sql, [
      { id: of, source: 'submission' },
      { id: own, source: 'submission' },
    ])
    const accepted_at = new Date(Date.now() - hoursAgo * 3_600_000)
    await sql`delete from queue where payment_id = ${own}`
    await sql`insert into refund ${sql({ payment_id: own, of_payment_id: of, number: 1, provider_id, accepted_at })}`
    await sql`insert into payment_result ${sql({
      payment_id: own,
      kind: 'failed',
      code,
      ended_at: accepted_at,
      accepted_at,
      chain_id: chainId,
      payer: shop.wallet.toLowerCase(),
      valid_before: 2_000_000_000,
    })}`
    return own
  }
  expect(await read('failed_refunds')).toEqual({})
  const own = await refund('insufficient_balance')
  await refund('gas_not_covered')
  await refund('gas_not_covered')
  await refund('gas_not_covered', { hoursAgo: 25 })
  await refund('gas_not_covered', { chainId: 8_453 })
  expect(await read('failed_refunds')).toEqual({
    'localhost insufficient_balance': 1,
    'localhost gas_not_covered': 2,
  })
  await sql`delete from payment_result where payment_id = ${own}`
  expect(await read('failed_refunds')).toEqual({ 'localhost gas_not_covered': 2 })
})

test('default: counters that alerts use start at 0, so that the first event fires the alert', async () => {
  const text = await createApiMetrics().registry.metrics()
  for (const series of [
    'webhook_attempts_total{outcome="exhausted"}',
    'mails_total{outcome="failed"}',
    'refunds_total{result="gas_not_covered"}',
  ])
    expect(text).toContain(`tollkeeper_api_${series} 0\n`)
})
