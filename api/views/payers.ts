import { z } from '@hono/zod-openapi'
import { formatUsdc } from '#protocol/amount'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import { isTestMoneyOnly } from '../payments/records/recordedHeads.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { findTopPayers, type TopPayer } from './payerQueries.ts'
import { choosePeriod } from './period.ts'

const payersQuery = z.object({
  network: wire.networkName.optional(),
  testnet: wire.testnetFilter,
  from: wire.timeFilter,
  to: wire.timeFilter,
  limit: wire.limit,
})

const payers = z
  .object({
    testnet: wire.testnet,
    from: wire.isoTime.nullable().openapi({ description: 'Null: all time' }),
    to: wire.isoTime.nullable(),
    payers: z.array(
      z.object({
        payer: wire.addressOut,
        network: wire.networkName,
        payments: z.int(),
        gross_usdc: wire.decimalUsdc,
        settled_usdc: wire.decimalUsdc,
        lastPaymentAt: wire.isoTime,
      }),
    ),
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('TopPayers')

const getPayers = route({
  ...ownersOnly,
  tags: ['Provider views'],
  method: 'get',
  path: '/providers/{id}/payers',
  summary: 'Who paid most',
  description: 'All time, or of the UTC days that `from` and `to` touch, by when payments were accepted.',
  query: payersQuery,
  responses: { 200: jsonAnswer('The payers, greatest first', payers) },
})

export function addPayersRoute(app: App, { sql, heads, networks, now }: RouteOptions): void {
  app.openapi(getPayers, async (c) => {
    const { id } = c.req.valid('param')
    const { network, limit = wire.defaultLimit, ...asked } = c.req.valid('query')
    const chainId = networks.chainIdNamed(network)
    const period = asked.from || asked.to ? choosePeriod('total', asked, new Date(now())) : undefined
    const indexedBlocks = await heads.ofProvider(id, chainId)
    const testnet = asked.testnet ?? isTestMoneyOnly(indexedBlocks)
    const found = await findTopPayers(sql, { providerId: id, chainId, testnet, period, limit })
    return c.json(
      {
        testnet,
        from: wire.isoOrNull(period?.from),
        to: wire.isoOrNull(period?.to),
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
