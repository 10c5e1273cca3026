import { z } from '@hono/zod-openapi'
import { setSuspended } from '#ledger/registry/suspendProvider'
import type { Queryable } from '#ledger/store/database'
import { formatUsdc } from '#protocol/amount'
import type { App } from '../http/app.ts'
import { createCursor, cutPage, textField, timeField } from '../http/cursor.ts'
import { operatorsOnly } from '../http/operator.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { choosePeriod } from './period.ts'
import { findRevenue } from './revenueQueries.ts'

const revenue = z.object({
  payments: z.int(),
  gross_usdc: wire.decimalUsdc,
  fee_usdc: wire.decimalUsdc,
  settled_usdc: wire.decimalUsdc.openapi({
    description: "Of the provider's part, what has arrived on chain",
  }),
  settled_fee_usdc: wire.decimalUsdc,
})

export const operatorProviders = z
  .object({
    testnet: wire.testnet,
    from: wire.isoTime,
    to: wire.isoTime,
    providers: z.array(
      z.object({
        providerId: wire.providerId,
        name: z.string(),
        contact: z.string().nullable(),
        createdAt: wire.isoTime,
        disabledAt: wire.isoTime.nullable().openapi({ description: 'By itself' }),
        suspendedAt: wire.isoTime.nullable().openapi({ description: 'By the operator' }),
        endpoints: z.int().openapi({ description: 'On sale' }),
        wallets: z.int().openapi({ description: 'In use' }),
        keys: z.int().openapi({ description: 'In force' }),
        revenue: revenue.openapi({ description: 'Of the last 30 days' }),
      }),
    ),
    cursor: wire.cursorOut,
  })
  .openapi('OperatorProviders')

const getProviders = route('get', '/operator/providers', {
  ...operatorsOnly,
  summary: 'All providers',
  query: z.object({ testnet: wire.testnetFilter, limit: wire.limit, cursor: wire.cursor }),
  responses: { 200: jsonAnswer('The providers, newest first', operatorProviders) },
})

const patchProvider = route('patch', '/operator/providers/{id}', {
  ...operatorsOnly,
  summary: 'Suspend a provider, or let it sell again',
  body: z.strictObject({ suspended: z.boolean() }),
  responses: {
    200: jsonAnswer('As it is now', z.object({ providerId: wire.providerId, suspended: z.boolean() })),
  },
})

const positions = createCursor({ createdAt: timeField, id: textField })

export function addOperatorProvidersRoute(app: App, { sql, networks, now }: RouteOptions): void {
  const isTestMoneyOnly = [...networks.byChainId.values()].every(({ served }) => served.network.testnet)

  async function readRevenue(providerId: string, testnet: boolean, period: { from: Date; to: Date }) {
    const query = { ...period, providerId, interval: 'total', groupBy: 'none', testnet, after: null } as const
    const [row] = await findRevenue(sql, { ...query, limit: 1 })
    return {
      payments: row?.payments ?? 0,
      gross_usdc: formatUsdc(row?.gross ?? 0n),
      fee_usdc: formatUsdc(row?.fee ?? 0n),
      settled_usdc: formatUsdc(row?.settledNet ?? 0n),
      settled_fee_usdc: formatUsdc(row?.settledFee ?? 0n),
    }
  }

  app.openapi(patchProvider, async (c) => {
    const { id } = c.req.valid('param')
    const { suspended } = c.req.valid('json')
    if (!(await setSuspended(sql, id, suspended ? new Date(now()) : null)))
      throw new Refusal('unknown_provider')
    return c.json({ providerId: id, suspended }, 200)
  })

  app.openapi(getProviders, async (c) => {
    const { testnet = isTestMoneyOnly, limit = wire.defaultLimit, cursor } = c.req.valid('query')
    const period = choosePeriod('day', {}, new Date(now()))
    const after = positions.read('providers', cursor)
    const found = await listProviders(sql, { after, limit: limit + 1 })
    const { page, last } = cutPage(found, limit)
    const providers = []
    // One after the other, so that an operator's look takes no connection that a payment waits for.
    for (const provider of page) {
      providers.push({
        ...provider,
        revenue: await readRevenue(provider.providerId, testnet, period),
      })
    }
    return c.json(
      {
        testnet,
        ...period,
        providers,
        cursor: last && positions.write('providers', { createdAt: last.createdAt, id: last.providerId }),
      },
      200,
    )
  })
}

type ListedProvider = {
  providerId: string
  name: string
  contact: string | null
  createdAt: Date
  /** By the provider itself, or by the operator. */
  disabledAt: Date | null
  suspendedAt: Date | null
  endpoints: number
  wallets: number
  keys: number
}

type ProviderPosition = { createdAt: Date; id: string }

/** All providers, the newest first, with the amount that each has in use. */
async function listProviders(
  sql: Queryable,
  { after, limit }: { after: ProviderPosition | null; limit: number },
): Promise<ListedProvider[]> {
  return sql<ListedProvider[]>`
    select id as "providerId", name, contact, created_at as "createdAt", disabled_at as "disabledAt",
      suspended_at as "suspendedAt",
      (select count(*)::int from endpoint e where e.provider_id = p.id and e.disabled_at is null) as endpoints,
      (select count(*)::int from wallet w where w.provider_id = p.id and w.retired_at is null) as wallets,
      (select count(*)::int from api_key k where k.provider_id = p.id and k.revoked_at is null) as keys
    from provider p
    ${after === null ? sql`` : sql`where (created_at, id) < (${after.createdAt}, ${after.id})`}
    order by created_at desc, id desc limit ${limit}`
}
