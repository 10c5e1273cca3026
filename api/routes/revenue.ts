import { createRoute, z } from '@hono/zod-openapi'
import { formatUsdc } from '#protocol/amount'
import { networkByChainId, networkByName } from '#protocol/networks'
import type { App } from '../app.ts'
import { requireOwner } from '../http/authenticate.ts'
import { createCursor, cutPage, textField, timeField } from '../http/cursor.ts'
import { type Gateway, networkOf } from '../http/gateway.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import { providerId } from '../http/schemas.ts'
import { choosePeriod } from '../portal/period.ts'
import { fromIndex } from '../portal/queries/indexedHead.ts'
import { requireProviderIndex } from '../portal/queries/providerIndex.ts'
import { findRevenue, groupKey, type RevenueRow } from '../portal/queries/revenue.ts'
import { findTopPayers } from '../portal/queries/topPayers.ts'
import * as schemas from './viewSchemas.ts'

const owner = { middleware: requireOwner, security: [{ apiKey: [] }], tags: ['Provider views'] }
const params = z.object({ id: providerId })

const getRevenue = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/revenue',
  summary: 'Revenue by time, endpoint, wallet or network',
  description:
    'By when payments were accepted. Settled figures are what the indexed chain shows now, also after a reorg. ' +
    'By hour at most 31 days at a time, by day 366.',
  request: { params, query: schemas.revenueQuery },
  responses: {
    200: jsonAnswer('The sums, newest first', schemas.revenue),
    ...problems(400, 401, 403, 422, 503),
  },
})

const getPayers = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/payers',
  summary: 'Who paid most',
  description: 'All time, or of the UTC days that `from` and `to` touch, by when payments were accepted.',
  request: { params, query: schemas.payersQuery },
  responses: {
    200: jsonAnswer('The payers, greatest first', schemas.payers),
    ...problems(400, 401, 403, 422, 503),
  },
})

const positions = createCursor({ startsAt: timeField.nullable(), group: textField })

export function addRevenueRoutes(app: App, gateway: Gateway): void {
  const { database, now } = gateway
  const chainOf = (network: string | undefined) =>
    network === undefined ? undefined : networkOf(gateway, network).served.network.chainId

  app.openapi(getRevenue, async (c) => {
    const { id } = c.req.valid('param')
    const query = c.req.valid('query')
    const { interval = 'day', groupBy = 'none', endpointId, wallet, network, cursor, limit = 100 } = query
    const chainId = chainOf(network)
    const period = choosePeriod(interval, query, new Date(now()))
    const list = `revenue ${interval} ${groupBy}`
    const after = positions.read(list, cursor)
    const indexedBlocks = await requireProviderIndex(database, id, chainId)
    const testnet = query.testnet ?? isTestMoneyOnly(indexedBlocks)
    const filters = { ...period, interval, groupBy, endpointId, chainId, testnet, wallet, after }
    const rows = await fromIndex(findRevenue(database, { ...filters, providerId: id, limit: limit + 1 }))
    const { page, last } = cutPage(rows, limit)
    return c.json(
      {
        interval,
        testnet,
        from: period.from.toISOString(),
        to: period.to.toISOString(),
        revenue: page.map(toRow),
        cursor: last && positions.write(list, { startsAt: last.startsAt, group: groupKey(last) }),
        indexedBlocks,
      },
      200,
    )
  })

  app.openapi(getPayers, async (c) => {
    const { id } = c.req.valid('param')
    const { network, limit = 20, ...asked } = c.req.valid('query')
    const chainId = chainOf(network)
    const period = asked.from || asked.to ? choosePeriod('total', asked, new Date(now())) : undefined
    const indexedBlocks = await requireProviderIndex(database, id, chainId)
    const testnet = asked.testnet ?? isTestMoneyOnly(indexedBlocks)
    const payers = await fromIndex(
      findTopPayers(database, { providerId: id, chainId, testnet, period, limit }),
    )
    return c.json(
      {
        testnet,
        from: period?.from.toISOString() ?? null,
        to: period?.to.toISOString() ?? null,
        payers: payers.map((payer) => ({
          payer: payer.payer,
          network: networkByChainId(payer.chainId).name,
          payments: payer.payments,
          gross_usdc: formatUsdc(payer.gross),
          settled_usdc: formatUsdc(payer.settledNet),
          lastPaymentAt: payer.lastAcceptedAt.toISOString(),
        })),
        indexedBlocks,
      },
      200,
    )
  })
}

/** Of a provider's networks, by name; or of the one that was asked for. */
function isTestMoneyOnly(indexedBlocks: Record<string, number>): boolean {
  return Object.keys(indexedBlocks).every((name) => networkByName(name).testnet)
}

function toRow(row: RevenueRow) {
  const net = row.gross - row.fee
  return {
    startsAt: row.startsAt?.toISOString() ?? null,
    ...(row.endpointId !== null && { endpointId: row.endpointId }),
    ...(row.chainId !== null && { network: networkByChainId(row.chainId).name }),
    ...(row.wallet !== null && { wallet: row.wallet }),
    payments: row.payments,
    settledPayments: row.settledPayments,
    outstandingPayments: row.payments - row.settledPayments - row.failedPayments,
    failedPayments: row.failedPayments,
    voidedPayments: row.voidedPayments,
    gross_usdc: formatUsdc(row.gross),
    fee_usdc: formatUsdc(row.fee),
    net_usdc: formatUsdc(net),
    settled_usdc: formatUsdc(row.settledNet),
    outstanding_usdc: formatUsdc(net - row.settledNet - row.failedNet),
    failed_usdc: formatUsdc(row.failedNet),
    settled_fee_usdc: formatUsdc(row.settledFee),
  }
}
