import { z } from '@hono/zod-openapi'
import {
  type Described,
  findInterfaceFault,
  type Interface,
  typeOfResource,
} from '@tollkeeper/ledger/discovery/bazaar'
import type { Catalogue } from '@tollkeeper/ledger/discovery/catalogue'
import { readListingStates } from '@tollkeeper/ledger/discovery/listingState'
import { readProofs } from '@tollkeeper/ledger/discovery/originProofs'
import { finding, type SellerFinding } from '@tollkeeper/ledger/discovery/sellerFindings'
import { changeRegistry } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import type { AddressGuard } from '@tollkeeper/runtime/addressGuard'
import { findUnstorable } from '@tollkeeper/runtime/storableJson'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByChainId, networkNames } from '@tollkeeper/sdk/protocol/networks'
import { answerRead } from '../http/answerJson.ts'
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
  findPathShares,
  insertEndpoint,
  listEndpoints,
  methods,
  updateEndpoint,
} from './endpoints.ts'
import { listingState, proof, sellerFinding, toProof } from './listedUrl.ts'
import type { GatewayNetworks } from './networks.ts'
import { createCheckNow } from './originChecks.ts'
import { leastPriceOn } from './price.ts'
import { adviseOnEndpoint } from './priceAdvice.ts'
import { type ProbeLimits, probesPerCaller } from './probeLimits.ts'
import { disabledSince } from './providers.ts'
import { findUpstream, proxyPath } from './upstreams.ts'
import { findWallet, listWallets, type Wallet } from './wallets.ts'

const owner = { ...ownersOnly, tags: ['Providers'] }

const endpointUrl = wire.resource.openapi({
  example: 'https://weather.example/cities/:city',
  description:
    'The path may contain `:name` for one segment and end in `*`. If several endpoints match a request, the most specific one is charged. ' +
    "If you send a path without an origin, the gateway serves it from the provider's upstream. For an MCP tool, send `mcp://tool/<name>`",
})

/** Maximum size of each schema and each example, in bytes of JSON. */
const maxJsonBytes = 4_096
/** Maximum nesting depth of each schema and each example. */
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
    'JSON Schema of the query for GET and DELETE, otherwise of the JSON body; null: none. `$ref` is not allowed',
    schemaOf({ city: { type: 'string' } }),
  ),
  inputExample: json('An example that conforms to the schema', inputExample),
  outputSchema: json('JSON Schema of the answer', schemaOf({ degrees: { type: 'number' } })),
  outputExample: json('An answer', { degrees: 7 }),
}

const newEndpoint = z
  .strictObject({
    url: endpointUrl,
    method: z.enum(methods).optional().openapi({ description: 'HTTP method. Default: any' }),
    pricing: wire.pricing,
    walletId: wire.walletId
      .optional()
      .openapi({ description: "Wallet to be paid on. Default: the provider's wallet on `network`" }),
    network: wire.networkName.optional(),
    walletIds: z
      .array(wire.walletId)
      .min(1)
      .max(networkNames.length)
      .optional()
      .openapi({
        description:
          'Instead of `walletId` and `network`: the wallets that it may be paid on, one per network, the default first. ' +
          'Test and production networks are not mixed.',
      }),
    description: wire.text(500).optional(),
    mimeType: wire.text(200).min(1).optional(),
    serverUrl: wire.fullUrl.nullable().optional().openapi({
      example: 'https://tools.example/mcp',
      description:
        'Only for `mcp://tool/…`: URL of the MCP server that has this tool (streamable HTTP). Shown in the catalog',
    }),
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
      .openapi({ description: 'All wallets that it may be paid on, the default first' }),
    testnet: wire.testnet,
    method: z.enum(methods),
    url: z.string(),
    path: z.string(),
    pricing: z.object({ usdcPerUnit: wire.decimalUsdc }),
    description: z.string(),
    mimeType: z.string(),
    serverUrl: z.string().nullable().openapi({
      description: 'URL of the MCP server that has this tool; null: none registered, or not a tool',
    }),
    listed: z.boolean().openapi({ description: 'Whether buyers can find it' }),
    ...discovery,
    version,
    createdAt: wire.isoTime,
    disabledAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Since when it gets no new challenges; null: it is enabled' }),
    sharesPathWith: z
      .array(z.object({ endpointId: wire.endpointId, url: z.string() }))
      .optional()
      .openapi({
        description:
          'Enabled endpoints of other hosts for the same paths. The middleware of each must set `publicUrl` or `endpointId`, otherwise its requests ' +
          'are refused (`endpoint_ambiguous`). Only in answers about one endpoint, and only if there are any',
      }),
    proof: proof.nullable().openapi({
      description: "Whether its URL itself asks for payments to the endpoint's wallet; null: not an http URL",
    }),
    listing: listingState.openapi({ description: 'Whether the catalog lists it' }),
  })
  .openapi('Endpoint')

