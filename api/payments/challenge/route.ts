import { z } from '@hono/zod-openapi'
import { keccak256 } from '@tollkeeper/chain/keccak256'
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
import { pathOf } from '../../registry/routeTable.ts'
import { type MintOptions, mintChallenge } from './mintChallenge.ts'

const challengeQuery = z.object({ providerId: wire.providerId, endpointId: wire.endpointId })

const challengeRequest = z
  .object({
    providerId: wire.providerId,
    endpointId: wire.endpointId
      .optional()
      .openapi({ description: 'Default: matched by method and the path of `resource`' }),
    pricing: wire.pricing.optional(),
    resource: wire.resource.optional(),
    method: wire.text(16).optional(),
    network: wire.networkName.optional(),
    x402Version: z.literal(2).optional().openapi({ description: 'Asks for `paymentRequired`' }),
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

/** x402 v2's form in `PAYMENT-REQUIRED`. */
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
    offerTimeoutSeconds: z
      .int()
      .optional()
      .openapi({ description: 'How long clients of x402 are asked to sign for' }),
    discovery: z
      .looseObject({ bazaar: z.looseObject({}) })
      .optional()
      .openapi({ description: 'For catalogues: the header of x402 v2 passes it on' }),
    error: z.string().optional(),
    paymentRequired: paymentRequired.optional(),
  })
  .openapi('Challenge')

const responses = { 200: jsonAnswer('The challenge', challenge) }

const getChallenge = route('get', '/challenge', {
  summary: 'A challenge at the registered price',
  tags: ['Payments'],
  query: challengeQuery,
  responses,
  refuses: [401, 404, 409, 413],
})

const postChallenge = route('post', '/challenge', {
  summary: 'A challenge for a resource, at the registered price or a higher one',
  description: "A price below the registered one needs the provider's API key.",
  tags: ['Payments'],
  security: [{}, { apiKey: [] }],
  body: challengeRequest,
  responses,
  refuses: [404, 409],
})

export type ChallengeRouteOptions = MintOptions & {
  sql: Database
  networks: GatewayNetworks
  offers: Offers
}

/** `GET` and `POST /challenge`: no database write, and most often no query. */
export function addChallengeRoutes(app: App, options: ChallengeRouteOptions): void {
  app.openapi(getChallenge, async (c) => {
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
    const { providerId, resource } = body
    const offer =
      body.endpointId === undefined
        ? await findRoute(options, providerId, body.method ?? 'GET', resource)
        : await findOffer(options, providerId, body.endpointId)
    c.set('called', offer)
    const { network, payTo } = chooseNetwork(options.networks, offer, body.network)
    await network.payees.requirePayable(payTo)
    const settings = await settingsOn(network, options)
    const price = choosePrice({
      asked: body.pricing && parseUsdc(body.pricing.usdcPerUnit),
      registered: offer.price,
      minimum: leastPriceOn(settings, network.served.network),
      isProvider: c.get('caller') === offer.providerId,
    })
    const minted = mintChallenge(
      { ...options, settings },
      {
        offer,
        network,
        payTo,
        price,
        resource: resource === undefined ? offer.url : resourceOf(resource, offer.url),
      },
    )
    const { splitterFactory, tabSettlement } = network.served.deployment
    const paymentRequired =
      body.x402Version && toPaymentRequired(minted, splitterFactory, keccak256, tabSettlement)
    return c.json({ ...minted, ...(paymentRequired && { paymentRequired }) }, 200)
  })
}

/** The settings without tabs while the network's USDC doesn't take them. */
async function settingsOn(
  { payees }: Pick<GatewayNetwork, 'payees'>,
  { settings }: Pick<MintOptions, 'settings'>,
): Promise<MintOptions['settings']> {
  return settings.tabs === null || (await payees.takesTabs()) ? settings : { ...settings, tabs: null }
}

/** @throws {Refusal} `invalid_field` for a path if the endpoint is an MCP tool, which has no origin. */
function resourceOf(resource: string, endpointUrl: string): string {
  const { origin } = new URL(endpointUrl)
  if (origin !== 'null' || !resource.startsWith('/')) return wire.urlOfResource(resource, origin).href
  throw new Refusal('invalid_field', `resource: expected the name of a tool, as ${endpointUrl} is one`, {
    details: { field: 'resource' },
  })
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
  providerId: string,
  method: string,
  resource: string | undefined,
): Promise<Offer> {
  if (resource === undefined) {
    throw new Refusal('invalid_request', 'body: endpointId or resource is needed', {
      details: { field: 'endpointId' },
    })
  }
  const path = pathOf(wire.urlOfResource(resource))
  const offer = await options.offers.ofRoute(providerId, method.toUpperCase(), path)
  if (offer !== undefined) return requireEnabled(offer)
  await requireProvider(options, providerId)
  throw new Refusal('unknown_endpoint', `No endpoint is registered for ${method} ${path}`)
}

/** Refuses new challenges. Old ones may still be paid: see `requireAcceptedNetwork` of verifyPayment.ts. */
function requireEnabled(offer: Offer): Offer {
  if (offer.disabled !== null) throw new Refusal(offer.disabled)
  return offer
}

async function requireProvider(options: ChallengeRouteOptions, providerId: string): Promise<void> {
  if ((await findProvider(options.sql, providerId)) === undefined) throw new Refusal('unknown_provider')
}

/**
 * The requested network, or else the endpoint's default, and its payee.
 *
 * @throws {Refusal} `network_not_accepted` for a network that the endpoint doesn't name: anyone may ask here, and another
 * network's money may be worth nothing.
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
      `This endpoint is paid on ${accepted.join(', ')}, not on ${name}`,
      { details: { accepted } },
    )
  }
  return { network: networks.ofChain(payee.chainId), payTo: payee.payTo }
}
