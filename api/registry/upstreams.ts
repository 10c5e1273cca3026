import { randomBytes } from 'node:crypto'
import type { Queryable, Transaction } from '@tollkeeper/ledger/store/database'

/** Time in ms for which the previous secret is still sent after a rotation. */
const rotationMs = 24 * 60 * 60_000

/** A provider's own server, which gets paid requests from the gateway. */
export type Upstream = {
  /** URL without a slash at the end. */
  url: string
  /** Whether clients that don't ask for our own 402 body get a body of x402 v1. */
  acceptX402V1: boolean
  /** Whether callers log in to the server: `Basic` is passed on as well, its challenges are returned, and a refused login isn't charged. */
  forwardAuthorization: boolean
  /** Proves to the server that the gateway sent a request. */
  secret: string
  secretSince: Date
  previousSecret: string | null
  previousSecretExpiresAt: Date | null
}

/** Returns the path at which buyers call a provider's upstream. */
export function proxyPath(providerId: string): string {
  return `/p/${providerId}`
}

const columns = (
  sql: Queryable,
) => sql`url, accept_x402_v1 as "acceptX402V1", forward_authorization as "forwardAuthorization", secret, secret_since as "secretSince",
  previous_secret as "previousSecret", previous_secret_expires_at as "previousSecretExpiresAt"`

export async function findUpstream(sql: Queryable, providerId: string): Promise<Upstream | undefined> {
  const [row] = await sql<Upstream[]>`select ${columns(sql)} from upstream where provider_id = ${providerId}`
  return row
}

export type UpstreamChange = {
  url: string
  acceptX402V1?: boolean | null | undefined
  forwardAuthorization?: boolean | null | undefined
}

/** Sets the URL. The secret is created with the first URL and then kept; other fields keep their values if they are not given. */
export async function setUpstream(
  tx: Transaction,
  providerId: string,
  { url, acceptX402V1 = null, forwardAuthorization = null }: UpstreamChange,
): Promise<Upstream> {
  const [row] = await tx<[Upstream]>`
    insert into upstream as u (provider_id, url, accept_x402_v1, forward_authorization, secret)
    values (${providerId}, ${url}, coalesce(${acceptX402V1}, false), coalesce(${forwardAuthorization}, false), ${newUpstreamSecret()})
    on conflict (provider_id) do update set url = excluded.url, accept_x402_v1 = coalesce(${acceptX402V1}, u.accept_x402_v1),
      forward_authorization = coalesce(${forwardAuthorization}, u.forward_authorization)
    returning ${columns(tx)}`
  return row
}

/** Creates a new secret. The previous one is also sent for {@link rotationMs}, so that the server can switch over. */
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
