import { z } from '@hono/zod-openapi'
import { type Described, findInterfaceFault, type Interface } from '@tollkeeper/ledger/discovery/bazaar'
import { type Proof, readProofs } from '@tollkeeper/ledger/discovery/originProofs'
import { changeRegistry } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import { findUnstorable } from '@tollkeeper/runtime/storableJson'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByChainId, networkNames } from '@tollkeeper/sdk/protocol/networks'
import type { App } from '../http/app.ts'
import { changerOf, ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { ifMatch, isUnchanged, requireVersion, setVersion, version } from '../http/version.ts'
import * as wire from '../http/wire.ts'
import {
  type Endpoint,
  type EndpointWallet,
  findEndpoint,
  insertEndpoint,
  listEndpoints,
  methods,
  updateEndpoint,
} from './endpoints.ts'
import type { GatewayNetworks } from './networks.ts'
import { leastPriceOn } from './price.ts'
import { disabledSince } from './providers.ts'
import { findUpstream, proxyPath } from './upstreams.ts'
import { findWallet, listWallets, type Wallet } from './wallets.ts'

const owner = { ...ownersOnly, tags: ['Providers'] }

const endpointUrl = wire.resource.openapi({
  example: 'https://weather.example/cities/:city',
  description:
    'Its path may hold `:name` for one segment, and end in `*`; the most specific endpoint is charged. A path alone is ' +
    "one that the gateway serves from the provider's upstream. A tool of MCP is `mcp://tool/<name>`",
})

/** Most bytes of each of the four, as JSON. */
const maxJsonBytes = 4_096
/** Maximum levels of each of the four, one within the other. */
const maxJsonLevels = 64

const json = (description: string, example: unknown) =>
  z
    .unknown()
    .superRefine((value, context) => {
      const unstorable = findUnstorable(value, maxJsonLevels)
      const isLong = () => Buffer.byteLength(JSON.stringify(value) ?? '') > maxJsonBytes
      const message = unstorable ?? (isLong() ? `at most ${maxJsonBytes} bytes of JSON` : null)
      if (message !== null) context.addIssue({ code: 'custom', message })
    })
    .optional()
    .openapi({ type: ['object', 'null'], description, example })

const inputExample = { city: 'Oslo' }
const schemaOf = (properties: object) => ({ type: 'object', properties })
const discovery = {
  inputSchema: json(
    'JSON Schema of the query of GET and DELETE, else of the JSON body; null: none. No `$ref`',
    schemaOf({ city: { type: 'string' } }),
  ),
  inputExample: json('What follows it', inputExample),
  outputSchema: json('JSON Schema of the answer', schemaOf({ degrees: { type: 'number' } })),
  outputExample: json('An answer', { degrees: 7 }),
}

const newEndpoint = z
  .strictObject({
    url: endpointUrl,
    method: z.enum(methods).optional().openapi({ description: 'Default: any method' }),
    pricing: wire.pricing,
    walletId: wire.walletId
      .optional()
      .openapi({ description: "Default: the provider's wallet on `network`" }),
    network: wire.networkName.optional(),
    walletIds: z
      .array(wire.walletId)
      .min(1)
      .max(networkNames.length)
      .optional()
      .openapi({
        description:
          'Instead of `walletId` and `network`: the wallets that it may be paid on, one a network, the default first. ' +
          'Test and production networks are not mixed.',
      }),
    description: wire.text(500).optional(),
    mimeType: wire.text(200).min(1).optional(),
    listed: z.boolean().optional().openapi({ description: 'Whether buyers can find it; default: yes' }),
    ...discovery,
  })
  .openapi('NewEndpoint')

const endpoint = z
  .object({
    endpointId: wire.endpointId,
    providerId: wire.providerId,
    walletId: wire.walletId,
    network: wire.networkName,
    networks: z
      .array(z.object({ network: wire.networkName, walletId: wire.walletId }))
      .openapi({ description: 'All that it may be paid on, the default first' }),
    testnet: wire.testnet,
    method: z.enum(methods),
    url: z.string(),
    path: z.string(),
    pricing: z.object({ usdcPerUnit: wire.decimalUsdc }),
    description: z.string(),
    mimeType: z.string(),
    listed: z.boolean().openapi({ description: 'Whether buyers can find it' }),
    ...discovery,
    version,
    createdAt: wire.isoTime,
    disabledAt: wire.isoTime.nullable().openapi({ description: 'Since when there are no new challenges' }),
    proof: z
      .object({
        status: z.enum(['unasked', 'unproven', 'proven']),
        finding: z.string().nullable().openapi({ description: 'Why it is not proven, and what to do' }),
        checkedAt: wire.isoTime.nullable(),
        nextCheckAt: wire.isoTime.openapi({ description: 'A change of the endpoint brings it forward' }),
      })
      .nullable()
      .openapi({
        description:
          "Whether its URL itself asks for payments to the endpoint's wallet; null: it is no http URL",
      }),
  })
  .openapi('Endpoint')

const endpointChange = newEndpoint
  .partial()
  .extend({
    disabled: z.boolean().optional().openapi({ description: 'Whether new challenges are refused' }),
  })
  .openapi('EndpointChange')

export const endpointList = z.object({ endpoints: z.array(endpoint) })

const createEndpoint = route('post', '/providers/{id}/endpoints', {
  ...owner,
  summary: 'Register an endpoint and its price',
  body: newEndpoint,
  refuses: [404, 409],
  responses: { 201: jsonAnswer('The endpoint', endpoint) },
})

const getEndpoints = route('get', '/providers/{id}/endpoints', {
  ...owner,
  summary: 'Endpoints',
  responses: { 200: jsonAnswer('The endpoints, oldest first', endpointList) },
})

const getEndpoint = route('get', '/providers/{id}/endpoints/{endpointId}', {
  ...owner,
  summary: 'An endpoint',
  responses: { 200: jsonAnswer('The endpoint', endpoint) },
})

const patchEndpoint = route('patch', '/providers/{id}/endpoints/{endpointId}', {
  ...owner,
  summary: 'Change an endpoint, disable it or enable it',
  description:
    'New challenges have the new terms within two seconds. What was challenged before keeps its price and its wallet.',
  headers: ifMatch,
  body: endpointChange,
  refuses: [409],
  responses: { 200: jsonAnswer('The endpoint as it is now', endpoint) },
})

export type EndpointRouteOptions = {
  sql: Database
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'issuer' | 'minimumPrices' | 'tabs'>
  now: () => number
}

export function addEndpointRoutes(app: App, { sql, networks, settings, now }: EndpointRouteOptions): void {
  function requirePrice(price: bigint, wallets: readonly EndpointWallet[]): void {
    for (const { chainId } of wallets) {
      const { network } = networks.ofChain(chainId).served
      const minimum = leastPriceOn(settings, network)
      if (price >= minimum) continue
      throw new Refusal('price_below_minimum', `The least price on ${network.name} is ${formatUsdc(minimum)}`)
    }
  }

  const urlOf = (given: string, providerId: string) =>
    wire.urlOfResource(given, `${settings.issuer}${proxyPath(providerId)}`).href

  /**
   * Refuses URLs that the gateway's own address doesn't serve: of a provider it serves only what is below the provider's own path.
   *
   * @throws {Refusal} `invalid_field`; `unknown_upstream` if no server is behind that path.
   */
  async function requireServed(tx: Queryable, url: string, providerId: string): Promise<void> {
    if (!isBelow(url, settings.issuer)) return
    if (!isBelow(url, settings.issuer + proxyPath(providerId))) {
      const detail = `url: the gateway serves nothing of this provider's at ${url}; give a path, such as /forecast`
      throw new Refusal('invalid_field', detail, { details: { field: 'url' } })
    }
    if ((await findUpstream(tx, providerId)) === undefined)
      throw new Refusal(
        'unknown_upstream',
        'Register the server first that the gateway passes requests on to',
      )
  }

  async function answerWith(endpoint: Endpoint) {
    const proofs = await readProofs(sql, [endpoint.endpointId])
    return { ...toEndpoint(endpoint), proof: toProof(proofs.get(endpoint.endpointId)) }
  }

  app.openapi(createEndpoint, async (c) => {
    const providerId = c.req.valid('param').id
    const body = c.req.valid('json')
    const price = parseUsdc(body.pricing.usdcPerUnit)
    const inserted = await changeRegistry(sql, changerOf(c), async (tx, record) => {
      const wallets = await chooseWallets(tx, networks, { ...body, providerId })
      requirePrice(price, wallets)
      const url = urlOf(body.url, providerId)
      await requireServed(tx, url, providerId)
      const terms = { method: body.method ?? '*', url, ...shownOf(body, emptyShown) }
      requireShowable(terms)
      const endpoint = await insertEndpoint(tx, { providerId, wallets, price, ...terms })
      await record(endpoint.endpointId, null, toEndpoint(endpoint))
      return endpoint
    })
    if (inserted === undefined) throw new Refusal('unknown_provider')
    setVersion(c, inserted)
    return c.json(await answerWith(inserted), 201)
  })

  app.openapi(patchEndpoint, async (c) => {
    const { id: providerId, endpointId } = c.req.valid('param')
    const body = c.req.valid('json')
    const changed = await changeRegistry(sql, changerOf(c), async (tx, record) => {
      const before = await findEndpoint(tx, providerId, endpointId)
      if (before === undefined) throw new Refusal('unknown_endpoint')
      requireVersion(c.req.valid('header')['if-match'], before)
      const { walletId, walletIds, network } = body
      const wallets =
        (walletId ?? walletIds ?? network) === undefined
          ? before.wallets
          : await chooseWallets(tx, networks, { providerId, walletId, walletIds, network })
      const price = body.pricing === undefined ? before.price : parseUsdc(body.pricing.usdcPerUnit)
      requirePrice(price, wallets)
      const next = {
        wallets: wallets.map(({ walletId, chainId }) => ({ walletId, chainId })),
        method: body.method ?? before.method,
        url: body.url === undefined ? before.url : urlOf(body.url, providerId),
        price,
        ...shownOf(body, before),
        disabledAt: disabledSince(before, body.disabled, now()),
      }
      if (isUnchanged(before, next)) return before
      requireShowable(next)
      if (next.url !== before.url) await requireServed(tx, next.url, providerId)
      const after = await updateEndpoint(tx, { endpointId, providerId, ...next })
      await record(endpointId, toEndpoint(before), toEndpoint(after))
      return after
    })
    if (changed === undefined) throw new Refusal('unknown_provider')
    setVersion(c, changed)
    return c.json(await answerWith(changed), 200)
  })

  app.openapi(getEndpoints, async (c) => {
    const endpoints = await listEndpoints(sql, c.req.valid('param').id)
    const proofs = await readProofs(
      sql,
      endpoints.map(({ endpointId }) => endpointId),
    )
    const answers = endpoints.map((one) => ({
      ...toEndpoint(one),
      proof: toProof(proofs.get(one.endpointId)),
    }))
    return c.json({ endpoints: answers }, 200)
  })

  app.openapi(getEndpoint, async (c) => {
    const { id, endpointId } = c.req.valid('param')
    const found = await findEndpoint(sql, id, endpointId)
    if (found === undefined) throw new Refusal('unknown_endpoint')
    setVersion(c, found)
    return c.json(await answerWith(found), 200)
  })
}

type Shown = Pick<Endpoint, 'description' | 'mimeType' | 'listed' | keyof Interface>

const emptyShown: Shown = {
  description: '',
  mimeType: 'application/json',
  listed: true,
  inputSchema: null,
  inputExample: null,
  outputSchema: null,
  outputExample: null,
}

/** The fields for buyers: the requested ones, and the others as before. */
function shownOf(body: Partial<Record<keyof Shown, unknown>>, before: Shown): Shown {
  const names = Object.keys(emptyShown) as (keyof Shown)[]
  return Object.fromEntries(
    names.map((name) => [name, body[name] === undefined ? before[name] : body[name]]),
  ) as Shown
}

/** @throws {Refusal} `invalid_field` */
function requireShowable(endpoint: Described): void {
  const found = findInterfaceFault(endpoint)
  if (found === null) return
  throw new Refusal('invalid_field', `${found.field}: ${found.fault}`, { details: { field: found.field } })
}

function isBelow(url: string, base: string): boolean {
  const [inner, outer] = [new URL(url), new URL(base)]
  return (
    inner.origin === outer.origin && `${inner.pathname}/`.startsWith(`${outer.pathname.replace(/\/$/, '')}/`)
  )
}

type WalletChoice = {
  providerId: string
  walletId?: string | undefined
  walletIds?: string[] | undefined
  network?: string | undefined
}

/** The wallets that an endpoint is paid to: the requested ones, or the provider's oldest one on the requested network. */
async function chooseWallets(
  sql: Queryable,
  networks: GatewayNetworks,
  { providerId, walletId, walletIds, network: networkName }: WalletChoice,
): Promise<Wallet[]> {
  if (walletIds !== undefined) return chooseSeveral(sql, providerId, walletIds)
  if (walletId === undefined) {
    const { chainId, name } = networks.named(networkName).served.network
    const wallets = await listWallets(sql, providerId)
    const wallet = wallets.find((one) => one.chainId === chainId && one.retiredAt === null)
    if (wallet === undefined) throw new Refusal('unknown_wallet', `Register a wallet on ${name} first`)
    return [wallet]
  }
  const wallet = await findUsable(sql, providerId, walletId)
  const chainId = networks.chainIdNamed(networkName)
  if (chainId !== undefined && chainId !== wallet.chainId) {
    throw new Refusal('invalid_field', `The wallet is not on ${networkName}`, {
      details: { field: 'network' },
    })
  }
  return [wallet]
}

/** The wallets of an endpoint for several networks, in the requested order. */
async function chooseSeveral(
  sql: Queryable,
  providerId: string,
  walletIds: readonly string[],
): Promise<Wallet[]> {
  const found = await Promise.all(walletIds.map((id) => findUsable(sql, providerId, id)))
  const networks = found.map(({ chainId }) => networkByChainId(chainId))
  if (new Set(networks).size < networks.length) {
    throw new Refusal('invalid_field', 'walletIds: expected one wallet a network', {
      details: { field: 'walletIds' },
    })
  }
  if (new Set(networks.map(({ testnet }) => testnet)).size > 1) {
    throw new Refusal('networks_mixed', undefined, {
      details: { networks: networks.map(({ name }) => name) },
    })
  }
  return found
}

async function findUsable(sql: Queryable, providerId: string, walletId: string): Promise<Wallet> {
  const wallet = await findWallet(sql, providerId, walletId)
  if (wallet === undefined) throw new Refusal('unknown_wallet')
  if (wallet.retiredAt !== null) throw new Refusal('wallet_retired', undefined, { details: { walletId } })
  return wallet
}

function toProof(proof: Proof | undefined) {
  if (proof === undefined) return null
  const { isProven, finding, checkedAt, nextCheckAt } = proof
  const status = isProven
    ? ('proven' as const)
    : checkedAt === null
      ? ('unasked' as const)
      : ('unproven' as const)
  return { status, finding, checkedAt, nextCheckAt }
}

/** An endpoint as it is registered, which the registry's changes record. */
export function toEndpoint({ wallets, price, ...found }: Endpoint) {
  const networks = wallets.map(({ walletId, chainId }) => ({ walletId, ...networkByChainId(chainId) }))
  const [first] = networks
  if (first === undefined) throw new TypeError('An endpoint has a wallet')
  return {
    ...found,
    walletId: first.walletId,
    network: first.name,
    networks: networks.map(({ name, walletId }) => ({ network: name, walletId })),
    testnet: first.testnet,
    pricing: { usdcPerUnit: formatUsdc(price) },
  }
}
