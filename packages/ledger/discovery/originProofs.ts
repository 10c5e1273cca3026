import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'
import { type Declaration, rereadSeconds } from './declarations.ts'
import type { FindingCode } from './sellerFindings.ts'

/** A listed resource whose URL is to be requested, to see which wallet its 402 names. */
export type Unproven = {
  /** Key of `declared_resource`; null for an endpoint. */
  declaredId: bigint | null
  endpointId: string | null
  chainId: number
  payTo: Address
  /** The URL to request. It may contain `:name` and end in `*`. */
  url: string
  method: string
  /** A body or query that passes the seller's own checks, if the seller registered an example. */
  input: unknown
  failures: number
}

/** Seconds for which a URL is reserved for the process that requests it. */
const takenSeconds = 60
/** Maximum number of due URLs that are read as candidates. */
const maxDue = 1_000
/** Hours until an unlisted resource is checked again. */
const unlistedHours = 24
/**
 * Minimum seconds between two requests to an endpoint's URL after changes of the endpoint. A provider can register other people's URLs, so changes
 * must not cause many requests.
 */
const changedSeconds = 60

/**
 * Reserves URLs that are due to be requested. Each URL is requested separately, because sellers on a shared host have the same origin. URLs
 * with the fewest failures come first, and sellers take turns, so that a seller with many URLs doesn't delay other sellers.
 *
 * @param limit maximum number of URLs of each kind.
 */
export async function takeUnproven(sql: Queryable, limit: number): Promise<Unproven[]> {
  const due = sql`
    select * from endpoint_proof where next_check_at <= now() order by failures, next_check_at limit ${maxDue}`
  await sql`
    update endpoint_proof o set next_check_at = now() + ${unlistedHours} * interval '1 hour'
    from (${due}) due
    where o.endpoint_id = due.endpoint_id and not exists (
      select from endpoint x join provider p on p.id = x.provider_id
      where x.id = due.endpoint_id and x.url = due.url and x.listed and p.listed and x.disabled_at is null
    )`
  const endpoints = await sql<Unproven[]>`
    update endpoint_proof o set next_check_at = now() + ${takenSeconds} * interval '1 second'
    from (
      select endpoint_id from (
        select due.endpoint_id, row_number() over (partition by x.provider_id order by due.failures, due.next_check_at) as turn,
          due.failures, due.next_check_at
        from (${due}) due join endpoint x on x.id = due.endpoint_id
      ) turns order by turn, failures, next_check_at limit ${limit}
    ) chosen, endpoint x
    where o.endpoint_id = chosen.endpoint_id and x.id = o.endpoint_id and o.next_check_at <= now()
    returning ${ofEndpoint(sql)}`
  const declared = await sql<Unproven[]>`
    update declared_resource d set next_check_at = now() + ${takenSeconds} * interval '1 second'
    from (
      select id from (
        select id, row_number() over (partition by pay_to order by failures, next_check_at) as turn, failures, next_check_at from (
          select id, pay_to, failures, next_check_at from declared_resource
          where next_check_at <= now() and resource like 'http%' order by failures, next_check_at limit ${maxDue}
        ) waiting
      ) turns order by turn, failures, next_check_at limit ${limit}
    ) due
    where d.id = due.id and d.next_check_at <= now()
    returning d.id as "declaredId", null::text as "endpointId", d.chain_id as "chainId", d.pay_to as "payTo", d.resource as url,
      coalesce(d.bazaar #>> '{info,input,method}', 'GET') as method,
      coalesce(d.bazaar #> '{info,input,body}', d.bazaar #> '{info,input,queryParams}') as input, d.failures`
  return [...endpoints, ...declared]
}

/** Reserves one endpoint's URL to be requested now, like {@link takeUnproven}; undefined if there is nothing to request. */
export async function takeEndpoint(sql: Queryable, endpointId: string): Promise<Unproven | undefined> {
  const [one] = await sql<Unproven[]>`
    update endpoint_proof o
    set next_check_at = greatest(o.next_check_at, now() + ${takenSeconds} * interval '1 second')
    from endpoint x
    where o.endpoint_id = ${endpointId} and x.id = o.endpoint_id and x.url = o.url
    returning ${ofEndpoint(sql)}`
  return one
}

function ofEndpoint(sql: Queryable) {
  return sql`null::bigint as "declaredId", o.endpoint_id as "endpointId", x.chain_id as "chainId", o.pay_to as "payTo", o.url,
    x.method, x.input_example as input, o.failures`
}

/**
 * Schedules a request to an endpoint's URL, because the endpoint was registered or changed. Findings about its previous URL or wallet are
 * discarded.
 */
