import { z } from '@hono/zod-openapi'
import { adviceOn } from '@tollkeeper/ledger/discovery/sellerFindings'
import { exceptionalSearches, openSearches, saleOf } from '@tollkeeper/ledger/sales/sales'
import type { Database } from '@tollkeeper/ledger/store/database'
import { utcDay } from '@tollkeeper/sdk/protocol/time'
import { providerViews } from '../http/authenticate.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { listWallets } from '../registry/wallets.ts'
import { createWithheldReader } from './withheld.ts'

/** Maximum number of payments counted: beyond it, a page says "more than 100". */
const mostCounted = 100
/** Maximum number of payments that are searched for failures. Only payments that were finalized without settling are searched. */
const mostLookedAt = 2_000
/** Maximum number of endpoints listed by name. */
const mostEndpoints = 20
/** Number of newest messages read for each webhook. */
const lookedDeliveries = 20
/** Number of days after its acceptance for which a failed payment is counted. Its authorizations expire sooner. */
const failedDays = 7
const dayMs = 86_400_000

const trouble = z.object({
  payments: z.int().openapi({ description: `Number of payments, at most ${mostCounted}` }),
  isMore: z.boolean().openapi({ description: 'Whether there are more than `payments` says' }),
  net_usdc: wire.decimalUsdc.openapi({ description: "The provider's part of the counted payments" }),
})

export const attention = z
  .object({
    suspendedAt: wire.isoTime
      .nullable()
      .openapi({ description: 'When the operator suspended the provider, which stops its sales' }),
    disabledAt: wire.isoTime
      .nullable()
      .openapi({ description: 'When the provider disabled itself, which stops its sales' }),
    failed: trouble.openapi({
      description: `Payments accepted in the last ${failedDays} days that failed and are not retried`,
    }),
    retrying: trouble.openapi({ description: 'Payments that failed to settle and are retried' }),
    webhooks: z
      .array(
        z.object({
          webhookId: wire.webhookId,
          url: z.string(),
          disabledAt: wire.isoTime
            .nullable()
            .openapi({ description: 'When it was disabled because its receiver answered 410' }),
          undelivered: z.int(),
          ofLast: z.int().openapi({
            description: 'Number of the webhook’s newest messages among which `undelivered` was counted',
          }),
          failure: z.string().nullable().openapi({ description: 'Why the newest failed attempt failed' }),
          previousSecretExpiresAt: wire.isoTime.nullable(),
        }),
      )
      .openapi({
        description: 'Webhooks that are disabled or failing, or whose previous secret is about to expire',
      }),
    upstreamSecretExpiresAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Time until which requests to your server also carry the previous secret' }),
    endpoints: z
      .array(
        z.object({
          endpointId: wire.endpointId,
          method: z.string(),
          url: z.string(),
          isProven: z.boolean().openapi({
            description:
              'Whether the endpoint still counts as proven. It keeps counting for up to three days while its server is down.',
          }),
          code: z.string().nullable().openapi({ description: 'Same values as `proof.code` of an endpoint' }),
          finding: z.string(),
          advice: z.string().nullable().openapi({ description: 'How to fix it' }),
          checkedAt: wire.isoTime.nullable(),
        }),
      )
      .openapi({
        description: `Endpoints on sale and listed whose URL did not ask for a payment to their wallet when last checked; at most ${mostEndpoints}`,
      }),
    withheld: z
      .array(
        z.object({
          walletId: wire.walletId,
          wallet: wire.addressOut,
          network: wire.networkOfChain,
          waiting_usdc: wire.decimalUsdc,
        }),
      )
      .openapi({ description: 'Wallets that USDC has blacklisted, and the money withheld from them' }),
    gas: z
      .array(
        z.object({
          money: z.enum(['real', 'test']),
          limit_usd: wire.decimalUsdc,
          left_usd: wire.decimalUsdc,
          isShared: z.boolean().openapi({
            description: 'Whether the allowance is shared with all providers that have no separate grant',
          }),
        }),
      )
      .openapi({
        description: 'What is left of the operator’s gas allowance for today’s refunds (UTC)',
      }),
  })
  .openapi('Attention')

