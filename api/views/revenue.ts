import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { floorDiv } from '@tollkeeper/sdk/protocol/amount'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import { Refusal } from '../http/refusal.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { isTestMoneyOnly, type RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
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
  interval: z.enum(revenueIntervals).default('day'),
  groupBy: z.enum(revenueGroups).default('none'),
  from: wire.timeFilter,
  to: wire.timeFilter,
  endpointId: wire.idFilter('ep').optional(),
  wallet: wire.address.optional(),
  payer: wire.address.optional().openapi({
    type: 'string',
    description: 'Only sales to this payer; possible by day, month or in total, but not by wallet',
  }),
  network: wire.networkName.optional(),
  testnet: wire.testnetFilter,
  limit: wire.wholeNumber(1_000, 100),
  cursor: wire.cursor,
})

/** Sums over payments, as every view shows them. */
export const revenueSums = z.object({
  payments: z.int().openapi({ description: 'Number of accepted payments, excluding voided payments' }),
  settledPayments: z.int(),
  outstandingPayments: z.int(),
  failedPayments: z.int(),
  voidedPayments: z.int(),
  gross_usdc: wire.decimalUsdc,
  fee_usdc: wire.decimalUsdc,
  net_usdc: wire.decimalUsdc.openapi({ description: 'gross - fee = settled + outstanding + failed' }),
  settled_usdc: wire.decimalUsdc.openapi({ description: 'The part of net that has arrived on chain' }),
  paid_out_usdc: wire.decimalUsdc.openapi({
    description: "The part of settled that has reached the provider's wallet. The rest waits in splitters",
  }),
  outstanding_usdc: wire.decimalUsdc,
  failed_usdc: wire.decimalUsdc,
  settled_fee_usdc: wire.decimalUsdc,
})

const revenueRow = z
  .object({
    startsAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Start of the interval, UTC; null with `total`' }),
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

const positions = createCursor({ startsAt: timeField.nullable(), group: textField })

export type RevenueRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  now: () => number
}

export const addRevenueRoute = view('/providers/{id}/revenue', {
  ...providerViews,
  summary: 'Revenue by time, endpoint, wallet or network',
  description:
    'A payment counts in the interval in which it was accepted. If a reorg reverts a settlement, the settled figures decrease again. ' +
    'A query by hour covers at most 31 days, by day at most 366.',
  query: revenueQuery,
  answer: ['The sums, newest first', revenue],
  open:
    ({ sql, heads, networks, now }: RevenueRouteOptions) =>
    async ({ id: providerId, network, testnet: asked, limit, cursor, ...query }) => {
      const { interval, groupBy, payer, wallet } = query
      if (payer !== undefined && (interval === 'hour' || groupBy === 'wallet' || wallet !== undefined))
        throw new Refusal(
          'invalid_request',
          'With payer, interval must be day, month or total, and neither wallet nor groupBy=wallet can be used',
        )
      const chainId = networks.chainIdNamed(network)
      const at = new Date(now())
      const period = choosePeriod(interval, query, at)
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const testnet = asked ?? isTestMoneyOnly(indexedBlocks, networks)
      const filters = { ...query, ...period, providerId, chainId, testnet, now: at }
      const list = `revenue ${interval} ${groupBy}`
      const found = await positions.page(list, { cursor, limit }, async (page) => {
        const rows = await findRevenue(sql, { ...filters, ...page })
        return rows.map((row) => ({ ...row, group: groupKey(row) }))
      })
      return {
        interval,
        testnet,
        ...period,
        revenue: found.rows.map(toRow),
        cursor: found.cursor,
        indexedBlocks,
      }
    },
})

function toRow({ endpointId, chainId, wallet, ...sums }: RevenueRow) {
  return {
    startsAt: sums.startsAt,
    ...(endpointId !== null && { endpointId }),
    ...(chainId !== null && { network: networkByChainId(chainId).name }),
    ...(wallet !== null && { wallet }),
    ...toRevenueSums(sums),
  }
}

export const noRevenue: RevenueSums = {
  payments: 0,
  voidedPayments: 0,
  settledPayments: 0,
  failedPayments: 0,
  tabPayments: 0,
  gross: 0n,
  fee: 0n,
  settledNet: 0n,
  failedNet: 0n,
  settledFee: 0n,
  waitingNet: 0n,
}

export function toRevenueSums({ settledNet, waitingNet, failedNet, tabPayments: _, ...sums }: RevenueSums) {
  const net = sums.gross - sums.fee
  return {
    ...sums,
    outstandingPayments: sums.payments - sums.settledPayments - sums.failedPayments,
    gross_usdc: sums.gross,
    fee_usdc: sums.fee,
    net_usdc: net,
    settled_usdc: settledNet,
    paid_out_usdc: settledNet - waitingNet,
    outstanding_usdc: net - settledNet - failedNet,
    failed_usdc: failedNet,
    settled_fee_usdc: sums.settledFee,
  }
}

/** Returns the average price of a payment, rounded down to base units. */
export function averageOf({ gross, payments }: { gross: bigint; payments: number }): bigint {
  return payments === 0 ? 0n : floorDiv(gross, BigInt(payments))
}
