import { findUnstorable, isStorableText } from '@tollkeeper/runtime/storableJson'
import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'
import { type BazaarExtension, findExtensionFault, type ServiceMetadata } from './bazaar.ts'

/** A resource as a payment declared it. */
export type Declaration = ServiceMetadata & {
  resource: string
  chainId: number
  payTo: Address
  providerId: string | null
  x402Version: 1 | 2
  /** USDC base units. */
  amount: bigint
  maxTimeoutSeconds: number
  description: string
  mimeType: string
  bazaar: BazaarExtension
}

/** Maximum number of declared resources per wallet. */
const maxOfWallet = 100
/** Minimum seconds between two requests to a listed URL, whether a payment or someone's probe triggers them. */
export const rereadSeconds = 120
const maxBazaarBytes = 16_384
/** Maximum levels of an extension's JSON. */
const maxBazaarLevels = 64

/** A payment's description of its resource. It is unchecked, and the buyer may have changed it. */
export type Declared = Pick<
  Declaration,
  'resource' | 'x402Version' | 'description' | 'mimeType' | 'maxTimeoutSeconds'
> & { serviceName?: unknown; tags?: unknown; iconUrl?: unknown; bazaar: unknown }

export type DeclaredBy = Pick<Declaration, 'chainId' | 'payTo' | 'amount' | 'providerId'>

/**
 * Parses the resource that a payment declares. As the standard requires, a wrong `serviceName`, `tags` or `iconUrl` is left out; any other
 * fault keeps the resource off the list.
 *
 * @returns the declaration, or the reason why it isn't listed.
 */
export function readDeclaration(
  { serviceName, tags, iconUrl, bazaar, ...declared }: Declared,
  payment: DeclaredBy,
): Declaration | string {
  if (!isResource(declared.resource))
    return 'resource: expected an http(s) URL or mcp://tool/<name>, of at most 2048 characters'
  if (declared.description.length > 500) return 'resource.description: at most 500 characters'
  if (declared.mimeType.length > 200) return 'resource.mimeType: at most 200 characters'
  if (!isStorableText(declared.description + declared.mimeType))
    return 'resource: U+0000 and incomplete characters can’t be stored'
  if (!(declared.maxTimeoutSeconds > 0 && declared.maxTimeoutSeconds < 2 ** 31))
    return 'maxTimeoutSeconds: expected seconds'
  const unstorable = findUnstorable(bazaar, maxBazaarLevels)
  if (unstorable !== null) return `extensions.bazaar: ${unstorable}`
  const text = JSON.stringify(bazaar) ?? ''
  if (Buffer.byteLength(text) > maxBazaarBytes) return `extensions.bazaar: at most ${maxBazaarBytes} bytes`
  const fault = findExtensionFault(bazaar)
  if (fault !== null) return `extensions.bazaar.${fault}`
  return {
    ...declared,
    ...payment,
    ...readService({ serviceName, tags, iconUrl }),
    bazaar: bazaar as BazaarExtension,
  }
}

function isResource(resource: string): boolean {
  const url = URL.parse(resource)
  return (
    resource.length <= 2048 &&
    !/[\p{Cc}\s]/u.test(resource) &&
    resource.isWellFormed() &&
    url !== null &&
    /^(https?|mcp):$/.test(url.protocol) &&
    url.username + url.password === ''
  )
}

/** Printable ASCII, as the standard requires. */
const namePattern = /^[ -~]{1,32}$/

/** Reads service metadata, without the fields that break the standard's rules. */
function readService({ serviceName, tags, iconUrl }: Record<string, unknown>): ServiceMetadata {
  const isName = (value: unknown): value is string => typeof value === 'string' && namePattern.test(value)
  return {
    serviceName: isName(serviceName) ? serviceName : null,
    tags: Array.isArray(tags) ? tags.filter(isName).slice(0, 5) : [],
    iconUrl: typeof iconUrl === 'string' && isIconUrl(iconUrl) ? iconUrl : null,
  }
}