export type AttentionRouteOptions = {
  sql: Database
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'gasAllowance'>
  now: () => number
}

export const addAttentionRoute = view('/providers/{id}/attention', {
  ...providerViews,
  summary:
    'Problems that need the provider: failed payments, webhooks and endpoints, withheld money, and gas',
  description: 'Each list is limited in length. Empty lists mean that nothing needs attention.',
  answer: ['Everything that needs attention', attention],
  open({ sql, networks, settings, now }: AttentionRouteOptions) {
    const withheldOf = createWithheldReader({ sql, now })
    return async ({ id: providerId }) => {
      const at = new Date(now())
      const [provider, failed, retrying, webhooks, endpoints, gas, wallets] = await Promise.all([
        readProvider(sql, providerId, at),
        countFailed(sql, providerId, at),
        countRetrying(sql, providerId),
        readWebhooks(sql, providerId, at),
        readUnproven(sql, providerId),
        readGas(sql, { providerId, common: settings.gasAllowance, now: at }),
        listWallets(sql, providerId),
      ])
      const held = await Promise.all(
        wallets.map(async ({ walletId, address, chainId }) => {
          const network = networks.byChainId.get(chainId)
          const found = network ? await withheldOf(network, address) : null
          if (found === null || found.waiting_usdc === 0n) return []
          return [{ walletId, wallet: address, network: chainId, waiting_usdc: found.waiting_usdc }]
        }),
      )
      return { ...provider, failed, retrying, webhooks, endpoints, gas, withheld: held.flat() }
    }
  },
})

type Fragment = ReturnType<typeof saleOf>
type Counted = { payments: number; isMore: boolean; net_usdc: bigint }

/** Counts the newest sales that match the searches, up to a limit per search. */
async function count(sql: Database, searches: Fragment[]): Promise<Counted> {
  const [found] = await sql<[{ payments: number; net: bigint }]>`
    select count(*)::int as payments, coalesce(sum(s.provider_amount), 0) as net
    from (
      select * from (${searches.reduce((all, search) => sql`${all} union all ${search}`)}) found
      limit ${mostCounted + 1}
    ) k cross join lateral ${saleOf(sql, sql`k`)} s`
  return {
    payments: Math.min(found.payments, mostCounted),
    isMore: found.payments > mostCounted,
    net_usdc: found.net,
  }
}

/** Selects the newest of a search's rows that meet a condition. */
function newest(sql: Database, search: Fragment, condition: Fragment): Fragment {
  return sql`(
    select payment_id, number, provider_id from ${search} k where ${condition}
    order by accepted_at desc limit ${mostCounted + 1}
  )`
}

function countFailed(sql: Database, providerId: string, now: Date): Promise<Counted> {
  const since = new Date(now.getTime() - failedDays * dayMs)
  const own = sql`k.provider_id = ${providerId} and k.accepted_at >= ${since}`
  const failed = sql`k.kind = 'failed'`
  // These searches also find voided payments. A provider can void any number of payments, so each search reads only the newest rows.
  const looked = exceptionalSearches(sql).map(
    (search) => sql`(select * from ${search} k where ${own} order by accepted_at desc limit ${mostLookedAt})`,
  )
  return count(sql, [
    ...openSearches(sql).map((search) => newest(sql, search, sql`${own} and ${failed}`)),
    ...looked.map((search) => newest(sql, search, failed)),
  ])
}

function countRetrying(sql: Database, providerId: string): Promise<Counted> {
  const condition = sql`k.provider_id = ${providerId} and k.attempts > 0 and k.kind is null`
  return count(
    sql,
    openSearches(sql).map((search) => newest(sql, search, condition)),
  )
}

