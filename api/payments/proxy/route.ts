import type { HttpBindings } from '@hono/node-server'
import { z } from '@hono/zod-openapi'
import { type Hooks, hookTimeoutMs } from '@tollkeeper/ledger/hooks/askHook'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { AddressGuard } from '@tollkeeper/runtime/addressGuard'
import { allowBrowsers } from '@tollkeeper/runtime/allowBrowsers'
import { createCache } from '@tollkeeper/runtime/cache'
import type { Logger } from '@tollkeeper/runtime/log'
import { type Answers, createAnswers } from '@tollkeeper/sdk/middleware/answers'
import type { BeforeAccept } from '@tollkeeper/sdk/middleware/beforeAccept'
import { createGate, type Gate, type GateMemory } from '@tollkeeper/sdk/middleware/gate'
import { passGate } from '@tollkeeper/sdk/middleware/honoGate'
import { createLostVerifications, type VerifiedPayment } from '@tollkeeper/sdk/middleware/verification'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { type Context, Hono } from 'hono'
import type { StatusCode } from 'hono/utils/http-status'
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
  hooks: Hooks
  /** This process's routes for challenges, verifications and voids, in which a provider's id serves as its API key. */
  payments: App
  /** Maximum delay in ms until this process sees another process's change of an upstream. */
  ttlMs: number
}

/** The sold endpoint, and its URL on the upstream. */
type Sale = {
  offer: Offer
  upstream: Upstream
  /** URL on the upstream. */
  url: URL
  /** The URL that buyers call in place of the upstream's root. */
  publicUrl: URL
}

type ProxyEnv = {
  Bindings: Partial<HttpBindings>
  Variables: GatewayEnv['Variables'] & { payment: VerifiedPayment; sale: Sale; body: TakenBody }
}

/** Maximum total size in bytes, and maximum number, of the answers that are kept to be returned again. Both limits are for all providers together. */
const keptBytes = 33_554_432
const maxKept = 10_000
/**
 * Maximum number of cached `Answers`, one for each provider and price. The oldest are evicted; the gateway then no longer knows which of their
 * requests are in progress.
 */
const maxPrices = 10_000

/** Extra time in ms, so that the hook's own timeout ends its request first. */
const hookMarginMs = 500
/** Statuses with which an upstream refuses a login, which counts as no service. */
const loginRefusals = new Set([401, 403])

const methods = ['get', 'post', 'put', 'patch', 'delete'] as const

const described = {
  path: '/p/{providerId}/{path}',
  tags: ['Payments'],
  summary: "Buy an answer of a provider's own server",
  request: { params: z.object({ providerId: wire.providerId, path: z.string() }) },
  responses: {
    default: { description: "The upstream's answer" },
    ...problems(400, 402, 404, 409, 413, 429, 501, 502, 503, 504),
  },
}

