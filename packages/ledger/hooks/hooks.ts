import type { Address } from 'viem'
import type { Queryable, Transaction } from '../store/database.ts'

/** Time in ms for which the former secret still signs after a rotation. */
const rotationMs = 24 * 60 * 60_000

/** A provider's hook: the URL that is asked before a payment to the provider is accepted. */
export type AcceptHook = {
  providerId: string
  url: string
  /** Names of the request headers to pass on, in lower case. */
  headers: string[]
  onFailure: 'refuse' | 'accept'
  secret: string
  secretSince: Date
  previousSecret: string | null
  previousSecretExpiresAt: Date | null
  changedAt: Date
}

function columns(sql: Queryable) {
  return sql`provider_id as "providerId", url, headers, on_failure as "onFailure", secret,
    secret_since as "secretSince", previous_secret as "previousSecret",
    previous_secret_expires_at as "previousSecretExpiresAt", changed_at as "changedAt"`
}

export async function findHook(sql: Queryable, providerId: string): Promise<AcceptHook | undefined> {
  const [row] = await sql<
    AcceptHook[]
  >`select ${columns(sql)} from accept_hook where provider_id = ${providerId}`
  return row
}

/** Sets the hook. The secret is created with a provider's first hook and then kept. Fields that aren't given stay unchanged. */
export async function setHook(
  tx: Transaction,
  providerId: string,
  hook: {
    url: string
    headers?: string[] | undefined
    onFailure?: AcceptHook['onFailure'] | undefined
    secret: string
    now: Date
  },
): Promise<AcceptHook> {
  const { url, headers = null, onFailure = null, secret, now } = hook
  const [row] = await tx<[AcceptHook]>`
    insert into accept_hook as h (provider_id, url, headers, on_failure, secret, secret_since, changed_at)
    values (${providerId}, ${url}, coalesce(${headers}::text[], '{}'), coalesce(${onFailure}, 'refuse'), ${secret}, ${now}, ${now})
    on conflict (provider_id) do update set url = excluded.url, headers = coalesce(${headers}::text[], h.headers),
      on_failure = coalesce(${onFailure}, h.on_failure), changed_at = ${now}
    returning ${columns(tx)}`
  return row
}

/** Replaces the secret. For {@link rotationMs}, requests are signed with the former secret as well. */
export async function rotateHookSecret(
  tx: Transaction,
  providerId: string,
  { secret, now }: { secret: string; now: Date },
): Promise<AcceptHook | undefined> {
  const [row] = await tx<AcceptHook[]>`
    update accept_hook set previous_secret = secret, secret = ${secret}, secret_since = ${now},
      previous_secret_expires_at = ${new Date(now.getTime() + rotationMs)}
    where provider_id = ${providerId}
    returning ${columns(tx)}`
  return row
}

export async function deleteHook(tx: Transaction, providerId: string): Promise<void> {
  await tx`delete from accept_hook where provider_id = ${providerId}`
}

/** Returns the secrets that sign at `now`, the current one first. */
export function secretsOf(
  { secret, previousSecret, previousSecretExpiresAt }: AcceptHook,
  now: number,
): string[] {
  const isKept = previousSecretExpiresAt !== null && previousSecretExpiresAt.getTime() > now
  return previousSecret !== null && isKept ? [secret, previousSecret] : [secret]
}

/**
 * Finds the recipients whose owner has a hook, each with that provider's id. A recipient is a wallet, or a splitter that pays a wallet.
 *
 * Anyone may register any address, so only the provider that registered it first counts. No one can take over or avoid another provider's
 * hook by registering its wallet later.
 */
export async function findHookedPayees(
  sql: Queryable,
  { chainId, token }: { chainId: number; token: Address },
  recipients: readonly Address[],
): Promise<Map<Address, string>> {
  const rows = await sql<{ address: Address; providerId: string; hasHook: boolean }[]>`
    select distinct on (paid.address) paid.address, w.provider_id as "providerId", h.provider_id is not null as "hasHook"
    from (
      select asked.address, coalesce(s.provider, asked.address) as wallet
      from unnest(${[...new Set(recipients)]}::text[]) as asked (address)
      left join splitter s on s.chain_id = ${chainId} and s.token = ${token} and s.address = asked.address
    ) paid
    join wallet w on w.chain_id = ${chainId} and w.address = paid.wallet
    left join accept_hook h on h.provider_id = w.provider_id
    order by paid.address, w.created_at, w.id`
  return new Map(
    rows.flatMap(({ address, providerId, hasHook }) => (hasHook ? [[address, providerId] as const] : [])),
  )
}
