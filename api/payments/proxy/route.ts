import type { HttpBindings } from '@hono/node-server'
import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { allowBrowsers } from '@tollkeeper/runtime/allowBrowsers'
import { createCache } from '@tollkeeper/runtime/cache'
import type { Logger } from '@tollkeeper/runtime/log'
import { type Answers, createAnswers } from '@tollkeeper/sdk/middleware/answers'
import { createGate, type Gate, type GateMemory } from '@tollkeeper/sdk/middleware/gate'
import { passGate } from '@tollkeeper/sdk/middleware/honoGate'
import { createLostVerifications, type VerifiedPayment } from '@tollkeeper/sdk/middleware/verification'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { type Context, Hono } from 'hono'
import type { StatusCode } from 'hono/utils/http-status'
import type { AddressGuard } from '../../http/addressGuard.ts'
import type { App, GatewayEnv } from '../../http/app.ts'
import { problems } from '../../http/problems.ts'
import { Refusal } from '../../http/refusal.ts'
import type { GatewaySettings } from '../../http/settings.ts'
import * as wire from '../../http/wire.ts'
import type { GatewayNetworks } from '../../registry/networks.ts'
import type { Offer, Offers } from '../../registry/offers.ts'
import { findUpstream, proxyPath, type Upstream } from '../../registry/upstreams.ts'
import { createAnswerPool } from './answerPool.ts'
import { createForward } from './forward.ts'
import { requestHeaders, responseHeaders } from './headers.ts'
import { tooLarge } from './heldBody.ts'
import { createTakeBody, type TakenBody } from './takeBody.ts'

export type ProxyRouteOptions = {
  sql: Database
  networks: GatewayNetworks
  offers: Offers
  /** Checks the addresses of providers' upstreams. */
  upstreamGuard: AddressGuard
  settings: Pick<
    GatewaySettings,
    'issuer' | 'trustedProxies' | 'upstream' | 'macaroonSecrets' | 'macaroonNotBefore'
  >
  log: Logger
  now: () => number
  /** This process's routes for challenges, verifications and voids, where a provider's id stands for its API key. */
  payments: App
  /** How late this process may see another process's change of an upstream. */
  ttlMs: number
}

/** What is sold: an endpoint, and its place on the server behind it. */
type Sale = {
  offer: Offer
  upstream: Upstream
  /** On the upstream. */
  url: URL
  /** The URL that buyers call in place of the upstream's root. */
  publicUrl: URL
}

type ProxyEnv = {
  Bindings: Partial<HttpBindings>
  Variables: GatewayEnv['Variables'] & { payment: VerifiedPayment; sale: Sale; body: TakenBody }
}

/** Most bytes of answers that are kept to be given again, for all providers together, and most answers. */
const keptBytes = 33_554_432
const maxKept = 10_000
/** Most prices of providers whose requests under way are known; the oldest give way. */
const maxPrices = 10_000

const methods = ['get', 'post', 'put', 'patch', 'delete'] as const

const described = {
  path: '/p/{providerId}/{path}',
  tags: ['Payments'],
  summary: "What a provider's own server answers, to who pays",
  request: { params: z.object({ providerId: wire.providerId, path: z.string() }) },
  responses: {
    default: { description: "The upstream's answer" },
    ...problems(400, 402, 404, 409, 413, 429, 501, 502, 503, 504),
  },
}

