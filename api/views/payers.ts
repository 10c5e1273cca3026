import { createRoute, z } from '@hono/zod-openapi'
import type { Database } from '#ledger/store/database'
import { formatUsdc } from '#protocol/amount'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import {
  addressOut,
  decimalUsdc,
  defaultLimit,
  indexedBlocks,
  isoOrNull,
  isoTime,
  limit,
  networkName,
  ofProvider,
  testnet,
  testnetFilter,
  timeFilter,
} from '../http/wire.ts'
import { isTestMoneyOnly, type RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { findTopPayers, type TopPayer } from './payerQueries.ts'
import { choosePeriod } from './period.ts'

const payersQuery = z.object({
  network: networkName.optional(),
  testnet: testnetFilter,
  from: timeFilter,
  to: timeFilter,
  limit,
})

const payers = z
  .object({
    testnet,
    from: isoTime.nullable().openapi({ description: 'Null: all time' }),
    to: isoTime.nullable(),
    payers: z.array(
      z.object({
        payer: addressOut,
        network: networkName,
        payments: z.int(),
        gross_usdc: decimalUsdc,
        settled_usdc: decimalUsdc,
        lastPaymentAt: isoTime,
      }),
    ),
    indexedBlocks,
  })
  .openapi('TopPayers')

const getPayers = createRoute({
  ...ownersOnly,
  tags: ['Provider views'],
  method: 'get',
  path: '/providers/{id}/payers',
  summary: 'Who paid most',
  description: 'All time, or of the UTC days that `from` and `to` touch, by when payments were accepted.',
  request: { params: ofProvider, query: payersQuery },
  responses: { 200: jsonAnswer('The payers, greatest first', payers), ...problems(400, 401, 403, 422, 503) },
})

export type PayersRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  now: () => number
}

export function addPayersRoute(app: App, { sql, heads, networks, now }: PayersRouteOptions): void {
  app.openapi(getPayers, async (c) => {
    const { id } = c.req.valid('param')
    const { network, limit = defaultLimit, ...asked } = c.req.valid('query')
    const chainId = networks.chainIdNamed(network)
    const period = asked.from || asked.to ? choosePeriod('total', asked, new Date(now())) : undefined
    const indexedBlocks = await heads.ofProvider(id, chainId)
    const testnet = asked.testnet ?? isTestMoneyOnly(indexedBlocks)
    const found = await findTopPayers(sql, { providerId: id, chainId, testnet, period, limit })
    return c.json(
      {
        testnet,
        from: isoOrNull(period?.from),
        to: isoOrNull(period?.to),
        payers: found.map(toPayer),
        indexedBlocks,
      },
      200,
    )
  })
}

function toPayer({ payer, chainId, payments, gross, settledNet, lastAcceptedAt }: TopPayer) {
  return {
    payer,
    network: networkByChainId(chainId).name,
    payments,
    gross_usdc: formatUsdc(gross),
    settled_usdc: formatUsdc(settledNet),
    lastPaymentAt: lastAcceptedAt.toISOString(),
  }
}
