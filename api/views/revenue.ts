import { z } from '@hono/zod-openapi'
import { formatUsdc } from '#protocol/amount'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../http/app.ts'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, cutPage, textField, timeField } from '../http/cursor.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import { isTestMoneyOnly } from '../payments/records/recordedHeads.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { choosePeriod } from './period.ts'
import {
  findRevenue,
  groupKey,
  type RevenueRow,
  type RevenueSums,
  revenueGroups,
  revenueIntervals,
} from './revenueQueries.ts'

const revenueQuery = z.object({
  interval: z.enum(revenueIntervals).optional().openapi({ default: 'day' }),
  groupBy: z.enum(revenueGroups).optional().openapi({ default: 'none' }),
  from: wire.timeFilter,
  to: wire.timeFilter,
  endpointId: wire.idFilter('ep').optional(),
  wallet: wire.address.optional(),
  network: wire.networkName.optional(),
  testnet: wire.testnetFilter,
  limit: wire.wholeNumber(1_000, 100),
  cursor: wire.cursor,
})

/** Sums over payments, as every view shows them. */
export const revenueSums = z.object({
  payments: z.int().openapi({ description: 'Accepted, without voided ones' }),
  settledPayments: z.int(),
  outstandingPayments: z.int(),
  failedPayments: z.int(),
  voidedPayments: z.int(),
  gross_usdc: wire.decimalUsdc,
  fee_usdc: wire.decimalUsdc,
  net_usdc: wire.decimalUsdc.openapi({ description: 'gross - fee = settled + outstanding + failed' }),
  settled_usdc: wire.decimalUsdc.openapi({ description: 'Of net: has arrived on chain' }),
  paid_out_usdc: wire.decimalUsdc.openapi({
    description: "Of settled: has reached the provider's wallet. The rest waits in splitters",
  }),
  outstanding_usdc: wire.decimalUsdc,
  failed_usdc: wire.decimalUsdc,
  settled_fee_usdc: wire.decimalUsdc,
})

const revenueRow = z
  .object({
    startsAt: wire.isoTime.nullable().openapi({ description: 'Of the interval, UTC; null with `total`' }),
    endpointId: z.string().optional(),
    network: wire.networkName.optional(),
    wallet: wire.addressOut.optional(),
    ...revenueSums.shape,
  })
  .openapi('RevenueRow')

export const revenue = z
  .object({
    interval: z.enum(revenueIntervals),
    testnet: wire.testnet,
    from: wire.isoTime,
    to: wire.isoTime,
    revenue: z.array(revenueRow),
    cursor: wire.cursorOut,
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('Revenue')

const getRevenue = route('get', '/providers/{id}/revenue', {
  ...providerViews,
  summary: 'Revenue by time, endpoint, wallet or network',
  description:
    'By when payments were accepted. Settled figures are what the recorded chain shows now, also after a reorg. ' +
    'By hour at most 31 days at a time, by day 366.',
  query: revenueQuery,
  responses: { 200: jsonAnswer('The sums, newest first', revenue) },
})

const positions = createCursor({ startsAt: timeField.nullable(), group: textField })

export function addRevenueRoute(app: App, { sql, heads, networks, now }: RouteOptions): void {
  app.openapi(getRevenue, async (c) => {
    const { id } = c.req.valid('param')
    const query = c.req.valid('query')
    const { interval = 'day', groupBy = 'none', endpointId, wallet, network, cursor, limit = 100 } = query
    const chainId = networks.chainIdNamed(network)
    const period = choosePeriod(interval, query, new Date(now()))
    const list = `revenue ${interval} ${groupBy}`
    const after = positions.read(list, cursor)
    const indexedBlocks = await heads.ofProvider(id, chainId)
    const testnet = query.testnet ?? isTestMoneyOnly(indexedBlocks)
    const filters = { ...period, interval, groupBy, endpointId, chainId, testnet, wallet, after }
    const rows = await findRevenue(sql, { ...filters, providerId: id, limit: limit + 1 })
    const { page, last } = cutPage(rows, limit)
    return c.json(
      {
        interval,
        testnet,
        ...period,
        revenue: page.map(toRow),
        cursor: last && positions.write(list, { startsAt: last.startsAt, group: groupKey(last) }),
        indexedBlocks,
      },
      200,
    )
  })
}

function toRow(row: RevenueRow) {
  return {
    startsAt: wire.isoOrNull(row.startsAt),
    ...(row.endpointId !== null && { endpointId: row.endpointId }),
    ...(row.chainId !== null && { network: networkByChainId(row.chainId).name }),
    ...(row.wallet !== null && { wallet: row.wallet }),
    ...toRevenueSums(row),
  }
}

export function toRevenueSums(row: RevenueSums) {
  const net = row.gross - row.fee
  return {
    payments: row.payments,
    settledPayments: row.settledPayments,
    outstandingPayments: row.payments - row.settledPayments - row.failedPayments,
    failedPayments: row.failedPayments,
    voidedPayments: row.voidedPayments,
    gross_usdc: formatUsdc(row.gross),
    fee_usdc: formatUsdc(row.fee),
    net_usdc: formatUsdc(net),
    settled_usdc: formatUsdc(row.settledNet),
    paid_out_usdc: formatUsdc(row.settledNet - row.waitingNet),
    outstanding_usdc: formatUsdc(net - row.settledNet - row.failedNet),
    failed_usdc: formatUsdc(row.failedNet),
    settled_fee_usdc: formatUsdc(row.settledFee),
  }
}
