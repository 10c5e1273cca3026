import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, textField, wholeField } from '../http/cursor.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { isTestMoneyOnly, type RecordedHeads } from '../payments/records/recordedHeads.ts'
import { sumRefundsByEndpoint } from '../payments/records/refunds.ts'
import { maxEndpoints } from '../registry/endpoints.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { countPayers } from './payerQueries.ts'
import { choosePeriod } from './period.ts'
import { averageOf, noRevenue, revenueSums, toRevenueSums } from './revenue.ts'
import { findRevenue } from './revenueQueries.ts'
import { findUsage, usageCounts } from './usage.ts'

const endpointActivityQuery = z.object({
  network: wire.networkName.optional(),
  testnet: wire.testnetFilter,
  from: wire.timeFilter,
  to: wire.timeFilter,
  endpointId: wire.idFilter('ep').optional(),
  limit: wire.wholeNumber(1_000, 100),
  cursor: wire.cursor,
})

const figures = z
  .object({
    ...revenueSums.shape,
    average_usdc: wire.averageUsdc,
    refunded_usdc: wire.decimalUsdc.openapi({
      description: 'Sum of the refunds that were requested in the period and have arrived',
    }),
    payers: z.int().openapi({ description: 'Number of payers' }),
    newPayers: z.int().openapi({
      description:
        'Number of these payers whose first payment to this provider was in the period, even if it was for another endpoint',
    }),
    ...usageCounts,
  })
  .openapi('EndpointFigures')

export const endpointActivity = z
  .object({
    testnet: wire.testnet,
    from: wire.isoTime,
    to: wire.isoTime,
    activity: z.array(
      z
        .object({
          endpointId: wire.endpointId
            .nullable()
            .openapi({ description: 'Null: sold through the facilitator' }),
          ...figures.shape,
          previous: figures.nullable().openapi({
            description:
              'The same figures for the period of equal length before `from`; null: `from` was not given',
          }),
        })
        .openapi('EndpointActivityRow'),
    ),
    cursor: wire.cursorOut,
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('EndpointActivity')

type Figures = Omit<z.input<typeof figures>, 'refused'> & { refused: Record<string, number> }
type Row = Figures & { endpointId: string | null; gross: bigint; previous: Figures | null }

const positions = createCursor({ gross: wholeField, endpointId: textField.nullable() })

export type EndpointActivityRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  now: () => number
}

export const addEndpointActivityRoute = view('/providers/{id}/endpoint-activity', {
  ...providerViews,
  summary: 'Compare endpoints: revenue, calls, refusals and payers, with the previous period',
  description:
    'Covers the UTC days that `from` and `to` touch; all time by default. A payment counts on the day on which it was accepted. ' +
    'An endpoint has no row if neither period has payments, calls or refunds of it. The sums over all rows are those of `revenue`. Over time: `revenue`, `usage` and ' +
    '`payer-activity` with `endpointId`.',
  query: endpointActivityQuery,
  answer: ['The endpoints, greatest revenue first', endpointActivity],
  open:
    ({ sql, heads, networks, now }: EndpointActivityRouteOptions) =>
    async ({ id: providerId, network, testnet: asked, from, to, limit, cursor, endpointId }) => {
      const chainId = networks.chainIdNamed(network)
      const at = new Date(now())
      const period = choosePeriod('total', { from, to }, at)
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const testnet = asked ?? isTestMoneyOnly(indexedBlocks, networks)
      const find = (within: Period) =>
        findActivity(sql, { ...within, providerId, chainId, testnet, endpointId, now: at })
      const [current, previous] = await Promise.all([
        find(period),
        from === undefined ? null : find(periodBefore(period)),
      ])
      const ids = new Set([...current.keys(), ...(previous?.keys() ?? [])])
      const rows: Row[] = [...ids].map((endpointId) => {
        const figures = current.get(endpointId) ?? nothing
        return {
          endpointId,
          gross: figures.gross_usdc,
          ...figures,
          previous: previous && (previous.get(endpointId) ?? nothing),
        }
      })
      rows.sort(compare)
      // All rows fit into memory, because the number of a provider's endpoints is limited. So the pages are cut here, not in SQL.
      const found = await positions.page('endpoint-activity', { cursor, limit }, async ({ after, limit }) =>
        rows.filter((row) => after === null || compare(after, row) < 0).slice(0, limit),
      )
      return { testnet, ...period, activity: found.rows, cursor: found.cursor, indexedBlocks }
    },
})

type Period = { from: Date; to: Date }

function periodBefore({ from, to }: Period): Period {
  return { from: new Date(Math.max(0, 2 * from.getTime() - to.getTime())), to: from }
}

function compare(a: Pick<Row, 'gross' | 'endpointId'>, b: Pick<Row, 'gross' | 'endpointId'>): number {
  if (a.gross !== b.gross) return a.gross > b.gross ? -1 : 1
  const [first, second] = [a.endpointId ?? '', b.endpointId ?? '']
  return first === second ? 0 : first < second ? -1 : 1
}

const noFigures = {
  revenue: noRevenue,
  payers: { payers: 0, newPayers: 0 },
  usage: { calls: 0, challenged: 0, paid: 0, refused: {} },
  refunded: 0n,
}
const nothing = toFigures(noFigures)

type ActivityOptions = Period & {
  providerId: string
  chainId: number | undefined
  testnet: boolean
  endpointId: string | undefined
  now: Date
}

/** Finds the figures of a period, keyed by endpoint id. Sales through the facilitator have the key null. */
async function findActivity(sql: Database, query: ActivityOptions): Promise<Map<string | null, Figures>> {
  const { endpointId } = query
  // One more row than endpoints: sales through the facilitator have a row without an endpoint.
  const limit = maxEndpoints + 1
  const by = { ...query, interval: 'total', groupBy: 'endpoint', after: null, limit } as const
  // The queries run one after the other, so that a request takes only one database connection per period. This costs little time, because the
  // query for payers takes longer than all others together.
  const revenue = await findRevenue(sql, by)
  const payers = await countPayers(sql, by)
  const usage = await findUsage(sql, by)
  const refunds = await sumRefundsByEndpoint(sql, query)
  const found = new Map<string | null, typeof noFigures>()
  const add = (id: string | null, part: Partial<typeof noFigures>) => {
    if (endpointId === undefined || id === endpointId)
      found.set(id, { ...(found.get(id) ?? noFigures), ...part })
  }
  for (const row of revenue) add(row.endpointId, { revenue: row })
  for (const row of payers) add(row.endpointId, { payers: row })
  for (const row of usage) add(row.endpointId, { usage: row })
  for (const row of refunds) add(row.endpointId, { refunded: row.refunded })
  return new Map([...found].map(([id, parts]) => [id, toFigures(parts)]))
}

function toFigures({ revenue, payers, usage, refunded }: typeof noFigures): Figures {
  const { calls, challenged, paid, refused } = usage
  return {
    ...toRevenueSums(revenue),
    average_usdc: averageOf(revenue),
    refunded_usdc: refunded,
    payers: payers.payers,
    newPayers: payers.newPayers,
    calls,
    challenged,
    paid,
    refused,
  }
}