/** Adds `/p/{providerId}/…`, which sells the answers of a provider's own server, so that the provider needs no middleware. */
export function addProxyRoutes(app: App, options: ProxyRouteOptions): void {
  const { sql, networks, offers, upstreamGuard: guard, settings, payments, hooks, ttlMs, log, now } = options
  const { issuer, upstream: limits } = settings
  const { origin: publicOrigin, host: publicHost, pathname } = new URL(issuer)
  const basePath = pathname.replace(/\/$/, '')
  const forward = createForward({ guard, settings: limits })
  const takeBody = createTakeBody({ networks, settings, log, now })
  // Verifications whose answer was lost are known only to this process. If another process has answered a payment, this process refuses the payment
  // as used.
  const lost = createLostVerifications()
  const answersOf = createAnswersOf(now)

  const upstreams = createCache<string, Upstream | undefined>({
    ttlMs,
    refreshAfterMs: ttlMs / 2,
    max: 10_000,
    now,
    load: (providerId) => findUpstream(sql, providerId),
  })

  /** @param url its path is read once, and used both for the charge and for the request that is passed on. */
  async function findSale(method: string, url: string): Promise<Sale> {
    const { pathname, search } = new URL(url)
    const [, , providerId = ''] = pathname.split('/')
    // An endpoint for GET also answers HEAD.
    const offer = await offers.ofRoute(providerId, {
      method: method === 'HEAD' ? 'GET' : method,
      // The gateway's own host, regardless of the request's Host.
      host: publicHost,
      path: basePath + pathname,
    })
    if (offer === undefined)
      throw new Refusal('unknown_endpoint', `No endpoint is registered for ${method} ${pathname}`)
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

  async function gateOf(sale: Sale): Promise<Gate> {
    const { offer, upstream } = sale
    const { acceptX402V1 } = upstream
    const { providerId, endpointId, price } = offer
    const wanted = offer.hasHook ? await hooks.headersOf(providerId) : undefined
    const memory: GateMemory = { lost, answers: answersOf(offer) }
    return createGate({
      acceptX402V1,
      gatewayUrl: 'http://gateway',
      providerId,
      apiKey: providerId,
      endpointId,
      publicUrl: publicOrigin,
      basePath,
      fetch: (url, init) => payments.request(url, init),
      memory,
      ...(wanted && {
        // A lower price that the hook gives to one buyer must not apply to others.
        pricing: { usdcPerUnit: formatUsdc(price) },
        beforeAccept: askHookOf(hooks, sale, wanted),
        hookTimeout: hookTimeoutMs + hookMarginMs,
      }),
      // These warnings are about the provider's configuration, and the provider can't read our log.
      warn: () => {},
    })
  }

  async function passOn(c: Context<ProxyEnv>): Promise<Response> {
    const { upstream, url, publicUrl, offer } = c.get('sale')
    const { method, headers } = c.req.raw
    const body = c.get('body')
    // The body wasn't read, because its payment was expected to be refused. If the payment was accepted anyway, this error voids it.
    if (body === 'refused')
      throw new Refusal('overloaded', 'The request body was not read: send the request again')
    const answer = await forward.send({
      providerId: offer.providerId,
      url,
      method,
      headers: requestHeaders(headers, {
        secrets: secretsOf(upstream, now()),
        paymentId: c.get('payment').paymentId,
        publicUrl,
        bodyLength: body?.length ?? null,
        forwardAuthorization: upstream.forwardAuthorization,
      }),
      body: body?.read ?? null,
      cut: () => c.env.outgoing?.destroy(),
    })
    // A buyer would read 402 as a challenge, and 407 as a proxy's: neither is a valid answer to a paid request.
    if (answer.status < 200 || answer.status > 599 || answer.status === 402 || answer.status === 407) {
      await answer.body?.cancel()
      throw new Refusal('upstream_failed', `The upstream answered with status ${answer.status}`)
    }
    const passed = responseHeaders(answer.headers, {
      requested: url,
      base: new URL(upstream.url),
      publicUrl,
      loginRealm: upstream.forwardAuthorization ? offer.providerId : null,
    })
    return c.newResponse(answer.body, answer.status as StatusCode, Object.fromEntries(passed))
  }

  for (const method of methods) app.openAPIRegistry.registerPath({ ...described, method })
  const served = methods.map((method) => method.toUpperCase())
  const router = new Hono<ProxyEnv>()
  router.use('/p/*', allowBrowsers([...served, 'HEAD'], true))
  router.on(
    served,
    // The pattern must not end in `*`, because the metrics would take it for the pattern of a middleware and ignore it.
    '/p/:providerId/:path{.*}',
    async (c, next) => {
      if (/\bwebsocket\b/i.test(c.req.header('upgrade') ?? '')) throw new Refusal('upgrade_not_supported')
      if (Number(c.req.header('content-length') ?? 0) > limits.maxBodyBytes)
        throw tooLarge(limits.maxBodyBytes)
      const sale = await findSale(c.req.method, c.req.url)
      // Checked before anything is paid.
      forward.requireRoom(sale.offer.providerId)
      c.set('sale', sale)
      await next()
    },
    async (c, next) => {
      const forwardsLogins = c.get('sale').upstream.forwardAuthorization
      const body = await takeBody(c, c.get('sale').offer)
      c.set('body', body)
      try {
        return await passGate(await gateOf(c.get('sale')), c, next, {
          ...(body && { readBody: async () => (body === 'refused' ? undefined : body.digest) }),
          // An upstream isn't told that a buyer disconnected, so an answer that breaks off is the upstream's error.
          endsWhole: true,
          isFailure: (status) => status >= 500 || (forwardsLogins && loginRefusals.has(status)),
        })
      } finally {
        if (body !== 'refused') void body?.release()
      }
    },
    // If it throws, the payment is voided.
    passOn,
  )
  app.route('/', router)
}

/** Creates the lookup of the answers that each provider sells at each price. */
function createAnswersOf(now: () => number): (offer: Offer) => Answers {
  const shelfOf = createAnswerPool({ maxBytes: keptBytes, maxEntries: maxKept, now })
  const answersByPrice = new Map<string, Answers>()
  return ({ providerId, price, payees }) => {
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
}

/** Creates the function that asks the provider's hook about a request sold here. */
function askHookOf(
  hooks: Hooks,
  { offer: { providerId, url: resource }, url: { pathname, search } }: Sale,
  wanted: readonly string[],
): BeforeAccept {
  return async ({
    payer = null,
    payment = null,
    endpoint,
    amount,
    network,
    request: { method, headers },
  }) => {
    const values = wanted.flatMap((name) => {
      const value = headers.get(name)
      return value === null ? [] : [[name, value] as const]
    })
    const question = {
      providerId,
      moment: payment === null ? ('offer' as const) : ('payment' as const),
      source: 'proxy' as const,
      endpointId: endpoint,
      amount,
      network,
      resource,
      request: { method, url: pathname + search, headers: Object.fromEntries(values) },
    }
    const answer = (await hooks.ask({ ...question, payer, payment })) ?? { kind: 'accept' as const }
    if (answer.kind === 'failed') throw new Error(answer.why)
    if (answer.kind === 'free') return { free: true }
    if (answer.kind === 'refuse') {
      const { reason, code } = answer
      return { refuse: reason, ...(code !== undefined && { code }) }
    }
    // The hook has just allowed this payment. It is recorded here, so that accepting the payment needs no second call of the hook.
    if (payer !== null && payment !== null) await hooks.allow({ ...question, payer, payment })
    return answer.kind === 'price' ? { price: formatUsdc(answer.price) } : { accept: true }
  }
}

/** Returns the valid secrets. For a day after a rotation there are two, so that the provider's server can switch to the new one. */
function secretsOf({ secret, previousSecret, previousSecretExpiresAt }: Upstream, now: number): string[] {
  const isKept = previousSecretExpiresAt !== null && previousSecretExpiresAt.getTime() > now
  return previousSecret !== null && isKept ? [secret, previousSecret] : [secret]
}
