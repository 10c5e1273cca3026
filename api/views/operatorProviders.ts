import { z } from '@hono/zod-openapi'
import { setSuspended } from '@tollkeeper/ledger/registry/suspendProvider'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import type { App } from '../http/app.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import { operatorsOnly } from '../http/operator.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { choosePeriod } from './period.ts'
import { noRevenue, toRevenueSums } from './revenue.ts'
import { findRevenue } from './revenueQueries.ts'

const revenue = z.object({
  payments: z.int(),
  gross_usdc: wire.decimalUsdc,
  fee_usdc: wire.decimalUsdc,
  settled_usdc: wire.decimalUsdc.openapi({
    description: "The part of the provider's revenue that has arrived on chain",
  }),
  settled_fee_usdc: wire.decimalUsdc,
})

const listedProvider = z.object({
  providerId: wire.providerId,
  name: z.string(),
  contact: z.string().nullable(),
  createdAt: wire.isoTime,
  disabledAt: wire.isoTime.nullable().openapi({ description: 'When the provider disabled itself' }),
  suspendedAt: wire.isoTime.nullable().openapi({ description: 'When the operator suspended the provider' }),
  endpoints: z.int().openapi({ description: 'Number of endpoints on sale' }),
  wallets: z.int().openapi({ description: 'Number of wallets in use' }),
  keys: z.int().openapi({ description: 'Number of valid API keys' }),
  revenue: revenue.openapi({ description: 'Revenue of the last 30 days' }),
})

export const operatorProviders = z
  .object({
    testnet: wire.testnet,
    from: wire.isoTime,
    to: wire.isoTime,
    providers: z.array(listedProvider),
    cursor: wire.cursorOut,
  })
  .openapi('OperatorProviders')

const patchProvider = route('patch', '/operator/providers/{id}', {
  ...operatorsOnly,
  summary: 'Suspend a provider, or reinstate it',
  body: z.strictObject({ suspended: z.boolean() }),
  responses: {
    200: jsonAnswer(
      'The state after the change',
      z.object({ providerId: wire.providerId, suspended: z.boolean() }),
    ),
  },
})

const positions = createCursor({ createdAt: timeField, id: textField })

export type OperatorProvidersRouteOptions = {
  sql: Database
  networks: GatewayNetworks
  now: () => number
}

const addProvidersRoute = view('/operator/providers', {
  ...operatorsOnly,
  summary: 'All providers',
  query: z.object({ testnet: wire.testnetFilter, limit: wire.limit, cursor: wire.cursor }),
  answer: ['The providers, newest first', operatorProviders],
  open: ({ sql, networks, now }: OperatorProvidersRouteOptions) => {
    const isTestMoneyOnly = [...networks.byChainId.values()].every(({ served }) => served.network.testnet)
    return async ({ testnet = isTestMoneyOnly, ...asked }) => {
      const at = new Date(now())
      const period = choosePeriod('day', {}, at)
      const { rows, cursor } = await positions.page('providers', asked, (page) => listProviders(sql, page))
      const providers = []
      // One query after the other, so that the operator's view doesn't take connections that payments need.
      for (const provider of rows) {
        const { providerId } = provider
        const query = { ...period, providerId, interval: 'total', groupBy: 'none', testnet } as const
        const [sums = noRevenue] = await findRevenue(sql, { ...query, after: null, limit: 1, now: at })
        providers.push({ ...provider, revenue: toRevenueSums(sums) })
      }
      return { testnet, ...period, providers, cursor }
    }
  },
})

export function addOperatorProvidersRoute(app: App, options: OperatorProvidersRouteOptions): void {
  const { sql, now } = options
  app.openapi(patchProvider, async (c) => {
    const { id } = c.req.valid('param')
    const { suspended } = c.req.valid('json')
    if (!(await setSuspended(sql, id, suspended ? new Date(now()) : null)))
      throw new Refusal('unknown_provider')
    return c.json({ providerId: id, suspended }, 200)
  })
  addProvidersRoute(app, options)
}

type ListedProvider = Omit<z.input<typeof listedProvider>, 'revenue'> & { id: string }

/** Lists all providers, newest first, with their numbers of enabled endpoints, wallets in use and valid API keys. */
async function listProviders(
  sql: Queryable,
  { after, limit }: { after: { createdAt: Date; id: string } | null; limit: number },
): Promise<ListedProvider[]> {
  return sql<ListedProvider[]>`
    select id, id as "providerId", name, contact, created_at as "createdAt", disabled_at as "disabledAt",
      suspended_at as "suspendedAt",
      (select count(*)::int from endpoint e where e.provider_id = p.id and e.disabled_at is null) as endpoints,
      (select count(*)::int from wallet w where w.provider_id = p.id and w.retired_at is null) as wallets,
      (select count(*)::int from api_key k where k.provider_id = p.id and k.revoked_at is null) as keys
    from provider p
    ${after === null ? sql`` : sql`where (created_at, id) < (${after.createdAt}, ${after.id})`}
    order by created_at desc, id desc limit ${limit}`
}
