import type { IncomingMessage, ServerResponse } from 'node:http'
import { encodeUtf8 } from '../protocol/bytes.ts'
import { maxBodyBytes, type ReadBody } from './answers.ts'
import { type GateDecision, keepVary } from './decision.ts'
import { createDiscovery, type DiscoveryOptions } from './discovery.ts'
import { createGate, type GateOptions } from './gate.ts'
import { readParsedBody, watchBody } from './nodeAnswer.ts'
import { isPaid, readNodeRequest, unclearTarget, urlOf } from './nodeRequest.ts'
import { startPaidResponse } from './nodeResponse.ts'
import type { VerifiedPayment } from './verification.ts'

export type { AcceptDecision } from '../protocol/acceptDecision.ts'
export type { AnswerStore } from './answerStore.ts'
export type { AnswerOptions } from './answers.ts'
export type { AcceptRequest, BeforeAccept } from './beforeAccept.ts'
export type { DiscoveryOptions } from './discovery.ts'
export { exposedHeaders, type GateOptions } from './gate.ts'
export type { PageOptions } from './page.ts'
export type { PageFacts } from './pageFacts.ts'
export type { BuyerRequest, Price, Pricing } from './pricing.ts'
export type { VerifiedPayment } from './verification.ts'

/** The field that the hook adds to Fastify's request: `request.payment`. */
export type PaidRequest = { payment: VerifiedPayment }

// The parts of Fastify's types that this file uses, so that the package doesn't depend on Fastify.
type Request = {
  raw: IncomingMessage
  originalUrl: string
  protocol: string
  body: unknown
  params: unknown
  routeOptions: { url?: string | undefined }
  payment?: VerifiedPayment
}
type Reply = {
  raw: ServerResponse
  code(status: number): Reply
  header(name: string, value: unknown): Reply
  getHeader(name: string): unknown
  send(payload?: unknown): unknown
}

/**
 * Creates a Fastify `preHandler` that serves a route only to callers who paid (conformance 4.3).
 *
 * The hook finds the endpoint by the route's pattern and parameters, not by the caller's spelling of the path. If Fastify routes several spellings to
 * one handler (`//forecast`, `/forecast;x`, `/%66orecast`, another case), all of them pay for that handler's endpoint. Add the hook to routes, or to
 * the instance that has them. If a handler throws or responds with 5xx, the payment is voided.
 *
 * @throws {ProtocolError} `invalid_field` for a price that isn't a USDC amount; `price_below_minimum`.
 * @throws {TypeError} for an invalid `gatewayUrl`, or an empty `providerId`.
 * @example
 * import { type PaidRequest, requirePayment } from '@tollkeeper/sdk/fastify'
 * import fastify from 'fastify'
 *
 * const paid = requirePayment({
 *   gatewayUrl: 'https://gateway.example',
 *   providerId: 'prov_1',
 *   apiKey: process.env.TOLLKEEPER_API_KEY,
 *   pricing: { usdcPerUnit: '0.05' },
 * })
 * fastify().get('/weather', { preHandler: paid }, async (request) => {
 *   const { payment } = request as typeof request & PaidRequest
 *   return { sunny: true, paid: payment.paymentId }
 * })
 */
export function requirePayment(options: GateOptions): (request: Request, reply: Reply) => Promise<unknown> {
  const gate = createGate(options)
  return async (request, reply) => {
    const { raw } = request
    const target = targetOf(request)
    const url = target === undefined ? undefined : urlOf(withProtocol(request), target)
    if (url === undefined) return send(reply, unclearTarget)
    const readBody = isPaid(raw) ? readBodyOf(request) : undefined
    const decision = await gate.check(readNodeRequest(raw, { url, readBody }))
    if (decision.kind !== 'serve') return send(reply, decision.answer)
    request.payment = decision.payment
    startPaidResponse(reply.raw, decision, gate)
    return undefined
  }
}

/** Fastify has already parsed the body before this hook, unless a route reads the stream itself. */
function readBodyOf({ raw, body }: Request): ReadBody | null {
  if (raw.readableEnded && body !== undefined) return async () => readParsedBody(raw.headers, body)
  return watchBody(raw, maxBodyBytes)
}

function withProtocol({ raw, protocol, originalUrl }: Request) {
  return { socket: raw.socket, headers: raw.headers, url: raw.url, protocol, originalUrl }
}

/** A part of a pattern that matches any single segment. */
const parameterPattern = /^:(\w+)$/

/**
 * Returns the route's path with this request's parameters, and the unchanged query. Different spellings of a path give the same result.
 *
 * @returns undefined if a URL can't contain the path unchanged.
 */
function targetOf({ originalUrl, params, routeOptions }: Request): string | undefined {
  const [path = ''] = originalUrl.split('?', 1)
  const query = originalUrl.slice(path.length)
  const pattern = routeOptions.url
  // No route matched, so Fastify will answer 404. The hook runs nevertheless if it was added to an instance instead of a route.
  if (pattern === undefined) return originalUrl
  const values = (params ?? {}) as Record<string, string | undefined>
  const parts: string[] = []
  for (const part of pattern.split('/')) {
    const name = part === '*' ? '*' : parameterPattern.exec(part)?.[1]
    // A pattern with a regular expression or several parameters in a segment can't be filled in, so keep the request's path.
    if (name === undefined && /[:*()?]/.test(part)) return originalUrl
    parts.push(name === undefined ? part : encodeSegments(values[name] ?? '', name === '*'))
  }
  return `${parts.join('/')}${query}`
}

/** Encodes a value. A wildcard's value may contain slashes that separate segments. A parameter's value is a single segment. */
function encodeSegments(value: string, isWildcard: boolean): string {
  if (!isWildcard) return encodeURIComponent(value)
  return value.split('/').map(encodeURIComponent).join('/')
}

function send(reply: Reply, answer: Exclude<GateDecision, { kind: 'serve' }>['answer']): unknown {
  const { status, headers, body } = answer
  reply.code(status)
  const pairs = Array.isArray(headers) ? headers : Object.entries(keepVary(headers, reply.getHeader('vary')))
  for (const name of new Set(pairs.map(([name]) => name))) {
    const values = pairs.filter(([other]) => other === name).map(([, value]) => value)
    reply.header(name, values.length === 1 ? values[0] : values)
  }
  // Send bytes, because Fastify adds a charset to the type of a text.
  return reply.send(typeof body === 'string' ? encodeUtf8(body) : body)
}

/**
 * Creates a Fastify `onRequest` hook that serves `/openapi.json`, `/.well-known/x402` and `/llms.txt`, in which agents and catalogs find what this
 * origin sells. The contents come from the registration at the gateway. Other requests pass through.
 *
 * @throws {TypeError} for an invalid `gatewayUrl`, or an empty `providerId`.
 * @example
 * import { serveDiscovery } from '@tollkeeper/sdk/fastify'
 * import fastify from 'fastify'
 *
 * const app = fastify()
 * app.addHook('onRequest', serveDiscovery({ gatewayUrl: 'https://gateway.example', providerId: 'prov_1' }))
 */
export function serveDiscovery(
  options: DiscoveryOptions,
): (request: Request, reply: Reply) => Promise<unknown> {
  const discovery = createDiscovery(options)
  return async (request, reply) => {
    const url = urlOf(withProtocol(request))
    const answered =
      url === undefined ? undefined : discovery.answer({ method: request.raw.method ?? 'GET', url })
    if (answered !== undefined) return send(reply, await answered)
  }
}
