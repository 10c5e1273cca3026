import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import { providerViews } from '../http/authenticate.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { isTestMoneyOnly, type RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { choosePeriod } from './period.ts'
import { isSummed, openRevenue } from './revenueQueries.ts'

const payersQuery = z.object({
  network: wire.networkName.optional(),
  testnet: wire.testnetFilter,
  from: wire.timeFilter,
  to: wire.timeFilter,
  limit: wire.limit,
})

const topPayer = z.object({
  payer: wire.addressOut,
  network: wire.networkOfChain,
  payments: z.int(),
  gross_usdc: wire.decimalUsdc,
  settled_usdc: wire.decimalUsdc,
  lastPaymentAt: wire.isoTime,
})

const payers = z
  .object({
    testnet: wire.testnet,
    from: wire.isoTime.nullable().openapi({ description: 'Null: all time' }),
    to: wire.isoTime.nullable(),
    payers: z.array(topPayer),
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('TopPayers')

export type PayersRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  now: () => number
}

export const addPayersRoute = view('/providers/{id}/payers', {
  ...providerViews,
  summary: 'Who paid most',
  description: 'All time, or of the UTC days that `from` and `to` touch, by when payments were accepted.',
  query: payersQuery,
  answer: ['The payers, greatest first', payers],
  open:
    ({ sql, heads, networks, now }: PayersRouteOptions) =>
    async ({ id: providerId, network, limit, ...asked }) => {
      const chainId = networks.chainIdNamed(network)
      const period = asked.from || asked.to ? choosePeriod('total', asked, new Date(now())) : undefined
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const testnet = asked.testnet ?? isTestMoneyOnly(indexedBlocks)
      const payers = await findTopPayers(sql, {
        providerId,
        chainId,
        testnet,
        period,
        limit,
        now: new Date(now()),
      })
      return { testnet, from: period?.from ?? null, to: period?.to ?? null, payers, indexedBlocks }
    },
})

type TopPayersQuery = {
  providerId: string
  chainId?: number | undefined
  /** Test money or real money: no list holds both. */
  testnet: boolean
  /** Whole days of payments accepted in [from, to); all time unless given. */
  period?: { from: Date; to: Date } | undefined
  limit: number
  /** Decides whether an unused authorization has expired. */
  now: Date
}

/** Who paid a provider most, voided payments aside; of `settled_usdc`, the provider's part. */
export async function findTopPayers(
  sql: Database,
  { providerId, chainId, testnet, period, limit, now }: TopPayersQuery,
): Promise<z.input<typeof topPayer>[]> {
  const onChain = sql`and ${isTestnet(sql)} = ${testnet}
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
  return sql<z.input<typeof topPayer>[]>`
    with open as (
      select chain_id, payer, sum(payments) as payments, sum(gross) as gross, sum(settled_net) as settled_net,
        max(accepted_at) as last_accepted_at
      from ${openRevenue(sql, { providerId, period, now })} u
      where true ${onChain}
      group by chain_id, payer
    ), summed as (${summed})
    select chain_id as network, payer,
      (coalesce(s.payments, 0) + coalesce(o.payments, 0))::int as payments,
      coalesce(s.gross, 0) + coalesce(o.gross, 0) as gross_usdc,
      coalesce(s.settled_net, 0) + coalesce(o.settled_net, 0) as settled_usdc,
      greatest(s.last_accepted_at, o.last_accepted_at) as "lastPaymentAt"
    from summed s full join open o using (chain_id, payer)
    where coalesce(s.payments, 0) + coalesce(o.payments, 0) > 0
    order by gross_usdc desc, chain_id, payer
    limit ${limit}`
}
