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

/** Most declared resources of one wallet. */
const maxOfWallet = 100
/** The least pause between two questions of a resource that payments cause. */
const rereadMinutes = 2
const maxBazaarBytes = 16_384
/** Maximum levels of an extension's JSON. */
const maxBazaarLevels = 64

/** A payment's unchecked description of its resource, which went through its buyer's hands. */
export type Declared = Pick<
  Declaration,
  'resource' | 'x402Version' | 'description' | 'mimeType' | 'maxTimeoutSeconds'
> & { serviceName?: unknown; tags?: unknown; iconUrl?: unknown; bazaar: unknown }

export type DeclaredBy = Pick<Declaration, 'chainId' | 'payTo' | 'amount' | 'providerId'>

/**
 * Reads what a payment declares. As the standard says, a wrong `serviceName`, `tags` or `iconUrl` is left out; any other fault keeps
 * the resource off the list.
 *
 * @returns the declaration, or why it isn't listed.
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
    return 'resource: U+0000 and halves of characters can not be stored'
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

/** Printable ASCII, as the standard has it. */
const namePattern = /^[ -~]{1,32}$/

/** Leaves out service metadata that break the standard's rules. */
function readService({ serviceName, tags, iconUrl }: Record<string, unknown>): ServiceMetadata {
  const isName = (value: unknown): value is string => typeof value === 'string' && namePattern.test(value)
  return {
    serviceName: isName(serviceName) ? serviceName : null,
    tags: Array.isArray(tags) ? tags.filter(isName).slice(0, 5) : [],
    iconUrl: typeof iconUrl === 'string' && isIconUrl(iconUrl) ? iconUrl : null,
  }
}

/** Whether pages may show an icon from a URL: its host must have a public name, not an address of the reader's network. */
export function isIconUrl(text: string): boolean {
  const url = URL.parse(text)
  if (url === null || text.length > 512 || /[^!-~]/.test(text)) return false
  const { protocol, username, password, hostname } = url
  // The URL parser has written every form of an IPv4 address as digits and dots.
  const isAddress = /^[\d.]+$|^\[/.test(hostname)
  return /^https?:$/.test(protocol) && username + password === '' && !isAddress && /\.[a-z]/i.test(hostname)
}

export { namePattern as serviceNamePattern }

const said =
  'x402_version amount max_timeout_seconds description mime_type service_name tags icon_url bazaar'.split(' ')

/** The columns of the row `d` that a new declaration overwrites, unless the row is proven. */
function updates(sql: Queryable) {
  const columns = said.map(
    (name) =>
      sql`${sql(name)} = case when d.proven_at is null then excluded.${sql(name)} else d.${sql(name)} end, `,
  )
  return sql`${columns} updated_at = case when d.proven_at is null and (d.amount, d.description, d.bazaar)
    is distinct from (excluded.amount, excluded.description, excluded.bazaar) then now() else d.updated_at end`
}

/**
 * Lists a resource, or notes that it was paid for again.
 *
 * @returns false where its wallet has its most resources already.
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
    -- Once the resource's own 402 was read, that says the rest: what comes with a payment went through its buyer's hands.
    on conflict (md5(resource), chain_id, pay_to) do update set
      provider_id = coalesce(excluded.provider_id, d.provider_id), settled_at = now(), ${updates(sql)},
      -- But if it differs, the 402 may have changed, so it is read soon.
      next_check_at = case when d.proven_at is not null and (d.amount, d.description, d.bazaar)
          is distinct from (excluded.amount, excluded.description, excluded.bazaar)
        then least(d.next_check_at, greatest(now(), d.checked_at + ${rereadMinutes} * interval '1 minute')) else d.next_check_at end
    returning d.id`
  return rows.length > 0
}