export async function askAgain(sql: Queryable, endpointId: string): Promise<void> {
  await sql`
    insert into endpoint_proof as o (endpoint_id, url, pay_to)
    select e.id, e.url, w.address from endpoint e join wallet w on w.id = e.wallet_id
    where e.id = ${endpointId} and e.url like 'http%'
    on conflict (endpoint_id) do update set url = excluded.url, pay_to = excluded.pay_to, failures = 0,
      proven_at = case when (o.url, o.pay_to) = (excluded.url, excluded.pay_to) then o.proven_at end,
      finding = case when (o.url, o.pay_to) = (excluded.url, excluded.pay_to) then o.finding end,
      finding_code = case when (o.url, o.pay_to) = (excluded.url, excluded.pay_to) then o.finding_code end,
      asked_amount = case when (o.url, o.pay_to) = (excluded.url, excluded.pay_to) then o.asked_amount end,
      next_check_at = least(o.next_check_at, greatest(now(), o.checked_at + ${changedSeconds} * interval '1 second'))`
}

/**
 * Schedules a request to an endpoint's URL, because a payment was accepted at another price than the list shows. The list takes the price
 * from the URL's own 402 and not from a payment, because buyers may be charged different prices.
 *
 * @param price of the payment, USDC base units.
 */
export async function rereadPrice(sql: Queryable, endpointId: string, price: bigint): Promise<void> {
  await sql`
    update endpoint_proof o
    set next_check_at = least(o.next_check_at, greatest(now(), o.checked_at + ${rereadSeconds} * interval '1 second'))
    from endpoint e
    where o.endpoint_id = ${endpointId} and e.id = o.endpoint_id and e.url = o.url and e.listed and e.disabled_at is null
      and coalesce(o.asked_amount, e.price) <> ${price}`
}

/** An offer in a URL's own 402. `payTo` is the wallet that finally receives the payment. */
export type SeenOffer = { chainId: number; payTo: Address; amount: bigint }

/** A URL and its endpoints. Declared resources are found by the URL alone. */
export type ListedUrl = { url: string; endpointIds: readonly string[] }

/**
 * Schedules a request to a URL if someone saw it ask for another price, wallet or network than we have stored. Only the time of the next
 * check changes, so a stranger's claim never counts by itself.
 */
export async function rereadListings(
  sql: Queryable,
  { url, endpointIds }: ListedUrl,
  seen: readonly SeenOffer[],
): Promise<void> {
  const soon = (checkedAt: ReturnType<Queryable>, nextCheckAt: ReturnType<Queryable>) =>
    sql`least(${nextCheckAt}, greatest(now(), ${checkedAt} + ${rereadSeconds} * interval '1 second'))`
  const offers = sql`unnest(${seen.map(({ chainId }) => chainId)}::int[], ${seen.map(({ payTo }) => payTo)}::text[],
    ${seen.map(({ amount }) => amount.toString())}::numeric[]) as seen (chain_id, pay_to, amount)`
  await sql`
    update endpoint_proof o set next_check_at = ${soon(sql`o.checked_at`, sql`o.next_check_at`)}
    from endpoint e
    where o.endpoint_id = any(${endpointIds as string[]}::text[]) and e.id = o.endpoint_id and e.url = o.url
      and (o.proven_at is null) = exists (
        select from ${offers}
        where seen.chain_id = e.chain_id and seen.pay_to = o.pay_to
          and (o.proven_at is null or seen.amount = coalesce(o.asked_amount, e.price))
      )`
  await sql`
    update declared_resource d set next_check_at = ${soon(sql`d.checked_at`, sql`d.next_check_at`)}
    where md5(d.resource) = md5(${url}) and d.resource = ${url}
      and (d.proven_at is null) = exists (
        select from ${offers}
        where seen.chain_id = d.chain_id and seen.pay_to = d.pay_to and (d.proven_at is null or seen.amount = d.amount)
      )`
}

/** The findings of the last request to an endpoint's URL. */
export type Proof = {
  isProven: boolean
  checkedAt: Date | null
  nextCheckAt: Date
  finding: string | null
  findingCode: string | null
  /** The price in its own 402, in USDC base units; null if unknown. */
  askedAmount: bigint | null
}

/** Reads the findings about endpoints' URLs. URLs that are never requested are left out. */
export async function readProofs(
  sql: Queryable,
  endpointIds: readonly string[],
): Promise<Map<string, Proof>> {
  const rows = await sql<(Proof & { endpointId: string })[]>`
    select o.endpoint_id as "endpointId", o.proven_at is not null as "isProven", o.checked_at as "checkedAt",
      o.next_check_at as "nextCheckAt", o.finding, o.finding_code as "findingCode", o.asked_amount as "askedAmount"
    from endpoint_proof o join endpoint e on e.id = o.endpoint_id and e.url = o.url
    where o.endpoint_id = any(${endpointIds as string[]}::text[])`
  return new Map(rows.map(({ endpointId, ...proof }) => [endpointId, proof]))
}

