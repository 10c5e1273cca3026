import { askAgain } from '@tollkeeper/ledger/discovery/originProofs'
import type { Queryable, Transaction } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import type { JsonSchema } from '@tollkeeper/runtime/jsonSchema'
import postgres from 'postgres'
import { Refusal } from '../http/refusal.ts'
import { isShadowed, overlaps, parseNewRoute, parseRoute } from './routeTable.ts'

/** The methods that an endpoint can be registered for; `*` means all of them. */
export const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', '*'] as const
export type Method = (typeof methods)[number]

/** Maximum number of endpoints per provider, including disabled endpoints, because a process reads all of them together. */
export const maxEndpoints = 1000

export type EndpointWallet = { walletId: string; chainId: number }

export type Endpoint = {
  endpointId: string
  providerId: string
  /** The wallets that it is paid to, one for each network; the first is the default. Either all of them or none are on test networks. */
  wallets: EndpointWallet[]
  method: Method
  url: string
  path: string
  /** USDC base units. */
  price: bigint
  description: string
  mimeType: string
  /** How it is called and what it answers, for buyers (packages/ledger/discovery). */
  inputSchema: JsonSchema | null
  outputSchema: JsonSchema | null
  inputExample: unknown
  outputExample: unknown
  /** URL at which buyers reach the MCP server that has this tool; null: none registered, or not a tool. */
  serverUrl: string | null
  /** Whether it is listed for buyers to find. */
  listed: boolean
  version: number
  createdAt: Date
  /** Since when it gets no new challenges; null: it is enabled. */
  disabledAt: Date | null
}

type NewEndpoint = Omit<Endpoint, 'endpointId' | 'path' | 'version' | 'createdAt' | 'disabledAt'>

const columns = (sql: Queryable) => sql`
  e.id as "endpointId", e.provider_id as "providerId", e.method, e.url, e.path, e.price, e.description,
  e.mime_type as "mimeType", e.input_schema as "inputSchema", e.output_schema as "outputSchema",
  e.input_example as "inputExample", e.output_example as "outputExample", e.server_url as "serverUrl", e.listed, e.version,
  e.created_at as "createdAt", e.disabled_at as "disabledAt",
  jsonb_build_array(jsonb_build_object('walletId', e.wallet_id, 'chainId', e.chain_id)) || coalesce(
    (select jsonb_agg(jsonb_build_object('walletId', x.wallet_id, 'chainId', x.chain_id) order by x.chain_id)
      from endpoint_wallet x where x.endpoint_id = e.id),
    '[]') as wallets`

/**
 * @throws {Refusal} `endpoint_exists` if the provider has an endpoint for this method and path, or more specific endpoints that match all
 * paths of this one; `endpoint_limit_reached`.
 */
export async function insertEndpoint(tx: Transaction, endpoint: NewEndpoint): Promise<Endpoint> {
  const endpointId = newId('ep')
  const [first, ...others] = endpoint.wallets
  if (first === undefined) throw new TypeError('An endpoint needs a wallet')
  const { host, path, shape } = parseNewRoute(new URL(endpoint.url))
  const [registered] = await tx<[{ count: number }]>`
    select count(*)::int as count from endpoint where provider_id = ${endpoint.providerId}`
  if (registered.count >= maxEndpoints) throw new Refusal('endpoint_limit_reached')
  const place = { ...endpoint, host, shape }
  await refuseTaken(
    tx,
    place,
    (tx) => tx`
    insert into endpoint (id, provider_id, wallet_id, chain_id, testnet, method, url, host, path, shape, price, description,
      mime_type, server_url, listed, input_schema, output_schema, input_example, output_example)
    values (${endpointId}, ${endpoint.providerId}, ${first.walletId}, ${first.chainId},
      ${isTestnet(tx, tx`${first.chainId}::int`)}, ${endpoint.method}, ${endpoint.url}, ${host}, ${path}, ${shape}, ${endpoint.price},
      ${endpoint.description}, ${endpoint.mimeType}, ${endpoint.serverUrl}, ${endpoint.listed},
      ${jsonOf(tx, endpoint.inputSchema)}, ${jsonOf(tx, endpoint.outputSchema)},
      ${jsonOf(tx, endpoint.inputExample)}, ${jsonOf(tx, endpoint.outputExample)})`,
  )
  await refuseShadowed(tx, place)
  await insertFurtherWallets(tx, endpointId, others)
  await askAgain(tx, endpointId)
  return readEndpoint(tx, endpointId)
}

