import { z } from '@hono/zod-openapi'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { SalesSwitch } from '@tollkeeper/ledger/registry/salesStop'
import type { Database } from '@tollkeeper/ledger/store/database'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { toPaymentRequired } from '@tollkeeper/sdk/protocol/x402'
import type { Address } from 'viem'
import type { App } from '../../http/app.ts'
import { jsonAnswer } from '../../http/problems.ts'
import { readJson } from '../../http/readJson.ts'
import { Refusal } from '../../http/refusal.ts'
import { route } from '../../http/route.ts'
import * as wire from '../../http/wire.ts'
import type { GatewayNetwork, GatewayNetworks } from '../../registry/networks.ts'
import type { Offer, Offers } from '../../registry/offers.ts'
import { choosePrice, leastPriceOn } from '../../registry/price.ts'
import { findProvider } from '../../registry/providers.ts'
import { hostOf, pathOf } from '../../registry/routeTable.ts'
import { type MintOptions, mintChallenge } from './mintChallenge.ts'

const challengeQuery = z.object({ providerId: wire.providerId, endpointId: wire.endpointId })

const challengeRequest = z
  .object({
    providerId: wire.providerId,
    endpointId: wire.endpointId.optional().openapi({
      description: 'Default: the endpoint that matches `publicUrl`, `method` and the path of `resource`',
    }),
    publicUrl: wire.resourceUrl.optional().openapi({
      description:
        "URL that buyers call, from the seller's own configuration. Its host selects among endpoints of several hosts for one path; the host of " +
        '`resource` never does. Never take it from a request, because buyers control its `Host`',
    }),
    pricing: wire.sale.optional(),
    resource: wire.resource.optional(),
    method: wire.text(16).optional(),
    network: wire.networkName.optional(),
    x402Version: z.literal(2).optional().openapi({ description: '2: also return `paymentRequired`' }),
  })
  .openapi('ChallengeRequest')

const requirements = z
  .object({
    scheme: z.literal('exact'),
    network: z.string(),
    maxAmountRequired: wire.baseUnits,
    resource: z.string(),
    description: z.string(),
    mimeType: z.string(),
    outputSchema: z.null(),
    payTo: wire.addressOut,
    maxTimeoutSeconds: z.int(),
    asset: wire.addressOut,
    extra: z.object({ name: z.string(), version: z.string() }),
  })
  .openapi('PaymentRequirements')

/** The form of x402 v2's header `PAYMENT-REQUIRED`. */
const paymentRequired = z
  .object({
    x402Version: z.literal(2),
    resource: z.object({ url: z.string(), description: z.string(), mimeType: z.string() }),
    accepts: z
      .array(
        z.object({
          scheme: z.literal('exact'),
          network: z.string().openapi({ example: 'eip155:8453' }),
          amount: wire.baseUnits,
          asset: wire.addressOut,
          payTo: wire.addressOut,
          maxTimeoutSeconds: z.int(),
          extra: z.object({
            name: z.string(),
            version: z.string(),
            primaryType: z.literal('TransferWithAuthorization'),
            macaroon: z.string(),
            splitter: z.object({
              factory: wire.addressOut,
              provider: wire.addressOut,
              platform: wire.addressOut,
              providerShare: z.string(),
              platformShare: z.string(),
            }),
            pass: wire.passTerms.optional(),
          }),
        }),
      )
      .length(1),
  })
  .openapi('PaymentRequired')