/** `/p/{providerId}/…`: sells the answers of a provider's own server, so that the provider needs no middleware. */
export function addProxyRoutes(app: App, options: ProxyRouteOptions): void {
  const { sql, networks, offers, upstreamGuard: guard, settings, payments, ttlMs, log, now } = options
  const { issuer, upstream: limits } = settings
  const { origin: publicOrigin, pathname } = new URL(issuer)
  const basePath = pathname.replace(/\/$/, '')
  const forward = createForward({ guard, settings: limits })
  const takeBody = createTakeBody({ networks, settings, log, now })
  // Only this process has it: payments that another one answered are refused here as used.
  const lost = createLostVerifications()
  const shelfOf = createAnswerPool({ maxBytes: keptBytes, maxEntries: maxKept, now })
  const answersByPrice = new Map<string, Answers>()

  /** The answers that a provider sells at an endpoint's price. */
  function answersOf({ providerId, price, payees }: Offer): Answers {
    const isTest = payees.every(({ chainId }) => networkByChainId(chainId).testnet)
    const key = `${providerId} ${price} ${isTest}`
    const known = answersByPrice.get(key)
    if (known) return known
    const shelf = shelfOf({ providerId, price, isTest })
    const answers = createAnswers({}, { shelf, waitMs: 10_000, onFailure: () => {} })
    answersByPrice.set(key, answers)
    if (answersByPrice.size > maxPrices) answersByPrice.delete(answersByPrice.keys().next().value ?? '')
    return answers
  }

  const upstreams = createCache<string, Upstream | undefined>({
    ttlMs,
    refreshAfterMs: ttlMs / 2,
    max: 10_000,
    now,
    load: (providerId) => findUpstream(sql, providerId),
  })

  /** @param url its path is read once, for the charge and for the request that is passed on. */
  async function findSale(method: string, url: string): Promise<Sale> {
    const { pathname, search } = new URL(url)
    const [, , providerId = ''] = pathname.split('/')
    // An endpoint for GET also answers HEAD.
    const offer = await offers.ofRoute(providerId, method === 'HEAD' ? 'GET' : method, basePath + pathname)
    if (offer === undefined) throw new Refusal('unknown_endpoint', `Nothing is sold at ${method} ${pathname}`)
    const upstream = await upstreams.get(providerId)
    if (upstream === undefined) {
      upstreams.delete(providerId)
      throw new Refusal('unknown_upstream')
    }
    const path = proxyPath(providerId)
    return {
      offer,
      upstream,
      url: new URL(upstream.url + pathname.slice(path.length) + search),
      publicUrl: new URL(issuer + path),
    }
  }

  function gateOf({ offer, upstream: { body } }: Sale): Gate {
    const { providerId, endpointId } = offer
    const memory: GateMemory = { lost, answers: answersOf(offer) }
    return createGate({
      body,
      gatewayUrl: 'http://gateway',
      providerId,
      apiKey: providerId,
      endpointId,
      publicUrl: publicOrigin,
      basePath,
      fetch: (url, init) => payments.request(url, init),
      memory,
      // The fault is the provider's, who doesn't read our log.
      warn: () => {},
    })
  }

  async function passOn(c: Context<ProxyEnv>): Promise<Response> {
    const { upstream, url, publicUrl, offer } = c.get('sale')
    const { method, headers } = c.req.raw
    const body = c.get('body')
    // Its payment was accepted all the same: it is voided.
    if (body === 'refused') throw new Refusal('overloaded', 'The body was not read: send the request again')
    const answer = await forward.send({
      providerId: offer.providerId,
      url,
      method,
      headers: requestHeaders(headers, {
        secrets: secretsOf(upstream, now()),
        paymentId: c.get('payment').paymentId,
        publicUrl,
        bodyLength: body?.length ?? null,
      }),
      body: body?.read ?? null,
      cut: () => c.env.outgoing?.destroy(),
    })
    // 402 would be taken for a challenge, and 407 for a proxy's: neither answers somebody who has paid.
    if (answer.status < 200 || answer.status > 599 || answer.status === 402 || answer.status === 407) {
      await answer.body?.cancel()
      throw new Refusal('upstream_failed', `The upstream answered with status ${answer.status}`)
    }
    const passed = responseHeaders(answer.headers, { requested: url, base: new URL(upstream.url), publicUrl })
    return c.newResponse(answer.body, answer.status as StatusCode, Object.fromEntries(passed))
  }

  for (const method of methods) app.openAPIRegistry.registerPath({ ...described, method })
  const served = methods.map((method) => method.toUpperCase())
  const router = new Hono<ProxyEnv>()
  router.use('/p/*', allowBrowsers([...served, 'HEAD'], true))
  router.on(
    served,
    // The metrics take `*` for a middleware's route.
    '/p/:providerId/:path{.*}',
    async (c, next) => {
      if (/\bwebsocket\b/i.test(c.req.header('upgrade') ?? '')) throw new Refusal('upgrade_not_supported')
      if (Number(c.req.header('content-length') ?? 0) > limits.maxBodyBytes)
        throw tooLarge(limits.maxBodyBytes)
      const sale = await findSale(c.req.method, c.req.url)
      // Before anything is paid.
      forward.requireRoom(sale.offer.providerId)
      c.set('sale', sale)
      await next()
    },
    async (c, next) => {
      const body = await takeBody(c, c.get('sale').offer)
      c.set('body', body)
      try {
        return await passGate(gateOf(c.get('sale')), c, next, {
          ...(body && { readBody: async () => (body === 'refused' ? undefined : body.digest) }),
          // An upstream doesn't hear of a buyer's leaving, and an answer of its that breaks off is an error.
          endsWhole: true,
        })
      } finally {
        if (body !== 'refused') void body?.release()
      }
    },
    // A throw voids the payment.
    passOn,
  )
  app.route('/', router)
}

/** The valid secrets. For a day after a rotation both are, so that the server behind can switch over. */
function secretsOf({ secret, previousSecret, previousSecretExpiresAt }: Upstream, now: number): string[] {
  const isKept = previousSecretExpiresAt !== null && previousSecretExpiresAt.getTime() > now
  return previousSecret !== null && isKept ? [secret, previousSecret] : [secret]
}
