import type { Address } from 'viem'
import { isClosed } from '../registry/suspendProvider.ts'
import type { Queryable } from '../store/database.ts'
import { isTestnet } from '../store/networks.ts'
import { type BazaarExtension, type Described, describeEndpoint, shortExtension } from './bazaar.ts'

/**
 * Something for sale: one of our endpoints, or a resource that a seller declared to the facilitator. Its {@link ListingDocument}, which is
 * much longer, describes how to call it.
 */
export type Listing = Traffic & {
  /** The endpoint's id, or `declared_` and a number. */
  id: string
  resource: string
  /** URL of the MCP server that offers this tool; null if it is unknown or this isn't a tool. */
  serverUrl: string | null
  /** Null for a declared resource. */
  endpointId: string | null
  /** The endpoint's provider; for a declared resource, the provider of the API key that settled it. */
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
  isProven: boolean
  /** Why it isn't proven; null if it is, or if its URL wasn't requested yet. */
  finding: string | null
  updatedAt: Date
}

/** How to call a listed resource and what it answers. */
export type ListingDocument = {
  /** The provider's registered description; null for a declared resource. */
  described: Described | null
  bazaar: BazaarExtension
}

/** The payments of the last 30 days whose settlement is final. */
type Traffic = {
  payments: number
  failed: number
  /**
   * The listing's buyers. For a resource that is sold only through the facilitator: the buyers of everything that its seller sold that way.
   */
  buyers: number
  /** USDC base units. */
  fees: bigint
  /** The hour in which the last settled payment was accepted. */
  lastSettledAt: Date | null
}

/** Maximum number of listings. Those that rank last are left out. */
const maxListings = 5_000
/**
 * Maximum number of a seller's listings without a payment in 30 days, since such listings are free. The oldest listings are kept. A seller
 * is a provider, or a wallet that belongs to no provider.
 */
const maxUnpaid = 100
/** Days for which a declared resource stays listed after its last settled payment. */
export const declaredDays = 30

/**
 * Reads all listings, the best first: production networks before test networks, proven before unproven, then by the fees of the payments that settled
 * within 30 days, then by buyers, payments and age.
 *
 * Fees rank first, because a seller who buys from itself pays them as well. Anyone with several wallets can create buyers and payments for free, and
 * through the facilitator the operator even pays the gas. So the numbers of buyers and payments only order sellers with equal fees.
 */
export async function readListings(sql: Queryable, now: Date): Promise<Listing[]> {
  const since = new Date(now.getTime() - 30 * 86_400_000)
  return sql<Listing[]>`
    with listed as (
      select e.id, e.id as "endpointId", e.provider_id as "providerId", p.name as seller, e.url as resource, e.server_url as "serverUrl",
        -- If the URL was proven to be the seller's, the price in its own 402 counts.
        case when o.proven_at is null then e.price else coalesce(o.asked_amount, e.price) end as price,
        2 as "x402Version", null::integer as "maxTimeoutSeconds", e.description, e.mime_type as "mimeType",
        p.service_name as "serviceName", p.tags, p.icon_url as "iconUrl", e.testnet, e.created_at, e.updated_at as "updatedAt",
        o.proven_at, o.finding,
        jsonb_build_array(jsonb_build_object('chainId', w.chain_id, 'payTo', w.address)) || coalesce((
          select jsonb_agg(jsonb_build_object('chainId', other.chain_id, 'payTo', other.address) order by other.chain_id)
          from endpoint_wallet x join wallet other on other.id = x.wallet_id where x.endpoint_id = e.id
        ), '[]') as payees, w.address as pay_to
      from endpoint e join provider p on p.id = e.provider_id join wallet w on w.id = e.wallet_id
      left join endpoint_proof o on o.endpoint_id = e.id and o.url = e.url and o.pay_to = w.address
      where e.listed and p.listed and e.disabled_at is null and not ${isClosed(sql)}
      union all
      select 'declared_' || d.id, null, d.provider_id, coalesce(p.name, ''), d.resource, null, d.amount, d.x402_version,
        d.max_timeout_seconds, d.description, d.mime_type, d.service_name, d.tags, d.icon_url, ${isTestnet(sql, sql`d.chain_id`)}, d.declared_at,
        d.updated_at, d.proven_at, d.finding,
        jsonb_build_array(jsonb_build_object('chainId', d.chain_id, 'payTo', d.pay_to)), d.pay_to
      from declared_resource d left join provider p on p.id = d.provider_id
      where d.settled_at > ${new Date(now.getTime() - declaredDays * 86_400_000)}
        and (p.id is null or p.listed and not ${isClosed(sql)})
        -- A provider can remove its wallets from the list, and a suspended provider's wallets are removed, regardless of who settles their
        -- payments.
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
      -- Counts the buyers of each endpoint. The row without an endpoint counts the buyers of all the provider's declared resources together.
      select s.id, r.* from sellers s cross join lateral (
        select endpoint_id, count(distinct payer)::int as count from payer_revenue
        where provider_id = s.id and period = 'day' and starts_at >= ${since} and settled_net > 0
        group by 1
      ) r
    ), ranked as (
      select l.*, t.payments, t.failed, t.fees, t.last_day, b.count as buyers, row_number() over (
          partition by coalesce(l."providerId", l.pay_to), coalesce(t.fees, 0) > 0 order by l.proven_at is null, l.created_at, l.resource
        ) as turn
      from listed l
      left join traffic t on t.id = l."providerId"
        and (t.endpoint_id = l."endpointId" or t.endpoint_id is null and l."endpointId" is null and t.payee = l.pay_to)
      left join buyers b on b.id = l."providerId" and b.endpoint_id is not distinct from l."endpointId"
    ), shown as (
      select * from ranked where fees > 0 or turn <= ${maxUnpaid}
      order by testnet, proven_at is null, fees desc nulls last, buyers desc nulls last, payments desc nulls last, created_at, resource
      limit ${maxListings}
    )
    select l.id, l."endpointId", l."providerId", l.seller, l.resource, l."serverUrl", l.price, l."x402Version", l."maxTimeoutSeconds", l.description,
      l."mimeType", l."serviceName", l.tags, l."iconUrl", l.payees, l."updatedAt", l.finding, l.proven_at is not null as "isProven",
      coalesce(l.payments, 0) as payments, coalesce(l.failed, 0) as failed, coalesce(l.fees, 0) as fees,
      coalesce(l.buyers, 0) as buyers, hour.starts_at as "lastSettledAt"
    from shown l
    left join lateral (
      select max(starts_at) as starts_at from revenue r
      where r.provider_id = l."providerId" and r.period = 'hour' and r.starts_at >= l.last_day and r.settled_payments > 0
        and r.endpoint_id is not distinct from l."endpointId" and (l."endpointId" is not null or r.payee = l.pay_to)
    ) hour on true
    order by l.testnet, l.proven_at is null, l.fees desc nulls last, l.buyers desc nulls last, l.payments desc nulls last,
      l.created_at, l.resource`
}