const challenge = z
  .object({
    x402Version: z.literal(1),
    accepts: z
      .array(requirements)
      .length(2)
      .openapi({ description: "The provider's payment, then the platform's fee" }),
    macaroon: z.string(),
    providerId: wire.providerId,
    endpointId: wire.endpointId,
    requestId: wire.requestId,
    issuer: z.string(),
    pass: wire.passTerms.optional().openapi({ description: 'The pass that the payment buys' }),
    offerTimeoutSeconds: z.int().optional().openapi({
      description: 'Seconds for which the authorizations that x402 clients sign should be valid',
    }),
    discovery: z
      .looseObject({ bazaar: z.looseObject({}) })
      .optional()
      .openapi({ description: 'For catalogs; the x402 v2 header contains it' }),
    seller: z
      .object({ name: z.string(), listing: z.string().optional() })
      .optional()
      .openapi({ description: 'For display: the provider’s name, and the page of its listing' }),
    error: z.string().optional(),
    paymentRequired: paymentRequired.optional(),
  })
  .openapi('Challenge')

const responses = { 200: jsonAnswer('The challenge', challenge) }

const getChallenge = route('get', '/challenge', {
  summary: 'Get a challenge at the registered price',
  tags: ['Payments'],
  query: challengeQuery,
  responses,
  refuses: [401, 404, 409, 413, 503],
})

const postChallenge = route('post', '/challenge', {
  summary: 'Get a challenge for a resource, at the registered price or a higher one',
  description: "A price below the registered one, or a pass, needs the provider's API key.",
  tags: ['Payments'],
  security: [{}, { apiKey: [] }],
  body: challengeRequest,
  responses,
  refuses: [403, 404, 409, 503],
})

export type ChallengeRouteOptions = MintOptions & {
  sql: Database
  networks: GatewayNetworks
  offers: Offers
  sales: SalesSwitch
}

/** Adds `GET` and `POST /challenge`, which write nothing to the database, and usually need no query. */
export function addChallengeRoutes(app: App, options: ChallengeRouteOptions): void {
  app.openapi(getChallenge, async (c) => {
    await options.sales.requireOpen()
    const { providerId, endpointId } = c.req.valid('query')
    const offer = await findOffer(options, providerId, endpointId)
    c.set('called', offer)
    const { network, payTo } = chooseNetwork(options.networks, offer, undefined)
    await network.payees.requirePayable(payTo)
    const settings = await settingsOn(network, options)
    const price = choosePrice({
      asked: undefined,
      registered: offer.price,
      minimum: leastPriceOn(settings, network.served.network),
      isProvider: false,
    })
    const minted = mintChallenge(
      { ...options, settings },
      { offer, network, payTo, price, resource: offer.url },
    )
    return c.json(minted as z.infer<typeof challenge>, 200)
  })

  app.openAPIRegistry.registerPath(postChallenge)
  app.post(postChallenge.path, async (c) => {
    const body = await readJson(c, challengeRequest)
    await options.sales.requireOpen()
    const { providerId, resource } = body
    const offer =
      body.endpointId === undefined
        ? await findRoute(options, body)
        : await findOffer(options, providerId, body.endpointId)
    c.set('called', offer)
    const isProvider = c.get('caller') === offer.providerId
    const pass = body.pricing?.pass
    if (pass && !isProvider) throw passNeedsKey(c.get('caller'))
    const { network, payTo } = chooseNetwork(options.networks, offer, body.network)
    await network.payees.requirePayable(payTo)
    // A pass is sold only by a separate payment: if it were bought on a tab, the sale couldn't be reverted alone.
    const settings = pass ? { ...options.settings, tabs: null } : await settingsOn(network, options)
    const price = choosePrice({
      asked: body.pricing && parseUsdc(body.pricing.usdcPerUnit),
      registered: offer.price,
      minimum: leastPriceOn(settings, network.served.network),
      isProvider,
    })
    const minted = mintChallenge(
      { ...options, settings },
      {
        offer,
        network,
        payTo,
        price,
        pass,
        resource: resource === undefined ? offer.url : resourceOf(resource, offer.url, body.publicUrl),
      },
    )
    const { splitterFactory, tabSettlement } = network.served.deployment
    const paymentRequired =
      body.x402Version && toPaymentRequired(minted, splitterFactory, keccak256, tabSettlement)
    return c.json({ ...minted, ...(paymentRequired && { paymentRequired }) }, 200)
  })
}