const endpointChange = newEndpoint
  .partial()
  .extend({
    disabled: z.boolean().optional().openapi({ description: 'Whether new challenges are refused' }),
  })
  .openapi('EndpointChange')

/** An endpoint as returned to the caller that registers or changes it. */
const registeredEndpoint = endpoint
  .extend({
    advice: z.string().nullable().openapi({
      description: "What to do if the price's fee doesn't pay for the gas of a payment that settles alone",
    }),
  })
  .openapi('RegisteredEndpoint')

export const endpointList = z.object({ endpoints: z.array(endpoint) })

const createEndpoint = route('post', '/providers/{id}/endpoints', {
  ...owner,
  summary: 'Register an endpoint and its price',
  body: newEndpoint,
  refuses: [404, 409],
  responses: { 201: jsonAnswer('The endpoint', registeredEndpoint) },
})

const getEndpoints = route('get', '/providers/{id}/endpoints', {
  ...owner,
  summary: 'List endpoints',
  responses: { 200: jsonAnswer('The endpoints, oldest first', endpointList) },
})

const getEndpoint = route('get', '/providers/{id}/endpoints/{endpointId}', {
  ...owner,
  summary: 'Read an endpoint',
  responses: { 200: jsonAnswer('The endpoint', endpoint) },
})

const patchEndpoint = route('patch', '/providers/{id}/endpoints/{endpointId}', {
  ...owner,
  summary: 'Change an endpoint, disable it or enable it',
  description:
    'New challenges have the new terms within two seconds. Challenges issued before keep their price and wallet.',
  headers: ifMatch,
  body: endpointChange,
  refuses: [409],
  responses: { 200: jsonAnswer('The endpoint after the change', registeredEndpoint) },
})

export const endpointCheck = z
  .object({
    endpoint,
    findings: z.array(sellerFinding).openapi({ description: 'In the order in which they were found' }),
  })
  .openapi('EndpointCheck')

const postCheck = route('post', '/providers/{id}/endpoints/{endpointId}/check', {
  ...owner,
  summary: "Check an endpoint's URL now: request its payment terms, and return the findings",
  description: `The next regular check is scheduled as if this had been a regular check. At most ${probesPerCaller} checks per minute and provider.`,
  refuses: [429],
  responses: { 200: jsonAnswer('The endpoint, and the findings', endpointCheck) },
})

export type EndpointRouteOptions = {
  sql: Database
  networks: GatewayNetworks
  /** Null: this gateway has no catalog. */
  catalogue: Catalogue | null
  /** Checks the addresses of sellers' servers before a request is sent to them. */
  addressGuard: AddressGuard
  probeLimits: ProbeLimits
  settings: Pick<GatewaySettings, 'issuer' | 'minimumPrices' | 'tabs' | 'feeSchedule'>
  now: () => number
}

