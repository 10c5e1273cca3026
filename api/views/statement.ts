import { z } from '@hono/zod-openapi'
import { weiToUsd } from '@tollkeeper/chain/settlementCost'
import type { Database } from '@tollkeeper/ledger/store/database'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { formatCsvLine } from '@tollkeeper/sdk/protocol/csv'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import type { Context } from 'hono'
import { providerViews } from '../http/authenticate.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { streamPages, type TextPage } from '../http/streamPages.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import {
  findProviderRefunds,
  type RefundPosition,
  type RefundRecord,
  sumRefunds,
} from '../payments/records/refunds.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { addGasTokenPrices } from './blockFacts.ts'
import { findGasShares, type GasShare } from './gasShares.ts'
import { monthFilter, readMonth } from './month.ts'
import { findProviderPayments, type PaymentPosition, type ProviderPayment } from './providerPaymentQueries.ts'
import { noRevenue, revenueSums, toRevenueSums } from './revenue.ts'
import { findRevenue } from './revenueQueries.ts'

const statementQuery = z.object({
  month: monthFilter,
  format: z.enum(['json', 'csv']).default('json'),
})

const gas = z.object({
  batches: z.int(),
  gas_usdc: wire.decimalUsdc.openapi({ description: "This provider's share, by the number of payments" }),
})

const statementRow = z
  .object({
    network: wire.networkName,
    testnet: wire.testnet,
    asset: wire.addressOut.nullable(),
    ...revenueSums.shape,
    tabPayments: z.int().openapi({ description: 'Number of `payments` that were requests on tabs' }),
    refunds: z
      .int()
      .openapi({ description: 'Number of refunds requested in this month, without those that failed' }),
    refunded_usdc: wire.decimalUsdc.openapi({
      description: 'The part of these refunds that has arrived at the payers',
    }),
    refunds_outstanding_usdc: wire.decimalUsdc,
    gas: z.object({ platform: gas, others: gas }).openapi({
      description: 'Gas of the batches mined in this month, by who paid it. The provider pays none',
    }),
  })
  .openapi('StatementRow')

