import { createRoute } from '@hono/zod-openapi'
import type { Address } from 'viem'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../app.ts'
import { mintChallenge } from '../challenge/mintChallenge.ts'
import { choosePrice, minimumPriceOn } from '../challenge/price.ts'
import { type Gateway, type GatewayNetwork, networkOf, requireNetwork } from '../http/gateway.ts'
import { jsonAnswer, jsonBody, problems } from '../http/problems.ts'
import * as schemas from '../http/schemas.ts'
import { Refusal } from '../refusal.ts'
import type { Offer } from '../registry/offers.ts'
import { findProvider } from '../registry/providers.ts'
import { parseResourceUrl } from './providers.ts'

const responses = {
  200: jsonAnswer('The challenge', schemas.challenge),
  ...problems(400, 401, 404, 413, 422, 429, 503),
}

const getChallenge = createRoute({
  method: 'get',
  path: '/challenge',
  summary: 'A challenge at the registered price',
  tags: ['Payments'],
  request: { query: schemas.challengeQuery },
  responses,
})

const postChallenge = createRoute({
  method: 'post',
  path: '/challenge',
  summary: 'A challenge for a resource, at the registered price or a higher one',
  description: "A price below the registered one needs the provider's API key.",
  tags: ['Payments'],
  security: [{}, { apiKey: [] }],
  request: { body: jsonBody(schemas.challengeRequest) },
  responses,
})

/** `GET` and `POST /challenge`: no database write, and as a rule no query. */
export function addChallengeRoutes(app: App, gateway: Gateway): void {
  app.openapi(getChallenge, async (c) => {
    const { providerId, endpointId } = c.req.valid('query')
    const offer = await findOffer(gateway, providerId, endpointId)
    c.set('called', offer)
    const { network, payTo } = chooseNetwork(gateway, offer, undefined)
    await network.payees.requirePayable(payTo)
    const price = choosePrice({
      asked: undefined,
      registered: offer.price,
      minimum: minimumPriceOn(gateway.settings, network.served.network),
      isProvider: false,
    })
    return c.json(mintChallenge(gateway, { offer, network, payTo, price, resource: offer.url }), 200)
  })

  app.openapi(postChallenge, async (c) => {
    const body = c.req.valid('json')
    const { providerId } = body
    const resource = body.resource === undefined ? undefined : parseResourceUrl('resource', body.resource)
    const offer =
      body.endpointId === undefined
        ? await findRoute(gateway, providerId, body.method ?? 'GET', resource)
        : await findOffer(gateway, providerId, body.endpointId)
    c.set('called', offer)
    const { network, payTo } = chooseNetwork(gateway, offer, body.network)
    await network.payees.requirePayable(payTo)
    const price = choosePrice({
      asked: body.pricing?.usdcPerUnit,
      registered: offer.price,
      minimum: minimumPriceOn(gateway.settings, network.served.network),
      isProvider: c.get('caller') === offer.providerId,
    })
    const minted = mintChallenge(gateway, {
      offer,
      network,
      payTo,
      price,
      resource: resource?.href ?? offer.url,
    })
    return c.json(minted, 200)
  })
}

async function findOffer(gateway: Gateway, providerId: string, endpointId: string): Promise<Offer> {
  const offer = await gateway.offers.ofEndpoint(endpointId)
  if (offer?.providerId === providerId) return offer
  await requireProvider(gateway, providerId)
  throw new Refusal('unknown_endpoint')
}

async function findRoute(
  gateway: Gateway,
  providerId: string,
  method: string,
  resource: URL | undefined,
): Promise<Offer> {
  if (resource === undefined) {
    throw new Refusal('invalid_request', 'body: endpointId or resource is needed', {
      details: { field: 'endpointId' },
    })
  }
  const offer = await gateway.offers.ofRoute(providerId, method.toUpperCase(), resource.pathname)
  if (offer !== undefined) return offer
  await requireProvider(gateway, providerId)
  throw new Refusal('unknown_endpoint', `No endpoint is registered for ${method} ${resource.pathname}`)
}

async function requireProvider(gateway: Gateway, providerId: string): Promise<void> {
  if ((await findProvider(gateway.database, providerId)) === undefined) throw new Refusal('unknown_provider')
}

/**
 * The network asked for, or else the endpoint's default, and who is paid there.
 *
 * @throws {Refusal} `network_not_accepted` for a network that the endpoint doesn't name: anyone may ask here, and another
 * network's money may be worth nothing.
 */
function chooseNetwork(
  gateway: Gateway,
  { payees }: Offer,
  name: string | undefined,
): { network: GatewayNetwork; payTo: Address } {
  const asked = name === undefined ? payees[0]?.chainId : networkOf(gateway, name).served.network.chainId
  const payee = payees.find(({ chainId }) => chainId === asked)
  if (payee === undefined) {
    const accepted = payees.map(({ chainId }) => networkByChainId(chainId).name)
    throw new Refusal(
      'network_not_accepted',
      `This endpoint is paid on ${accepted.join(', ')}, not on ${name}`,
      { details: { accepted } },
    )
  }
  return { network: requireNetwork(gateway, payee.chainId), payTo: payee.payTo }
}
