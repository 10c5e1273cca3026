import { alignColumns } from '@tollkeeper/runtime/alignColumns'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { renderReport } from '../../cli/audit/render.ts'
import { isConserved, spentOf, sum } from './conservation.ts'
import type { Sale } from './market.ts'
import type { Batch } from './readBatches.ts'
import type { DemoResult } from './runDemo.ts'

/** Whether every receipt reconciles with the chain, and no USDC was lost or created. */
export function isSound({ report, balances }: DemoResult): boolean {
  return report.reconciled && isConserved(balances)
}

/** Returns the last line of `npm run demo -- --json`. */
export function toJson(result: DemoResult, elapsedMs: number): string {
  const { market, batches, tabBatches, report, balances } = result
  const triggers: Record<string, number> = {}
  for (const { trigger } of batches) triggers[trigger] = (triggers[trigger] ?? 0) + 1
  return JSON.stringify({
    payments: countOf(market.sales),
    batches: batches.length,
    triggers,
    gasPerPayment: gasEach(batches, countOf(market.sales)),
    tab: {
      providers: market.tabSales.length,
      requests: countOf(market.tabSales),
      batches: tabBatches.length,
      gasPerRequest: gasEach(tabBatches, countOf(market.tabSales)),
    },
    audit: {
      reconciled: report.reconciled,
      receipts: report.receipts.length,
      settled: report.states.settled,
    },
    conserved: isConserved(balances),
    providerAmount: sum(balances.providers.values()).toString(),
    platformAmount: balances.platform.toString(),
    rewardAmount: balances.keepers.toString(),
    elapsedMs,
  })
}

/** Formats the result for a person. */
export function toText(result: DemoResult, elapsedMs: number): string {
  const { market, batches, tabBatches, report, balances } = result
  const [payments, requests] = [countOf(market.sales), countOf(market.tabSales)]
  const { providers, platform, keepers } = balances
  const checks: [boolean, string][] = [
    [
      report.reconciled,
      `${report.states.settled} of ${report.receipts.length} receipts reconcile with the chain`,
    ],
    [isConserved(balances), `USDC conserved to the unit: buyers spent ${formatUsdc(spentOf(balances))} USDC`],
  ]
  return [
    '',
    salesTable('payments', market.sales, result),
    '',
    salesTable('requests on the tab', market.tabSales, result),
    '',
    batchTable([...batches, ...tabBatches]),
    '',
    `${gasEach(batches, payments).toLocaleString('en')} gas per payment, and ${gasEach(tabBatches, requests).toLocaleString('en')} gas per request on the tab.`,
    '',
    "The buyers' receipts, audited as `tollkeeper audit` does:",
    '',
    renderReport(report, { receipts: [], tabLines: [] }),
    '',
    `Providers received ${formatUsdc(sum(providers.values()))} USDC, the platform ${formatUsdc(platform)} USDC,`,
    `and the keeper that settled the tab ${formatUsdc(keepers)} USDC.`,
    '',
    ...checks.map(([holds, text]) => `${holds ? '✓' : '✗'} ${text}`),
    '',
    `${isSound(result) ? 'Everything is consistent' : 'Something is inconsistent'}, after ${(elapsedMs / 1000).toFixed(1)} s.`,
  ].join('\n')
}

function countOf(sales: readonly Sale[]): number {
  return sales.reduce((total, { purchase }) => total + purchase.count, 0)
}

function gasEach(batches: readonly Batch[], count: number): number {
  return count === 0 ? 0 : Math.round(Number(sum(batches.map(({ gasUsed }) => gasUsed))) / count)
}

function salesTable(unit: string, sales: readonly Sale[], { balances }: DemoResult): string {
  return table(
    ['provider', 'price USDC', unit, 'buyers paid USDC', 'provider received USDC'],
    sales.map(({ purchase: { provider, price, count } }) => [
      provider,
      formatUsdc(price),
      String(count),
      formatUsdc(price * BigInt(count)),
      formatUsdc(balances.providers.get(provider) ?? 0n),
    ]),
  )
}

function batchTable(batches: readonly Batch[]): string {
  return table(
    ['batch', 'trigger', 'payments', 'gas', 'transaction'],
    batches.map(({ trigger, payments, gasUsed, txHash }, index) => [
      String(index + 1),
      trigger,
      String(payments),
      gasUsed.toLocaleString('en'),
      `${txHash.slice(0, 10)}…${txHash.slice(-8)}`,
    ]),
  )
}

function table(header: string[], rows: string[][]): string {
  const [titles, ...lines] = alignColumns(header, rows)
  const width = Math.max(titles.length, ...lines.map((line) => line.length))
  return [titles, '─'.repeat(width), ...lines].join('\n')
}