/** @throws {Refusal} `endpoint_exists`, as {@link insertEndpoint}. */
export async function updateEndpoint(
  tx: Transaction,
  { endpointId, ...endpoint }: Omit<Endpoint, 'path' | 'version' | 'createdAt'>,
): Promise<Endpoint> {
  const [first, ...others] = endpoint.wallets
  if (first === undefined) throw new TypeError('An endpoint needs a wallet')
  const stored = await findEndpoint(tx, endpoint.providerId, endpointId)
  // An older version accepted URLs that are refused for new endpoints. Endpoints with such URLs can still be changed and disabled.
  const url = new URL(endpoint.url)
  const isKept = stored !== undefined && new URL(stored.url).href === url.href
  const { host, path, shape } = isKept ? parseRoute(url) : parseNewRoute(url)
  // The endpoint's other wallets are deleted before its first wallet changes, because the database never accepts wallets on both test and production
  // networks.
  await tx`delete from endpoint_wallet where endpoint_id = ${endpointId}`
  const place = { ...endpoint, host, shape }
  await refuseTaken(
    tx,
    place,
    (tx) => tx`
    update endpoint set wallet_id = ${first.walletId}, chain_id = ${first.chainId},
      testnet = ${isTestnet(tx, tx`${first.chainId}::int`)}, method = ${endpoint.method},
      url = ${endpoint.url}, host = ${host}, path = ${path}, shape = ${shape}, price = ${endpoint.price},
      description = ${endpoint.description}, mime_type = ${endpoint.mimeType},
      server_url = ${endpoint.serverUrl}, listed = ${endpoint.listed},
      input_schema = ${jsonOf(tx, endpoint.inputSchema)}, output_schema = ${jsonOf(tx, endpoint.outputSchema)},
      input_example = ${jsonOf(tx, endpoint.inputExample)}, output_example = ${jsonOf(tx, endpoint.outputExample)},
      disabled_at = ${endpoint.disabledAt}, updated_at = now(), version = version + 1
    where id = ${endpointId}`,
  )
  await refuseShadowed(tx, place)
  await insertFurtherWallets(tx, endpointId, others)
  await askAgain(tx, endpointId)
  return readEndpoint(tx, endpointId)
}

/** Converts a value for a JSON column. Null means that nothing is registered, so it is stored as SQL's null and not as JSON's. */
function jsonOf(tx: Transaction, value: unknown) {
  return value === null ? null : tx.json(value as never)
}

async function insertFurtherWallets(tx: Transaction, endpointId: string, wallets: EndpointWallet[]) {
  if (wallets.length === 0) return
  await tx`
    insert into endpoint_wallet (endpoint_id, wallet_id, chain_id, testnet)
    select ${endpointId}, wallet_id, chain_id, ${isTestnet(tx)}
    from unnest(${wallets.map(({ walletId }) => walletId)}::text[], ${wallets.map(({ chainId }) => chainId)}::int[])
      as given (wallet_id, chain_id)`
}

/** The fields that identify an endpoint within its provider. */
type Place = { providerId: string; host: string; method: Method; shape: string }

const rule = 'A provider has one endpoint for each host, method and path'

/**
 * Runs a write, and reports the endpoint that conflicts with it.
 *
 * @throws {Refusal} `endpoint_exists`
 */