async function readProvider(sql: Database, providerId: string, now: Date) {
  const [row] = await sql<
    { suspendedAt: Date | null; disabledAt: Date | null; upstreamSecretExpiresAt: Date | null }[]
  >`
    select p.suspended_at as "suspendedAt", p.disabled_at as "disabledAt",
      case when u.previous_secret_expires_at > ${now} then u.previous_secret_expires_at end as "upstreamSecretExpiresAt"
    from provider p left join upstream u on u.provider_id = p.id where p.id = ${providerId}`
  return row ?? { suspendedAt: null, disabledAt: null, upstreamSecretExpiresAt: null }
}

type FailingWebhook = z.input<typeof attention>['webhooks'][number]

/** Reads the webhooks that need attention. A provider has few webhooks, and only the newest messages of each are read. */
function readWebhooks(sql: Database, providerId: string, now: Date): Promise<FailingWebhook[]> {
  return sql<FailingWebhook[]>`
    select * from (
      select w.id as "webhookId", w.url, w.disabled_at as "disabledAt", sent.looked as "ofLast", sent.undelivered,
        sent.failure, case when w.previous_secret_expires_at > ${now} then w.previous_secret_expires_at end as "previousSecretExpiresAt",
        w.created_at
      from webhook w cross join lateral (
        select count(*)::int as looked, (count(*) filter (where d.delivered_at is null and d.attempts > 0))::int as undelivered,
          (array_agg(coalesce(failed.failure, 'http_' || failed.status) order by d.created_at desc)
            filter (where d.delivered_at is null and failed.delivery_id is not null))[1] as failure
        from (
          select id, created_at, delivered_at, attempts from webhook_delivery where webhook_id = w.id
          order by created_at desc, id desc limit ${lookedDeliveries}
        ) d
        left join lateral (
          select a.delivery_id, a.failure, a.status from webhook_attempt a
          where a.delivery_id = d.id and a.ended_at is not null and d.delivered_at is null
          order by a.attempt desc limit 1
        ) failed on true
      ) sent
      where w.provider_id = ${providerId} and w.deleted_at is null
    ) shown
    where "disabledAt" is not null or undelivered > 0 or "previousSecretExpiresAt" is not null
    order by created_at, "webhookId"`
}

type UnprovenEndpoint = z.input<typeof attention>['endpoints'][number]

/** Finds the listed endpoints whose URL failed its last check. The catalog shows them as not proven, at the latest after three days. */
async function readUnproven(sql: Database, providerId: string): Promise<UnprovenEndpoint[]> {
  const rows = await sql<Omit<UnprovenEndpoint, 'advice'>[]>`
    select e.id as "endpointId", e.method, e.url, o.proven_at is not null as "isProven", o.finding_code as code, o.finding,
      o.checked_at as "checkedAt"
    from endpoint e
    join provider p on p.id = e.provider_id
    join wallet w on w.id = e.wallet_id
    join endpoint_proof o on o.endpoint_id = e.id and o.url = e.url and o.pay_to = w.address
    where e.provider_id = ${providerId} and e.disabled_at is null and e.listed and p.listed
      and o.finding is not null
    order by o.proven_at is not null, e.created_at, e.id limit ${mostEndpoints}`
  return rows.map((row) => ({ ...row, advice: adviceOn(row.code) }))
}

type GasOptions = { providerId: string; common: bigint; now: Date }

/** Reads the remaining gas allowance for a provider's refunds, separately for each kind of money that the provider takes. */
async function readGas(sql: Database, { providerId, common, now }: GasOptions) {
  const rows = await sql<{ isTest: boolean; hasGrant: boolean; most: bigint; left: bigint }[]>`
    select own.is_testnet as "isTest", gas.has_grant as "hasGrant", gas.most, gas.remaining as left
    from (
      select n.is_testnet, min(n.chain_id) as chain_id
      from wallet w join network n using (chain_id)
      where w.provider_id = ${providerId} and w.retired_at is null group by 1
    ) own
    cross join lateral refund_gas_left(${providerId}, ${common}, own.chain_id, ${utcDay(now)}) gas
    order by own.is_testnet`
  return rows.map(({ isTest, hasGrant, most, left }) => ({
    money: isTest ? ('test' as const) : ('real' as const),
    limit_usd: most,
    left_usd: left,
    isShared: !hasGrant,
  }))
}