/** Refuses a pass without the provider's key. Otherwise any caller could get a challenge that sells a year for the price of a request. */
function passNeedsKey(caller: string | undefined): Refusal {
  return new Refusal(
    caller === undefined ? 'unauthorized' : 'forbidden',
    "Only the endpoint's provider can sell passes for it: send its API key",
  )
}

/** Returns the settings without tabs if the network's USDC doesn't accept them. */
async function settingsOn(
  { payees }: Pick<GatewayNetwork, 'payees'>,
  { settings }: Pick<MintOptions, 'settings'>,
): Promise<MintOptions['settings']> {
  return settings.tabs === null || (await payees.takesTabs()) ? settings : { ...settings, tabs: null }
}

/**
 * Returns the resource of a challenge. @throws {Refusal} `invalid_field` for a path if the endpoint is an MCP tool, which has no origin.
 */
function resourceOf(resource: string, endpointUrl: string, publicUrl?: URL): string {
  const { origin } = new URL(endpointUrl)
  if (origin !== 'null' || !resource.startsWith('/'))
    return wire.urlOfResource(resource, publicUrl?.origin ?? origin).href
  throw new Refusal(
    'invalid_field',
    `resource: expected a tool such as ${endpointUrl}, because this endpoint is one`,
    {
      details: { field: 'resource' },
    },
  )
}

async function findOffer(
  options: ChallengeRouteOptions,
  providerId: string,
  endpointId: string,
): Promise<Offer> {
  const offer = await options.offers.ofEndpoint(endpointId)
  if (offer?.providerId === providerId) return requireEnabled(offer)
  await requireProvider(options, providerId)
  throw new Refusal('unknown_endpoint')
}

async function findRoute(
  options: ChallengeRouteOptions,
  { providerId, method: asked = 'GET', publicUrl, resource }: z.infer<typeof challengeRequest>,
): Promise<Offer> {
  if (resource === undefined) {
    throw new Refusal('invalid_request', 'body: send endpointId or resource', {
      details: { field: 'endpointId' },
    })
  }
  const [path, method] = [pathOf(wire.urlOfResource(resource)), asked.toUpperCase()]
  const host = publicUrl === undefined ? null : hostOf(publicUrl)
  const offer = await options.offers.ofRoute(providerId, { method, host, path })
  if (offer !== undefined) return requireEnabled(offer)
  await requireProvider(options, providerId)
  throw new Refusal('unknown_endpoint', `No endpoint is registered for ${method} ${path}`)
}

/**
 * Rejects requests for a challenge to a disabled endpoint. Challenges issued earlier can still be paid, except on testnets: see
 * `requireAcceptedNetwork` in verifyPayment.ts.
 */
function requireEnabled(offer: Offer): Offer {
  if (offer.disabled !== null) throw new Refusal(offer.disabled)
  return offer
}

async function requireProvider(options: ChallengeRouteOptions, providerId: string): Promise<void> {
  if ((await findProvider(options.sql, providerId)) === undefined) throw new Refusal('unknown_provider')
}

/**
 * Chooses the requested network, or otherwise the endpoint's default, and its payee.
 *
 * @throws {Refusal} `network_not_accepted` for a network that the endpoint doesn't accept: any caller may request a network here, and
 * another network's money may have no value.
 */
function chooseNetwork(
  networks: GatewayNetworks,
  { payees }: Offer,
  name: string | undefined,
): { network: GatewayNetwork; payTo: Address } {
  const asked = networks.chainIdNamed(name) ?? payees[0]?.chainId
  const payee = payees.find(({ chainId }) => chainId === asked)
  if (payee === undefined) {
    const accepted = payees.map(({ chainId }) => networkByChainId(chainId).name)
    throw new Refusal(
      'network_not_accepted',
      `This endpoint accepts payments on ${accepted.join(', ')}, not on ${name}`,
      { details: { accepted } },
    )
  }
  return { network: networks.ofChain(payee.chainId), payTo: payee.payTo }
}
