import { z } from '@hono/zod-openapi'
import type { Address } from 'viem'
import type { Database } from '#ledger/store/database'
import { formatUsdc } from '#protocol/amount'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../http/app.ts'
import { providerViews } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import { isTestMoneyOnly } from '../payments/records/recordedHeads.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { choosePeriod } from './period.ts'
import { isSummed, openRevenue } from './revenueQueries.ts'

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

const getPayers = route('get', '/providers/{id}/payers', {
  ...providerViews,
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

type TopPayer = {
  chainId: number
  payer: Address
  payments: number
  gross: bigint
  /** The part of it that has arrived at the provider. */
  settledNet: bigint
  lastAcceptedAt: Date
}

type TopPayersQuery = {
  providerId: string
  chainId?: number | undefined
  /** Test money or real money: no list holds both. */
  testnet: boolean
  /** Whole days of payments accepted in [from, to); all time unless given. */
  period?: { from: Date; to: Date } | undefined
  limit: number
}

/** A provider's greatest payers, without voided payments. */
export async function findTopPayers(
  sql: Database,
  { providerId, chainId, testnet, period, limit }: TopPayersQuery,
): Promise<TopPayer[]> {
  const onChain = sql`and is_testnet(chain_id) = ${testnet}
    ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}`
  // Over all time, a payer is among the greatest of the sums, or has payments that are not in the sums yet.
  const summed = period
    ? sql`
      select r.chain_id, r.payer, sum(r.payments) as payments, sum(r.gross) as gross, sum(r.settled_net) as settled_net,
        max(r.last_accepted_at) as last_accepted_at
      from payer_revenue r
      where r.provider_id = ${providerId} ${onChain} and ${isSummed(sql, 'total', period.from, period.to)}
      group by r.chain_id, r.payer`
    : sql`
      (select r.chain_id, r.payer, r.payments, r.gross, r.settled_net, r.last_accepted_at from payer_revenue r
        where r.provider_id = ${providerId} and r.period = 'all' ${onChain}
        order by r.gross desc, r.chain_id, r.payer limit ${limit})
      union
      select r.chain_id, r.payer, r.payments, r.gross, r.settled_net, r.last_accepted_at
      from open join payer_revenue r using (chain_id, payer)
      where r.provider_id = ${providerId} and r.period = 'all' ${onChain}`
  return sql<TopPayer[]>`
    with open as (
      select chain_id, payer, sum(payments) as payments, sum(gross) as gross, sum(settled_net) as settled_net,
        max(accepted_at) as last_accepted_at
      from ${openRevenue(sql, { providerId, period })} u
      where true ${onChain}
      group by chain_id, payer
    ), summed as (${summed})
    select chain_id as "chainId", payer,
      (coalesce(s.payments, 0) + coalesce(o.payments, 0))::int as payments,
      coalesce(s.gross, 0) + coalesce(o.gross, 0) as gross,
      coalesce(s.settled_net, 0) + coalesce(o.settled_net, 0) as "settledNet",
      greatest(s.last_accepted_at, o.last_accepted_at) as "lastAcceptedAt"
    from summed s full join open o using (chain_id, payer)
    where coalesce(s.payments, 0) + coalesce(o.payments, 0) > 0
    order by gross desc, chain_id, payer
    limit ${limit}`
}