/** Reads the findings about a declared resource's URL, by the ids of its listings. */
export async function readDeclaredProofs(sql: Queryable, url: string): Promise<Map<string, Proof>> {
  const rows = await sql<(Proof & { id: string })[]>`
    select 'declared_' || d.id as id, d.proven_at is not null as "isProven", d.checked_at as "checkedAt",
      d.next_check_at as "nextCheckAt", d.finding, d.finding_code as "findingCode",
      case when d.proven_at is not null then d.amount end as "askedAmount"
    from declared_resource d where md5(d.resource) = md5(${url}) and d.resource = ${url}`
  return new Map(rows.map(({ id, ...proof }) => [id, proof]))
}

/** Returns whether the seller is proven for the same wallet at this URL or another URL of the same origin. */
export async function isProvenAtOrigin(
  sql: Queryable,
  { declaredId, endpointId, chainId, payTo, url }: Unproven,
): Promise<boolean> {
  const start = `${new URL(url).origin}/`
  const [found] =
    declaredId === null
      ? await sql`
        select 1 from endpoint asked
        join endpoint x on x.provider_id = asked.provider_id
        join endpoint_proof o on o.endpoint_id = x.id and o.url = x.url
        where asked.id = ${endpointId} and o.pay_to = ${payTo} and o.proven_at is not null and starts_with(o.url, ${start})
        limit 1`
      : await sql`
        select 1 from declared_resource d
        where d.pay_to = ${payTo} and d.chain_id = ${chainId} and d.proven_at is not null and starts_with(d.resource, ${start})
        limit 1`
  return found !== undefined
}

/** The result of a request to a URL. */
export type Finding =
  /** `said`: how a declared resource's own 402 describes it; `amount`: the price in the URL's own 402, in USDC base units. */
  | { kind: 'proven'; said: DeclaredListing | null; amount: bigint | null }
  /**
   * The URL didn't ask for payments to this wallet. If `isAway` is true, it named no other wallet either: its server couldn't be reached, or returned
   * no challenge.
   */
  | { kind: 'unproven'; isAway: boolean; code: FindingCode; why: string }

/** How a declared resource's own 402 describes it. */
export type DeclaredListing = Pick<Declaration, 'description' | 'mimeType' | 'maxTimeoutSeconds' | 'bazaar'> &
  Pick<Declaration, 'serviceName' | 'tags' | 'iconUrl'>

const provenHours = 24
/** Pause after the first failure. It doubles after each further failure, up to a day. */
const firstPauseMinutes = 5
/** Days for which a proven URL stays proven while its server is unreachable. */
const awayDays = 3

/** Stores the result of a request to a URL, and schedules the next request. */
export async function recordFinding(
  sql: Queryable,
  { declaredId, endpointId, url, payTo, failures }: Unproven,
  finding: Finding,
) {
  const isProven = finding.kind === 'proven'
  const pause = isProven ? provenHours * 60 : Math.min(firstPauseMinutes * 2 ** Math.min(failures, 12), 1_440)
  const columns = sql`
    checked_at = now(), next_check_at = now() + ${pause} * interval '1 minute',
    failures = ${isProven ? 0 : Math.min(failures + 1, 1_000)}, finding = ${isProven ? null : finding.why.slice(0, 300)},
    finding_code = ${isProven ? null : finding.code},
    proven_at = ${
      isProven
        ? sql`now()`
        : finding.isAway
          ? sql`case when proven_at > now() - ${awayDays} * interval '1 day' then proven_at end`
          : sql`null`
    }`
  const amount = isProven ? finding.amount : null
  if (endpointId !== null) {
    // Store nothing if the endpoint was changed in the meantime.
    await sql`
      update endpoint_proof set ${columns} ${isProven ? sql`, asked_amount = ${amount}` : sql``} where endpoint_id = ${endpointId} and url = ${url} and pay_to = ${payTo}`
    return
  }
  const said = isProven ? finding.said : null
  const price = amount === null ? sql`` : sql`, amount = ${amount}`
  const words = said
    ? sql`, description = ${said.description}, mime_type = ${said.mimeType},
        max_timeout_seconds = ${said.maxTimeoutSeconds}, service_name = ${said.serviceName},
        tags = ${said.tags as string[]}::text[], icon_url = ${said.iconUrl}, bazaar = ${sql.json(said.bazaar as never)}`
    : sql``
  await sql`
    update declared_resource set ${columns} ${price} ${words},
      updated_at = case when (description, amount, bazaar) is distinct from (${said?.description ?? sql`description`},
        ${amount ?? sql`amount`}::numeric, ${said ? sql.json(said.bazaar as never) : sql`bazaar`}::jsonb) then now() else updated_at end
    where id = ${declaredId}`
}

/** Deletes declared resources that had no settled payment for `days`. */
export async function forgetDeclared(sql: Queryable, days: number): Promise<void> {
  await sql`delete from declared_resource where settled_at < now() - ${days} * interval '1 day'`
}