/** Returns whether pages may show an icon from a URL. Its host must have a public name, not an address in the reader's network. */
export function isIconUrl(text: string): boolean {
  const url = URL.parse(text)
  if (url === null || text.length > 512 || /[^!-~]/.test(text)) return false
  const { protocol, username, password, hostname } = url
  // The URL parser converts every form of an IPv4 address to digits and dots.
  const isAddress = /^[\d.]+$|^\[/.test(hostname)
  return /^https?:$/.test(protocol) && username + password === '' && !isAddress && /\.[a-z]/i.test(hostname)
}

export { namePattern as serviceNamePattern }

const said =
  'x402_version amount max_timeout_seconds description mime_type service_name tags icon_url bazaar'.split(' ')

/** Returns the assignments by which a new declaration overwrites the row `d`. A proven row keeps its values. */
function updates(sql: Queryable) {
  const columns = said.map(
    (name) =>
      sql`${sql(name)} = case when d.proven_at is null then excluded.${sql(name)} else d.${sql(name)} end, `,
  )
  return sql`${columns} updated_at = case when d.proven_at is null and (d.amount, d.description, d.bazaar)
    is distinct from (excluded.amount, excluded.description, excluded.bazaar) then now() else d.updated_at end`
}

/**
 * Lists a resource, or records that it was paid for again.
 *
 * @returns false if its wallet already has the maximum number of resources.
 */
export async function listDeclaration(sql: Queryable, declaration: Declaration): Promise<boolean> {
  const { resource, chainId, payTo, providerId, x402Version, amount, maxTimeoutSeconds } = declaration
  const { description, mimeType, serviceName, tags, iconUrl, bazaar } = declaration
  const rows = await sql`
    insert into declared_resource as d (resource, chain_id, pay_to, provider_id, x402_version, amount, max_timeout_seconds,
      description, mime_type, service_name, tags, icon_url, bazaar)
    select ${resource}, ${chainId}, ${payTo}, ${providerId}, ${x402Version}, ${amount}, ${maxTimeoutSeconds},
      ${description}, ${mimeType}, ${serviceName}, ${tags as string[]}::text[], ${iconUrl}, ${sql.json(bazaar as never)}
    where exists (select from declared_resource where md5(resource) = md5(${resource}) and chain_id = ${chainId} and pay_to = ${payTo})
      or (select count(*) from declared_resource where pay_to = ${payTo}) < ${maxOfWallet}
    -- Once the resource's own 402 has been read, keep the values of the 402, because the buyer may have changed the values in the payment.
    on conflict (md5(resource), chain_id, pay_to) do update set
      provider_id = coalesce(excluded.provider_id, d.provider_id), settled_at = now(), ${updates(sql)},
      -- If the values in the payment differ, the 402 may have changed, so read the 402 again soon.
      next_check_at = case when d.proven_at is not null and (d.amount, d.description, d.bazaar)
          is distinct from (excluded.amount, excluded.description, excluded.bazaar)
        then least(d.next_check_at, greatest(now(), d.checked_at + ${rereadSeconds} * interval '1 second')) else d.next_check_at end
    returning d.id`
  if (rows.length > 0) await rereadOthers(sql, declaration)
  return rows.length > 0
}

/**
 * Schedules an early check of the other proven listings of the same URL, which have other wallets or networks. A payment to this listing may mean
 * that the URL's 402 no longer asks for payments to those wallets. Only the 402 decides that, because anyone can pay themselves for any URL. Such
 * payments can't cause frequent checks: see {@link rereadSeconds}.
 */
async function rereadOthers(sql: Queryable, { resource, chainId, payTo }: Declaration): Promise<void> {
  await sql`
    update declared_resource d
    set next_check_at = least(d.next_check_at, greatest(now(), d.checked_at + ${rereadSeconds} * interval '1 second'))
    where md5(d.resource) = md5(${resource}) and d.resource = ${resource} and (d.chain_id, d.pay_to) <> (${chainId}, ${payTo})
      and d.proven_at is not null`
}
