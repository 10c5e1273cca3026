import { alignColumns } from '@tollkeeper/runtime/alignColumns'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { DemoResult } from './runDemo.ts'

/** The last line of `npm run demo -- --json`. */
export function toJson(result: DemoResult, elapsedMs: number): string {
  const triggers: Record<string, number> = {}
  for (const { trigger } of result.batches) triggers[trigger] = (triggers[trigger] ?? 0) + 1
  return JSON.stringify({
    payments: result.payments,
    settled: result.settled,
    batches: result.batches.length,
    triggers,
    receiptsVerified: result.receiptsVerified,
    reconciled: result.reconciled,
    providerAmount: result.providerAmount.toString(),
    platformAmount: result.platformAmount.toString(),
    rewardAmount: result.rewardAmount.toString(),
    gasPerPayment: gasPerPayment(result),
    tab: {
      providers: result.tab.sales.length,
      requests: result.tab.requests,
      settled: result.tab.settled,
      batches: result.tab.batches.length,
      gasPerRequest: gasPerRequest(result),
    },
    conserved: result.conserved,
    elapsedMs,
  })
}

/** Formats the result for a person. */
export function toText(result: DemoResult, elapsedMs: number): string {
  const isWhole = (count: number) => count === result.payments
  const checks: [boolean, string][] = [
    [isWhole(result.settled), `${result.settled} of ${result.payments} payments settled`],
    [
      isWhole(result.receiptsVerified),
      `${result.receiptsVerified} receipts verified against the gateway's JWKS`,
    ],
    [isWhole(result.reconciled), `${result.reconciled} receipts reconciled with USDC's own logs`],
    [
      result.tab.settled === result.tab.requests,
      `${result.tab.settled} of ${result.tab.requests} requests on the tab settled, audited by their receipts`,
    ],
    [result.conserved, 'USDC conserved to the unit'],
    ...result.problems.map((problem): [boolean, string] => [false, problem]),
  ]
  return [
    '',
    salesTable('payments', result.sales, result),
    '',
    salesTable('requests on the tab', result.tab.sales, result),
    '',
    table(
      ['batch', 'trigger', 'payments', 'gas', 'gas a payment', 'transaction'],
      result.batches.map(({ trigger, payments, gasUsed, txHash }, index) => [
        String(index + 1),
        trigger,
        String(payments),
        gasUsed.toLocaleString('en'),
        Math.round(Number(gasUsed) / Math.max(payments, 1)).toLocaleString('en'),
        `${txHash.slice(0, 10)}…${txHash.slice(-8)}`,
      ]),
    ),
    '',
    `Providers received ${formatUsdc(result.providerAmount)} USDC, the platform ${formatUsdc(result.platformAmount)},`,
    `and the keeper that settled the tab ${formatUsdc(result.rewardAmount)}.`,
    `${gasPerPayment(result).toLocaleString('en')} gas a payment in ${result.batches.length} transactions;`,
    `${gasPerRequest(result).toLocaleString('en')} gas a request on the tab: ${result.tab.requests.toLocaleString('en')} requests, ${result.tab.gasUsed.toLocaleString('en')} gas.`,
    '',
    ...checks.map(([holds, text]) => `${holds ? '✓' : '✗'} ${text}`),
    '',
    `${result.problems.length === 0 ? 'All of it holds' : 'Not all of it holds'}, after ${(elapsedMs / 1000).toFixed(1)} s.`,
  ].join('\n')
}

function gasPerPayment({ gasUsed, settled }: DemoResult): number {
  return settled === 0 ? 0 : Math.round(Number(gasUsed) / settled)
}

function gasPerRequest({ tab }: DemoResult): number {
  return tab.settled === 0 ? 0 : Math.round(Number(tab.gasUsed) / tab.settled)
}

function salesTable(unit: string, sales: DemoResult['sales'], { providerAmounts }: DemoResult): string {
  return table(
    ['provider', 'price', unit, 'paid by buyers', 'to the provider'],
    sales.map(({ purchase, provider }) => [
      provider.name,
      formatUsdc(purchase.price),
      String(purchase.count),
      formatUsdc(purchase.price * BigInt(purchase.count)),
      formatUsdc(providerAmounts.get(provider.name) ?? 0n),
    ]),
  )
}

function table(header: string[], rows: string[][]): string {
  const [titles, ...lines] = alignColumns(header, rows)
  const width = Math.max(titles.length, ...lines.map((line) => line.length))
  return [titles, '─'.repeat(width), ...lines].join('\n')
}
