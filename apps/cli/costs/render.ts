import { exactPicoUsd, formatPicoUsd } from '@tollkeeper/chain/priceAdvice'
import { formatShortUsdc, formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { formatTable, paint } from '../terminal/output.ts'
import { formatGwei } from './gwei.ts'
import type { PricesFound } from './prices.ts'
import type { CostReport, CostRow } from './report.ts'

export type CostAnswer = {
  network: Network
  perDay: number
  prices: PricesFound
  report: CostReport
  /** Advice that names the lowest price whose fee covers the gas. Null: the fee covers the gas at this price. */
  advice: string | null
}

const kinds = { two_signatures: 'two signatures', one_signature: 'one signature', tab: 'a tab' } as const

/** Formats the costs for people: one sentence, then the tables. */
export function renderCosts({ network, perDay, prices, report, advice }: CostAnswer): string {
  const { split, payments, expected, waiting } = report
  const row = ({ kind, sharing, requests, gas, operator, breakEven }: CostRow) => [
    requests > 1 ? `${kinds[kind]} of ${requests} requests` : kinds[kind],
    sharing === 1 ? 'alone' : `${sharing} in a batch`,
    formatPicoUsd(gas),
    formatPicoUsd(operator),
    formatShortUsdc(breakEven),
  ]
  const minutes = (value: number) => value.toFixed(value < 10 ? 1 : 0)
  const usual = expected.find(({ kind }) => kind === 'one_signature') ?? expected[0]
  const summary =
    `A request of ${formatShortUsdc(split.price)} USDC on ${network.name}: the provider receives ${formatShortUsdc(split.providerAmount)} USDC, ` +
    `the fee is ${formatShortUsdc(split.feeAmount)} USDC, and at ${perDay} requests a day the gas of each request costs the operator ${formatPicoUsd(usual?.gas ?? 0n)} USD.`
  const blocks = [
    summary,
    describePrices(prices, network),
    formatTable(
      ['signed by', 'settles', 'gas USD', 'operator keeps USD', 'break-even price USDC'],
      payments.map(row),
    ),
    `${perDay} payments a day, with the current triggers:`,
    formatTable(
      ['signed by', 'payments per batch', 'minutes', 'gas USD', 'operator keeps USD'],
      expected.map(({ kind, sharing, minutes: waited, gas, operator }) => [
        kinds[kind],
        String(sharing),
        minutes(waited),
        formatPicoUsd(gas),
        formatPicoUsd(operator),
      ]),
    ),
    'Waiting for fuller batches (TRIGGER_TIME_SECONDS), with one signature:',
    formatTable(
      [
        'seconds',
        'payments per batch',
        'average minutes',
        'gas USD',
        'saves USD a day compared with settling each payment alone',
      ],
      waiting.map(({ seconds, sharing, minutes: waited, gas, savedADay }) => [
        String(seconds),
        String(sharing),
        minutes(waited),
        formatPicoUsd(gas),
        formatPicoUsd(savedADay),
      ]),
    ),
  ]
  if (advice !== null) blocks.push(paint('yellow', advice))
  else if (!network.testnet) blocks.push('The fee covers even the gas of a payment that settles alone.')
  return blocks.join('\n\n')
}

function describePrices({ source, expected, dataFee, usdPerToken }: PricesFound, network: Network): string {
  const figures = `${formatGwei(expected)} gwei, ${formatShortUsdc(usdPerToken)} USD for 1 ${network.gasToken}`
  const hasDataFee = network.gasModel !== 'plain'
  const data = hasDataFee ? `, ${formatGwei(dataFee)} gwei of L1 fee for each word of data` : ''
  if (source === 'node') return `Prices read from the node: ${figures}${data}.`
  const without = hasDataFee ? ', without the L1 data fee' : ''
  if (source === 'flags') return `Prices as given: ${figures}${without}.`
  return paint(
    'yellow',
    `No node was asked, so this is an example: ${figures}${without}. For current prices, give --rpc https://…`,
  )
}

/** Returns the same report as JSON. USDC and USD are decimal strings, never floats. */
export function toJson({ network, perDay, prices, report, advice }: CostAnswer): object {
  const row = ({ kind, sharing, requests, gas, operator, breakEven }: CostRow) => ({
    kind,
    sharing,
    ...(kind === 'tab' && { requests }),
    gas_usd: exactPicoUsd(gas),
    operator_usd: exactPicoUsd(operator),
    break_even_usdc: formatUsdc(breakEven),
  })
  return {
    network: network.name,
    prices: {
      source: prices.source,
      gas_price_gwei: formatGwei(prices.expected),
      data_fee_wei_per_word: prices.dataFee.toString(),
      gas_token_usd: formatUsdc(prices.usdPerToken),
    },
    price_usdc: formatUsdc(report.split.price),
    provider_usdc: formatUsdc(report.split.providerAmount),
    fee_usdc: formatUsdc(report.split.feeAmount),
    per_day: perDay,
    payments: report.payments.map(row),
    expected: report.expected.map((one) => ({ ...row(one), minutes: round(one.minutes) })),
    waiting: report.waiting.map((one) => ({
      trigger_time_seconds: one.seconds,
      ...row(one),
      minutes: round(one.minutes),
      saved_usd_per_day: exactPicoUsd(one.savedADay),
    })),
    advice,
  }
}

function round(minutes: number): number {
  return Math.round(minutes * 10) / 10
}
