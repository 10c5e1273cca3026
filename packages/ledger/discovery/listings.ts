import type { Address } from 'viem'
import { isClosed } from '../registry/suspendProvider.ts'
import type { Queryable } from '../store/database.ts'
import { type BazaarExtension, type Described, describeEndpoint } from './bazaar.ts'

/** One thing that can be bought: an endpoint of ours, or a resource that a seller declared to the facilitator. */
export type Listing = Traffic & {
  resource: string
  /** Null: declared. */
  endpointId: string | null
  /** Its provider; for a declared resource, the provider of the API key that settled it. */
  providerId: string | null
  /** The provider's name; '' for a seller without a registration. */
  seller: string
  x402Version: 1 | 2
  /** USDC base units. */
  price: bigint
  payees: { chainId: number; payTo: Address }[]
  maxTimeoutSeconds: number | null
  description: string
  mimeType: string
  serviceName: string | null
  tags: string[]
  iconUrl: string | null
  /** How an endpoint is called; null: declared. */
  described: Described | null
  bazaar: BazaarExtension
  isProven: boolean
  updatedAt: Date
}

/** What settled in 30 days, as far as that is final. */
type Traffic = {
  payments: number
  failed: number
  /** Buyers of the seller. */
  buyers: number
  /** USDC base units. */
  fees: bigint
  /** The hour in which the last settled payment was accepted. */
  lastSettledAt: Date | null
}

type Row = Omit<Listing, 'described'> & Omit<Described, 'url'>

/** Most listings; those that rank last are left out. */
const maxListings = 5_000
/** How many days a declared resource is listed after its last settled payment. */
export const declaredDays = 30

/** Origin of a URL, as `URL.origin` has it of registered ones. */
export function originOf(sql: Queryable, url: ReturnType<Queryable>) {
  return sql`substring(${url} from '^[a-z]+://[^/?#]+')`
}

/**
 * All listings, the best first: production before test money, proven before unproven, then by the fees of the payments that settled
 * within 30 days, then by buyers, payments and age.
 *
 * Fees rank, because a seller who buys from itself pays them like everybody. Buyers and payments are free to whoever has several
 * wallets, and through the facilitator the operator pays even the gas, so these only order sellers with equal fees.
 */
export async function readListings(sql: Queryable, now: Date): Promise<Listing[]> {
  const since = new Date(now.getTime() - 30 * 86_400_000)
  const rows = await sql<Row[]>`
    with listed as (
      select e.id as "endpointId", e.provider_id as "providerId", p.name as seller, e.url as resource, e.method, e.price,
        2 as "x402Version", null::integer as "maxTimeoutSeconds", e.description, e.mime_type as "mimeType",
        p.service_name as "serviceName", p.tags, p.icon_url as "iconUrl", e.input_schema as "inputSchema",
        e.output_schema as "outputSchema", e.input_example as "inputExample", e.output_example as "outputExample",
        null::jsonb as bazaar, e.testnet, e.created_at, e.updated_at as "updatedAt", null::timestamptz as proven_at,
        jsonb_build_array(jsonb_build_object('chainId', w.chain_id, 'payTo', w.address)) || coalesce((
          select jsonb_agg(jsonb_build_object('chainId', other.chain_id, 'payTo', other.address) order by other.chain_id)
          from endpoint_wallet x join wallet other on other.id = x.wallet_id where x.endpoint_id = e.id
        ), '[]') as payees, w.address as pay_to
      from endpoint e join provider p on p.id = e.provider_id join wallet w on w.id = e.wallet_id
      where e.listed and p.listed and e.disabled_at is null and not ${isClosed(sql)}
      union all
      select null, d.provider_id, coalesce(p.name, ''), d.resource, null, d.amount, d.x402_version, d.max_timeout_seconds,
        d.description, d.mime_type, d.service_name, d.tags, d.icon_url, null, null, null, null, d.bazaar, is_testnet(d.chain_id),
        d.declared_at, d.updated_at, d.proven_at, jsonb_build_array(jsonb_build_object('chainId', d.chain_id, 'payTo', d.pay_to)), d.pay_to
      from declared_resource d left join provider p on p.id = d.provider_id
      where d.settled_at > ${new Date(now.getTime() - declaredDays * 86_400_000)}
        and (p.id is null or p.listed and not ${isClosed(sql)})
        -- A provider takes its wallets out of the list, and the operator those of whom it suspends, whoever settles for them.
        and not exists (
          select from wallet w join provider o on o.id = w.provider_id
          where w.chain_id = d.chain_id and w.address = d.pay_to and o.suspended_at is not null and w.created_at <= o.suspended_at
        )
    ), sellers as (
      select distinct "providerId" as id from listed where "providerId" is not null
    ), traffic as (
      select s.id, r.*
      from sellers s cross join lateral (
        select endpoint_id, case when endpoint_id is null then payee end as payee, sum(settled_payments)::int as payments,
          sum(failed_payments)::int as failed, sum(settled_fee) as fees,
          max(starts_at) filter (where settled_payments > 0) as last_day
        from revenue where provider_id = s.id and period = 'day' and starts_at >= ${since}
        group by 1, 2
      ) r
    ), buyers as (
      select s.id, r.count from sellers s cross join lateral (
        select count(distinct payer)::int as count from payer_revenue
        where provider_id = s.id and period = 'day' and starts_at >= ${since} and settled_net > 0
      ) r
    )
    select l.*, coalesce(t.payments, 0) as payments, coalesce(t.failed, 0) as failed, coalesce(t.fees, 0) as fees,
      coalesce(b.count, 0) as buyers, hour.starts_at as "lastSettledAt", coalesce(o.proven_at, l.proven_at) is not null as "isProven"
    from listed l
    left join traffic t on t.id = l."providerId"
      and (t.endpoint_id = l."endpointId" or t.endpoint_id is null and l."endpointId" is null and t.payee = l.pay_to)
    left join buyers b on b.id = l."providerId"
    left join origin_proof o on l."endpointId" is not null and o.pay_to = l.pay_to and o.origin = ${originOf(sql, sql`l.resource`)}
    left join lateral (
      select max(starts_at) as starts_at from revenue r
      where r.provider_id = l."providerId" and r.period = 'hour' and r.starts_at >= t.last_day and r.settled_payments > 0
        and r.endpoint_id is not distinct from l."endpointId" and (l."endpointId" is not null or r.payee = l.pay_to)
    ) hour on true
    order by l.testnet, coalesce(o.proven_at, l.proven_at) is null, t.fees desc nulls last, b.count desc nulls last, t.payments desc nulls last,
      l.created_at, l.resource
    limit ${maxListings}`
  return rows.map(toListing)
}

function toListing(row: Row): Listing {
  const { method, inputSchema, outputSchema, inputExample, outputExample, ...listing } = row
  const described =
    listing.endpointId === null
      ? null
      : {
          method,
          url: listing.resource,
          description: listing.description,
          inputSchema,
          outputSchema,
          inputExample,
          outputExample,
        }
  return {
    ...listing,
    described,
    bazaar: described === null ? listing.bazaar : describeEndpoint(described),
  }
}
