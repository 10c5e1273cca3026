import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'
import type { Declaration } from './declarations.ts'
import { originOf } from './listings.ts'

/** Something whose origin is to be asked which wallet it wants paid. */
export type Unproven = {
  /** Of `declared_resource`; null: it is an endpoint's origin. */
  declaredId: bigint | null
  origin: string
  payTo: Address
  /** A URL to ask, which may hold `:name`, and end in `*`. */
  url: string
  method: string
  failures: number
}

/** How long an origin is kept from others while it is being asked. */
const takenSeconds = 60

/**
 * Takes up origins that are due to be asked. Sellers take turns, so that one with many URLs delays nobody.
 *
 * @param limit most of each kind.
 */
export async function takeUnproven(sql: Queryable, limit: number): Promise<Unproven[]> {
  const endpoints = await sql<Unproven[]>`
    insert into origin_proof as o (origin, pay_to, next_check_at)
    select origin, pay_to, now() + ${takenSeconds} * interval '1 second'
    from (
      select distinct on (origin, pay_to) origin, pay_to, turn
      from ${endpointOrigins(sql)} e left join origin_proof known using (origin, pay_to)
      where known.origin is null or known.next_check_at <= now()
      order by origin, pay_to, turn
    ) due
    order by turn, origin, pay_to limit ${limit}
    on conflict (origin, pay_to) do update set next_check_at = excluded.next_check_at where o.next_check_at <= now()
    returning null::bigint as "declaredId", origin, pay_to as "payTo", failures,
      (select url from ${endpointOrigins(sql)} e where e.origin = o.origin and e.pay_to = o.pay_to order by turn limit 1) as url,
      (select method from ${endpointOrigins(sql)} e where e.origin = o.origin and e.pay_to = o.pay_to order by turn limit 1) as method`
  const declared = await sql<Unproven[]>`
    update declared_resource d set next_check_at = now() + ${takenSeconds} * interval '1 second'
    from (
      select id from (
        select id, row_number() over (partition by pay_to order by next_check_at) as turn from (
          select id, pay_to, next_check_at from declared_resource
          where next_check_at <= now() and resource like 'http%' order by next_check_at limit 1000
        ) waiting
      ) turns order by turn limit ${limit}
    ) due
    where d.id = due.id and d.next_check_at <= now()
    returning d.id as "declaredId", ${originOf(sql, sql`d.resource`)} as origin, d.pay_to as "payTo", d.resource as url,
      coalesce(d.bazaar #>> '{info,input,method}', 'GET') as method, d.failures`
  return [...endpoints, ...declared]
}

/** Origins of listed endpoints, each with a wallet that is paid there. */
function endpointOrigins(sql: Queryable) {
  return sql`(
    select ${originOf(sql, sql`x.url`)} as origin, w.address as pay_to, x.url, x.method,
      row_number() over (partition by x.provider_id order by x.created_at, x.id) as turn
    from endpoint x join provider p on p.id = x.provider_id join wallet w on w.id = x.wallet_id
    where x.listed and p.listed and x.disabled_at is null and x.url like 'http%'
  )`
}

/** The result of asking an origin. */
export type Finding =
  /** `said`: the resource's own description. */
  | { kind: 'proven'; said: Said | null }
  /** It asks for payments to other wallets; `isAway`: it gave no answer of this kind. */
  | { kind: 'unproven'; isAway: boolean; why: string }

/** How a declared resource's own 402 describes it. */
export type Said = Pick<Declaration, 'description' | 'mimeType' | 'amount' | 'maxTimeoutSeconds' | 'bazaar'> &
  Pick<Declaration, 'serviceName' | 'tags' | 'iconUrl'>

const provenHours = 24
/** Pause after a first failure; it doubles up to a day. */
const firstPauseMinutes = 5
/** How long a server may be away before it counts as somebody else's. */
const awayDays = 3

/** Stores the result of asking an origin, and when to ask again. */
export async function recordFinding(
  sql: Queryable,
  { declaredId, origin, payTo, failures }: Unproven,
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
  if (declaredId === null) {
    await sql`update origin_proof set ${columns} where origin = ${origin} and pay_to = ${payTo}`
    return
  }
  const said = isProven ? finding.said : null
  const updates = said
    ? sql`, description = ${said.description}, mime_type = ${said.mimeType}, amount = ${said.amount},
        max_timeout_seconds = ${said.maxTimeoutSeconds}, service_name = ${said.serviceName},
        tags = ${said.tags as string[]}::text[], icon_url = ${said.iconUrl}, bazaar = ${sql.json(said.bazaar as never)},
        updated_at = case when (description, amount, bazaar) is distinct from
          (${said.description}, ${said.amount}::numeric, ${sql.json(said.bazaar as never)}::jsonb) then now() else updated_at end`
    : sql``
  await sql`update declared_resource set ${columns} ${updates} where id = ${declaredId}`
}

/** Deletes declared resources that nobody pays for any more. */
export async function forgetDeclared(sql: Queryable, days: number): Promise<void> {
  await sql`delete from declared_resource where settled_at < now() - ${days} * interval '1 day'`
}
