import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'
import type { Declaration } from './declarations.ts'

/** Something listed whose URL is to be asked which wallet it wants paid. */
export type Unproven = {
  /** Of `declared_resource`; null: it is an endpoint. */
  declaredId: bigint | null
  endpointId: string | null
  chainId: number
  payTo: Address
  /** A URL to ask, which may hold `:name`, and end in `*`. */
  url: string
  method: string
  /** A body or query that passes the seller's own checks, as far as the seller names one. */
  input: unknown
  failures: number
}

/** How long a URL is kept from others while it is being asked. */
const takenSeconds = 60
/** How many that are due are read to choose from. */
const maxDue = 1_000
/** When something is looked at again that isn't listed. */
const unlistedHours = 24
/** The least pause between two questions that a change of an endpoint causes, since its URL may be anyone's. */
const changedSeconds = 60

/**
 * Takes up URLs that are due to be asked: each of its own, because the sellers of a shared host have the same origin. Those that
 * failed least come first and sellers take turns, so that one with many URLs delays no one.
 *
 * @param limit most of each kind.
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
    returning null::bigint as "declaredId", o.endpoint_id as "endpointId", x.chain_id as "chainId", o.pay_to as "payTo", o.url,
      x.method, x.input_example as input, o.failures`
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

/**
 * Has an endpoint's URL asked soon which wallet it wants paid, because the endpoint was registered or changed. What was found of
 * another URL or wallet doesn't count any more.
 */
export async function askAgain(sql: Queryable, endpointId: string): Promise<void> {
  await sql`
    insert into endpoint_proof as o (endpoint_id, url, pay_to)
    select e.id, e.url, w.address from endpoint e join wallet w on w.id = e.wallet_id
    where e.id = ${endpointId} and e.url like 'http%'
    on conflict (endpoint_id) do update set url = excluded.url, pay_to = excluded.pay_to, failures = 0,
      proven_at = case when (o.url, o.pay_to) = (excluded.url, excluded.pay_to) then o.proven_at end,
      finding = case when (o.url, o.pay_to) = (excluded.url, excluded.pay_to) then o.finding end,
      next_check_at = least(o.next_check_at, greatest(now(), o.checked_at + ${changedSeconds} * interval '1 second'))`
}

/** What an endpoint's URL was found to ask for. */
export type Proof = { isProven: boolean; checkedAt: Date | null; nextCheckAt: Date; finding: string | null }

/** Reads what is known of endpoints' URLs; those that are asked nothing are left out. */
export async function readProofs(
  sql: Queryable,
  endpointIds: readonly string[],
): Promise<Map<string, Proof>> {
  const rows = await sql<(Proof & { endpointId: string })[]>`
    select o.endpoint_id as "endpointId", o.proven_at is not null as "isProven", o.checked_at as "checkedAt",
      o.next_check_at as "nextCheckAt", o.finding
    from endpoint_proof o join endpoint e on e.id = o.endpoint_id and e.url = o.url
    where o.endpoint_id = any(${endpointIds as string[]}::text[])`
  return new Map(rows.map(({ endpointId, ...proof }) => [endpointId, proof]))
}

/** Whether the seller is proven at this or another URL of the same origin, for the same wallet. */
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

/** The result of asking a URL. */
export type Finding =
  /** `said`: a declared resource's own description; `amount`: its price there, USDC base units. */
  | { kind: 'proven'; said: Said | null; amount: bigint | null }
  /** It asks for payments to other wallets; `isAway`: it gave no answer of this kind. */
  | { kind: 'unproven'; isAway: boolean; why: string }

/** How a declared resource's own 402 describes it. */
export type Said = Pick<Declaration, 'description' | 'mimeType' | 'maxTimeoutSeconds' | 'bazaar'> &
  Pick<Declaration, 'serviceName' | 'tags' | 'iconUrl'>

const provenHours = 24
/** Pause after a first failure; it doubles up to a day. */
const firstPauseMinutes = 5
/** How long a server may be away before it counts as somebody else's. */
const awayDays = 3

/** Stores the result of asking a URL, and when to ask again. */
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
    proven_at = ${
      isProven
        ? sql`now()`
        : finding.isAway
          ? sql`case when proven_at > now() - ${awayDays} * interval '1 day' then proven_at end`
          : sql`null`
    }`
  if (endpointId !== null) {
    // Not if the endpoint was changed meanwhile.
    await sql`
      update endpoint_proof set ${columns} where endpoint_id = ${endpointId} and url = ${url} and pay_to = ${payTo}`
    return
  }
  const said = isProven ? finding.said : null
  const amount = isProven ? finding.amount : null
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

/** Deletes declared resources that nobody pays for any more. */
export async function forgetDeclared(sql: Queryable, days: number): Promise<void> {
  await sql`delete from declared_resource where settled_at < now() - ${days} * interval '1 day'`
}