/** A document as it was read: complete, or shortened to fit. */
export type ReadDocument = ListingDocument & { isWhole: boolean }

/**
 * Reads the documents of listed resources. In the order of `ids`, documents are complete while their total stays within `maxBytes`. Further
 * documents contain only the kind of resource.
 */
export async function readDocuments(
  sql: Queryable,
  ids: readonly string[],
  maxBytes: number,
): Promise<Map<string, ReadDocument>> {
  const isDeclared = (id: string) => id.startsWith(declaredPrefix)
  const declared = ids.filter(isDeclared).map((id) => id.slice(declaredPrefix.length))
  const [endpoints, resources] = await Promise.all([
    sql<(Described & { id: string; isWhole: boolean })[]>`
      select id, method, url, description, "isWhole", case when "isWhole" then input_schema end as "inputSchema",
        case when "isWhole" then output_schema end as "outputSchema", case when "isWhole" then input_example end as "inputExample",
        case when "isWhole" then output_example end as "outputExample"
      from (
        select e.*, sum(coalesce(octet_length(input_schema::text), 0) + coalesce(octet_length(output_schema::text), 0)
            + coalesce(octet_length(input_example::text), 0) + coalesce(octet_length(output_example::text), 0))
          over (order by place) <= ${maxBytes} as "isWhole"
        from unnest(${ids.filter((id) => !isDeclared(id))}::text[]) with ordinality as given (id, place) join endpoint e using (id)
      ) read`,
    sql<{ id: string; isWhole: boolean; bazaar: BazaarExtension | null; input: Record<string, unknown> }[]>`
      select ${declaredPrefix} || id as id, "isWhole", case when "isWhole" then bazaar end as bazaar,
        jsonb_build_object('type', bazaar #> '{info,input,type}', 'method', bazaar #> '{info,input,method}',
          'toolName', bazaar #> '{info,input,toolName}') as input
      from (
        select d.id, d.bazaar, sum(octet_length(d.bazaar::text)) over (order by place) <= ${maxBytes} as "isWhole"
        from unnest(${declared}::bigint[]) with ordinality as given (id, place) join declared_resource d using (id)
      ) read`,
  ])
  return new Map<string, ReadDocument>([
    ...endpoints.map(({ id, isWhole, ...described }) => {
      const bazaar = describeEndpoint(described)
      return [id, { isWhole, described, bazaar: isWhole ? bazaar : shortExtension(bazaar) }] as const
    }),
    ...resources.map(({ id, isWhole, bazaar, input }) => {
      const short = shortExtension({ info: { input }, schema: {} })
      return [id, { isWhole, described: null, bazaar: bazaar ?? short }] as const
    }),
  ])
}

const declaredPrefix = 'declared_'