async function refuseTaken(
  tx: Transaction,
  { providerId, host, method, shape }: Place,
  write: (tx: Transaction) => Promise<unknown>,
): Promise<void> {
  try {
    // With a savepoint, the transaction can still read the conflicting endpoint after the failure.
    await tx.savepoint((inner) => write(inner as Transaction))
  } catch (error) {
    if (!(error instanceof postgres.PostgresError && error.constraint_name === 'endpoint_route')) throw error
    const [taken] = await tx<{ endpointId: string; url: string }[]>`
      select id as "endpointId", url from endpoint
      where provider_id = ${providerId} and host = ${host} and method = ${method} and shape = ${shape} and disabled_at is null`
    const detail = `${rule}, and ${method} ${taken?.url} is already ${taken?.endpointId}: change that endpoint, or use another host, method or path`
    throw new Refusal('endpoint_exists', detail, { cause: error, details: { ...taken } })
  }
}

/**
 * Rejects a route that would completely shadow an enabled endpoint, or that would be shadowed itself, because no request could ever match
 * the shadowed endpoint.
 */
async function refuseShadowed(tx: Transaction, { providerId, host, shape }: Place): Promise<void> {
  // Routes can shadow each other only if they differ in nothing but the `:name` segments and the `*` at their end.
  const start = shape.replace(/(\/:)*(\/\*)?$/, '').replace(/\/$/, '')
  const routes = await tx<(Pick<Endpoint, 'method' | 'path' | 'disabledAt'> & { shape: string })[]>`
    select method, path, shape, disabled_at as "disabledAt" from endpoint
    where provider_id = ${providerId} and host = ${host} and rtrim(regexp_replace(shape, '(/:)*(/\\*)?$', ''), '/') = ${start}`
  for (const { method, path, shape, disabledAt } of routes) {
    const others = routes.filter((one) => one.method === method || one.method === '*')
    if (disabledAt === null && isShadowed(shape, new Set(others.map((one) => one.shape)))) {
      const detail = `No request could reach ${method} ${path}: more specific endpoints of its host match all its paths`
      throw new Refusal('endpoint_exists', detail)
    }
  }
}

/** An endpoint of another host that matches some of the same paths. */
export type PathShare = { endpointId: string; url: string }

/**
 * Finds the enabled endpoints of other hosts that match some of an endpoint's paths. A middleware that names neither its host nor an
 * endpoint is refused for these paths.
 */
export async function findPathShares(
  sql: Queryable,
  { endpointId, providerId, method, url }: Pick<Endpoint, 'endpointId' | 'providerId' | 'method' | 'url'>,
): Promise<PathShare[]> {
  const own = parseRoute(new URL(url))
  const rows = await sql<(PathShare & { method: Method })[]>`
    select id as "endpointId", url, method from endpoint
    where provider_id = ${providerId} and id <> ${endpointId} and host <> ${own.host} and disabled_at is null
    order by url, id limit ${maxEndpoints}`
  return rows
    .filter((one) => one.method === method || one.method === '*' || method === '*')
    .filter((one) => overlaps(own, parseRoute(new URL(one.url))))
    .map(({ endpointId, url }) => ({ endpointId, url }))
}

async function readEndpoint(sql: Queryable, endpointId: string): Promise<Endpoint> {
  const [row] = await sql<[Endpoint]>`select ${columns(sql)} from endpoint e where e.id = ${endpointId}`
  return row
}

export async function findEndpoint(
  sql: Queryable,
  providerId: string,
  endpointId: string,
): Promise<Endpoint | undefined> {
  const [row] = await sql<Endpoint[]>`
    select ${columns(sql)} from endpoint e where e.id = ${endpointId} and e.provider_id = ${providerId}`
  return row
}

export async function listEndpoints(sql: Queryable, providerId: string): Promise<Endpoint[]> {
  return sql<Endpoint[]>`
    select ${columns(sql)} from endpoint e
    where e.provider_id = ${providerId}
    order by e.created_at, e.id limit ${maxEndpoints}`
}

/** Finds the endpoints that are paid to a wallet on any network. Includes disabled endpoints, because they may be enabled again. */
export async function findEndpointsPaidTo(sql: Queryable, walletId: string): Promise<Endpoint[]> {
  return sql<Endpoint[]>`
    select ${columns(sql)} from endpoint e
    where e.wallet_id = ${walletId}
      or exists (select from endpoint_wallet x where x.endpoint_id = e.id and x.wallet_id = ${walletId})
    order by e.created_at, e.id`
}