export function addEndpointRoutes(app: App, options: EndpointRouteOptions): void {
  const { sql, networks, catalogue, addressGuard, probeLimits, settings, now } = options

  function requirePrice(price: bigint, wallets: readonly EndpointWallet[]): void {
    for (const { chainId } of wallets) {
      const { network } = networks.ofChain(chainId).served
      const minimum = leastPriceOn(settings, network)
      if (price >= minimum) continue
      throw new Refusal(
        'price_below_minimum',
        `The minimum price on ${network.name} is ${formatUsdc(minimum)} USDC`,
      )
    }
  }

  const urlOf = (given: string, providerId: string) =>
    wire.urlOfResource(given, `${settings.issuer}${proxyPath(providerId)}`).href

  /**
   * Rejects a URL under the gateway's own address that the gateway doesn't serve. For a provider, it serves only paths under the provider's own proxy
   * path, and only if the provider has an upstream.
   *
   * @throws {Refusal} `invalid_field`; `unknown_upstream` if the provider has no upstream.
   */
  async function requireServed(tx: Queryable, url: string, providerId: string): Promise<void> {
    if (!isBelow(url, settings.issuer)) return
    if (!isBelow(url, settings.issuer + proxyPath(providerId))) {
      const detail = `url: the gateway does not serve this provider at ${url}; send a path, such as /forecast`
      throw new Refusal('invalid_field', detail, { details: { field: 'url' } })
    }
    if ((await findUpstream(tx, providerId)) === undefined)
      throw new Refusal(
        'unknown_upstream',
        'Register an upstream first: the server to which the gateway passes requests on',
      )
  }

  async function answerWith(endpoint: Endpoint) {
    const [found, shares] = await Promise.all([readFound([endpoint]), findPathShares(sql, endpoint)])
    return {
      ...toEndpoint(endpoint),
      ...(shares.length > 0 && { sharesPathWith: shares }),
      ...found(endpoint),
    }
  }

  /** Reads the last findings about endpoints' URLs, and the state of their listings. */
  async function readFound(endpoints: readonly Endpoint[]) {
    const ids = endpoints.map(({ endpointId }) => endpointId)
    const [proofs, states] = await Promise.all([readProofs(sql, ids), readListingStates(sql, catalogue, ids)])
    return ({ endpointId }: Endpoint) => ({
      proof: toProof(proofs.get(endpointId)),
      listing: states.get(endpointId) ?? { status: 'not_listed' as const, reasons: [] },
    })
  }

  async function answerChanged(endpoint: Endpoint) {
    const chainIds = endpoint.wallets.map(({ chainId }) => chainId)
    const advice = await adviseOnEndpoint({ networks, settings }, endpoint.price, chainIds)
    return { ...(await answerWith(endpoint)), advice }
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
    return c.json(await answerChanged(inserted), 201)
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
    return c.json(await answerChanged(changed), 200)
  })

  app.openapi(getEndpoints, async (c) => {
    const endpoints = await listEndpoints(sql, c.req.valid('param').id)
    const found = await readFound(endpoints)
    return answerRead(c, { endpoints: endpoints.map((one) => ({ ...toEndpoint(one), ...found(one) })) })
  })

  const served = [...networks.byChainId.values()].map((one) => one.served)
  app.openapi(postCheck, async (c) => {
    const { id, endpointId } = c.req.valid('param')
    const asked = await findEndpoint(sql, id, endpointId)
    if (asked === undefined) throw new Refusal('unknown_endpoint')
    const { host, protocol, origin } = new URL(asked.url)
    const check = (guard: AddressGuard) =>
      createCheckNow({ sql, guard, issuer: settings.issuer, networks: served })(endpointId)
    // Tools and URLs that the gateway serves itself get no request, so they don't count towards the limit of a host that all providers
    // share.
    const isAsked = /^https?:$/.test(protocol) && origin !== new URL(settings.issuer).origin
    const findings = await (isAsked ? probeLimits.run({ caller: id, host }, check) : check(addressGuard))
    const endpoint = await answerWith((await findEndpoint(sql, id, endpointId)) ?? asked)
    return c.json({ endpoint, findings: withPrice(endpoint, findings ?? [finding('tool')]) }, 200)
  })

  app.openapi(getEndpoint, async (c) => {
    const { id, endpointId } = c.req.valid('param')
    const found = await findEndpoint(sql, id, endpointId)
    if (found === undefined) throw new Refusal('unknown_endpoint')
    setVersion(c, found)
    return c.json(await answerWith(found), 200)
  })
}

/** Adds a finding if the URL's own 402 asks for another price than the registered one. */
function withPrice(
  { pricing, proof }: { pricing: { usdcPerUnit: string }; proof: ReturnType<typeof toProof> },
  findings: readonly SellerFinding[],
): SellerFinding[] {
  const asked = proof?.status === 'proven' && proof.code === null ? proof.asked_usdc : null
  if (asked === null || parseUsdc(asked) === parseUsdc(pricing.usdcPerUnit)) return [...findings]
  const words = `Its 402 asks for ${asked} USDC, and ${pricing.usdcPerUnit} is registered.`
  return [...findings, finding('price_differs', words)]
}

type Shown = Pick<Endpoint, 'description' | 'mimeType' | 'serverUrl' | 'listed' | keyof Interface>

const emptyShown: Shown = {
  description: '',
  mimeType: 'application/json',
  serverUrl: null,
  listed: true,
  inputSchema: null,
  inputExample: null,
  outputSchema: null,
  outputExample: null,
}

/** Returns the fields that buyers see. Fields that the request doesn't contain keep their previous values. */
function shownOf(body: Partial<Record<keyof Shown, unknown>>, before: Shown): Shown {
  const names = Object.keys(emptyShown) as (keyof Shown)[]
  return Object.fromEntries(
    names.map((name) => [name, body[name] === undefined ? before[name] : body[name]]),
  ) as Shown
}

/** @throws {Refusal} `invalid_field` */
function requireShowable(endpoint: Described & Pick<Endpoint, 'serverUrl'>): void {
  if (endpoint.serverUrl !== null && typeOfResource(endpoint.url) !== 'mcp') {
    const detail = `serverUrl: only a tool (mcp://tool/<name>) can have one, and this endpoint is ${endpoint.url}: send null`
    throw new Refusal('invalid_field', detail, { details: { field: 'serverUrl' } })
  }
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

/** Returns the wallets that an endpoint is paid to: the requested wallets, or the provider's oldest wallet on the requested network. */
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

/** Returns an endpoint's wallets on several networks, in the requested order. */
async function chooseSeveral(
  sql: Queryable,
  providerId: string,
  walletIds: readonly string[],
): Promise<Wallet[]> {
  const found = await Promise.all(walletIds.map((id) => findUsable(sql, providerId, id)))
  const networks = found.map(({ chainId }) => networkByChainId(chainId))
  if (new Set(networks).size < networks.length) {
    throw new Refusal('invalid_field', 'walletIds: expected one wallet per network', {
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

/** Converts an endpoint to its registered form, which the registry's history records. */
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
