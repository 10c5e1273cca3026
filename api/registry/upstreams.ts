import { randomBytes } from 'node:crypto'
import type { Queryable, Transaction } from '@tollkeeper/ledger/store/database'

/** How long the former secret is still sent after a rotation. */
const rotationMs = 24 * 60 * 60_000

/** A provider's own server, which gets paid requests from the gateway. */
export type Upstream = {
  /** Without a slash at the end. */
  url: string
  /** The body of a 402 for a client that asks for none: ours (docs/protocol.md), or that of x402 v1. */
  body: ChallengeBody
  /** Proves to the server that the gateway is calling. */
  secret: string
  secretSince: Date
  previousSecret: string | null
  previousSecretExpiresAt: Date | null
}

export const challengeBodies = ['tollkeeper', 'x402-v1'] as const
type ChallengeBody = (typeof challengeBodies)[number]

/** The path by which buyers call a provider's upstream. */
export function proxyPath(providerId: string): string {
  return `/p/${providerId}`
}

const columns = (sql: Queryable) => sql`url, body, secret, secret_since as "secretSince",
  previous_secret as "previousSecret", previous_secret_expires_at as "previousSecretExpiresAt"`

export async function findUpstream(sql: Queryable, providerId: string): Promise<Upstream | undefined> {
  const [row] = await sql<Upstream[]>`select ${columns(sql)} from upstream where provider_id = ${providerId}`
  return row
}

/** Sets the URL. The secret is made with the first one and stays; so does `body` if none is given. */
export async function setUpstream(
  tx: Transaction,
  providerId: string,
  { url, body = null }: { url: string; body?: ChallengeBody | null | undefined },
): Promise<Upstream> {
  const [row] = await tx<[Upstream]>`
    insert into upstream as u (provider_id, url, body, secret)
    values (${providerId}, ${url}, coalesce(${body}, 'tollkeeper'), ${newUpstreamSecret()})
    on conflict (provider_id) do update set url = excluded.url, body = coalesce(${body}, u.body)
    returning ${columns(tx)}`
  return row
}

/** Makes a new secret. The previous one is sent beside it for {@link rotationMs}, so that the server can switch over. */
export async function rotateUpstreamSecret(
  tx: Transaction,
  providerId: string,
  now: number,
): Promise<Upstream | undefined> {
  const [row] = await tx<Upstream[]>`
    update upstream set previous_secret = secret, previous_secret_expires_at = ${new Date(now + rotationMs)},
      secret = ${newUpstreamSecret()}, secret_since = ${new Date(now)}
    where provider_id = ${providerId}
    returning ${columns(tx)}`
  return row
}

export async function deleteUpstream(tx: Transaction, providerId: string): Promise<void> {
  await tx`delete from upstream where provider_id = ${providerId}`
}

function newUpstreamSecret(): string {
  return `upsec_${randomBytes(32).toString('hex')}`
}