export const statement = z
  .object({
    month: z.string(),
    from: wire.isoTime,
    to: wire.isoTime,
    networks: z
      .array(statementRow)
      .openapi({ description: 'One row per network; networks are not added up' }),
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('Statement')

const pageSize = 2_000
/** Number of blocks whose gas prices are requested together. */
const blocksAtOnce = 100

export type StatementRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'gasTokenUsd'>
  now: () => number
}

export const addStatementRoute = view('/providers/{id}/statement', {
  ...providerViews,
  summary: "A month's books, by network",
  description:
    'Sums the payments accepted in the month, like `revenue`. Settled amounts can still change after the month: they count what was read from the ' +
    'chain so far. `format=csv` lists the payments line by line, in decimals and with settlement times: its columns add up to the sums.',
  query: statementQuery,
  answer: ['The statement', statement],
  hasCsv: true,
  open: (options: StatementRouteOptions) => {
    const { sql, heads, networks, now } = options
    return async ({ id: providerId, month, format }, c) => {
      const at = new Date(now())
      const { from, to } = readMonth(month, at.getTime())
      const period = { providerId, from, to }
      if (format === 'csv') {
        const readPage = (after: LinePosition) => readLines(options, period, after)
        return answerCsv(c, `statement-${month}.csv`, { payments: null }, readPage)
      }
      const byNetwork = {
        ...period,
        interval: 'month',
        groupBy: 'network',
        after: null,
        limit: 100,
        now: at,
      } as const
      const [indexedBlocks, real, test, refunds, shares] = await Promise.all([
        heads.ofProvider(providerId),
        findRevenue(sql, { ...byNetwork, testnet: false }),
        findRevenue(sql, { ...byNetwork, testnet: true }),
        sumRefunds(sql, period),
        findGasShares(sql, period),
      ])
      const gasOf = await priceGas(options, shares)
      const revenueOf = new Map([...real, ...test].map((row) => [row.chainId ?? 0, row]))
      const refundsOf = new Map(refunds.map((sums) => [sums.chainId, sums]))
      // A refund may belong to a payment of an earlier month.
      const chainIds = new Set([...revenueOf.keys(), ...refundsOf.keys()])
      const rows = [...chainIds].map((chainId) => ({
        ...describeNetwork(networks, chainId),
        ...toRevenueSums(revenueOf.get(chainId) ?? noRevenue),
        tabPayments: revenueOf.get(chainId)?.tabPayments ?? 0,
        refunds: refundsOf.get(chainId)?.refunds ?? 0,
        refunded_usdc: refundsOf.get(chainId)?.refunded ?? 0n,
        refunds_outstanding_usdc: refundsOf.get(chainId)?.outstanding ?? 0n,
        gas: { platform: toGas(gasOf, chainId, true), others: toGas(gasOf, chainId, false) },
      }))
      return { month, from, to, networks: rows, indexedBlocks }
    }
  },
})

/** Number of batches and cost in USDC base units, keyed by {@link gasKey}: the chain, and whether we paid. */
type PricedGas = Map<string, { batches: number; cost: bigint }>

const gasKey = (chainId: number | null, isOurs: boolean) => `${chainId} ${isOurs}`

async function priceGas(
  { sql, networks, settings: { gasTokenUsd } }: Pick<StatementRouteOptions, 'sql' | 'networks' | 'settings'>,
  shares: readonly GasShare[],
): Promise<PricedGas> {
  const priced: PricedGas = new Map()
  for (let at = 0; at < shares.length; at += blocksAtOnce) {
    const some = Map.groupBy(shares.slice(at, at + blocksAtOnce), ({ chainId }) => chainId)
    for (const [chainId, blocks] of some) {
      const served = networks.byChainId.get(chainId)?.served
      if (served) await addGasTokenPrices(sql, served, blocks)
      for (const { isOurs, batches, cost, gasTokenUsd: price } of blocks) {
        const key = gasKey(chainId, isOurs)
        const sum = priced.get(key) ?? { batches: 0, cost: 0n }
        priced.set(key, {
          batches: sum.batches + batches,
          cost: sum.cost + weiToUsd(cost, price ?? gasTokenUsd),
        })
      }
    }
  }
  return priced
}

export function describeNetwork(networks: GatewayNetworks, chainId: number) {
  const { name, testnet, usdc } = networkByChainId(chainId)
  return { network: name, testnet, asset: networks.byChainId.get(chainId)?.served.token ?? usdc ?? null }
}

function toGas(gasOf: PricedGas, chainId: number, isOurs: boolean) {
  const { batches, cost } = gasOf.get(gasKey(chainId, isOurs)) ?? { batches: 0, cost: 0n }
  return { batches, gas_usdc: cost }
}

const columns = [
  'kind',
  'payment_id',
  'refund',
  'network',
  'testnet',
  'asset',
  'endpoint_id',
  'wallet',
  'payer',
  'accepted_at',
  'status',
  'gross_usdc',
  'fee_usdc',
  'net_usdc',
  'settled_usdc',
  'settled_fee_usdc',
  'refunded_usdc',
  'settled_at',
  'tx_hash',
  'fee_tx_hash',
  'paid_out_at',
  'payout_tx_hash',
  'tab_id',
  'tab_sale',
  'requests',
] as const

/** Streams lines in the statement's columns as they are read. */
export async function answerCsv<Position>(
  c: Context,
  filename: string,
  first: Position,
  readPage: (after: Position) => Promise<TextPage<Position>>,
) {
  const { write, next } = await readPage(first)
  const text = formatCsvLine(columns) + write()
  return c.body(streamPages({ write: () => text, next }, readPage), 200, {
    'content-type': 'text/csv; charset=utf-8; header=present',
    'content-disposition': `attachment; filename="${filename}"`,
  })
}

/** Position at which a page of lines ends: all payments come first, then all refunds. */
type LinePosition = { payments: PaymentPosition | null } | { refunds: RefundPosition | null }

async function readLines(
  { sql, networks, now }: Pick<StatementRouteOptions, 'sql' | 'networks' | 'now'>,
  period: { providerId: string; from: Date; to: Date },
  after: LinePosition,
): Promise<TextPage<LinePosition>> {
  const page = { limit: pageSize, now: new Date(now()) }
  if ('payments' in after) {
    const filters = { ...period, ...page, after: after.payments, oldestFirst: true }
    const { payments, next } = await findProviderPayments(sql, filters)
    const write = () => payments.map((payment) => toPaymentLine(networks, payment)).join('')
    return { write, next: next === null ? { refunds: null } : { payments: next } }
  }
  const refunds = await findProviderRefunds(sql, period, { ...page, after: after.refunds })
  const last = refunds.length === pageSize ? refunds.at(-1) : undefined
  return {
    write: () => refunds.map((refund) => toRefundLine(networks, refund)).join(''),
    next: last === undefined ? null : { refunds: last },
  }
}

type Cells = Partial<Record<(typeof columns)[number], string | number | null>>

function toCsvLine(cells: Cells): string {
  return formatCsvLine(columns.map((column) => cells[column]))
}

function timeOf(seconds: bigint | null): string | null {
  return seconds === null ? null : wire.isoOfSeconds(seconds)
}

/**
 * Converts a payment to a line.
 *
 * @param refunded the part of its refunds that has arrived; 0 in a statement, where refunds are separate lines.
 */
export function toPaymentLine(networks: GatewayNetworks, payment: ProviderPayment, refunded = 0n): string {
  // As in the sums, a voided payment doesn't count if its provider half never moved.
  const isVoided = payment.voidedAt !== null && payment.transactionHash === null
  const net = isVoided ? 0n : payment.providerUsdc
  const fee = isVoided ? 0n : payment.platformUsdc
  const { network, testnet, asset } = describeNetwork(networks, payment.chainId)
  return toCsvLine({
    kind: payment.tab === null ? 'payment' : 'tab',
    payment_id: payment.paymentId,
    network,
    asset,
    testnet: testnet ? 'yes' : 'no',
    endpoint_id: payment.endpointId,
    wallet: payment.payTo,
    payer: payment.payer,
    accepted_at: payment.acceptedAt.toISOString(),
    status: payment.payment_status,
    gross_usdc: formatUsdc(net + fee),
    fee_usdc: formatUsdc(fee),
    net_usdc: formatUsdc(net),
    settled_usdc: formatUsdc(payment.settledUsdc),
    settled_fee_usdc: formatUsdc(payment.settledFeeUsdc),
    refunded_usdc: formatUsdc(refunded),
    settled_at: timeOf(payment.settledAt),
    tx_hash: payment.transactionHash,
    fee_tx_hash: payment.platformTransactionHash,
    paid_out_at: timeOf(payment.paidOutAt),
    payout_tx_hash: payment.payoutTransactionHash,
    tab_id: payment.tab?.tabId ?? null,
    tab_sale: payment.tab?.sale ?? null,
    requests: payment.tab?.requests ?? 1,
  })
}

function toRefundLine(networks: GatewayNetworks, refund: RefundRecord): string {
  const { network, testnet, asset } = describeNetwork(networks, refund.chainId)
  const none = formatUsdc(0n)
  return toCsvLine({
    kind: 'refund',
    payment_id: refund.paymentId,
    refund: refund.number,
    network,
    asset,
    testnet: testnet ? 'yes' : 'no',
    wallet: refund.from,
    payer: refund.to,
    accepted_at: refund.acceptedAt.toISOString(),
    status: refund.status,
    gross_usdc: none,
    fee_usdc: none,
    net_usdc: none,
    settled_usdc: none,
    settled_fee_usdc: none,
    refunded_usdc: refund.txHash === null ? none : formatUsdc(refund.value),
    settled_at: timeOf(refund.settledTime),
    tx_hash: refund.txHash,
  })
}
