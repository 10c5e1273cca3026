import type { IncomingMessage, ServerResponse } from 'node:http'
import { parseUrl } from '../protocol/fields.ts'
import { maxBodyBytes } from './answers.ts'
import { type GateAnswer, type GateDecision, refuse } from './decision.ts'
import { createDiscovery, type DiscoveryOptions } from './discovery.ts'
import { answerAgain, followAnswer, pairsOf, watchBody } from './expressAnswer.ts'
import {
  createGate,
  type Gate,
  type GateOptions,
  paymentIdHeader,
  paymentStatusHeader,
  readHeaders,
} from './gate.ts'
import { paidCacheControl } from './paidResponse.ts'
import { discardIncoming } from './unreadBody.ts'
import type { VerifiedPayment } from './verification.ts'

export type { AnswerStore } from './answerStore.ts'
export type { AnswerOptions } from './answers.ts'
export type { DiscoveryOptions } from './discovery.ts'
export { exposedHeaders, type GateOptions } from './gate.ts'
export type { VerifiedPayment } from './verification.ts'

/** What the middleware adds to Express' request: `req.payment`. `res.locals.payment` is the same. */
export type PaidRequest = { payment: VerifiedPayment }

type Request = IncomingMessage & { originalUrl?: string; protocol?: string; payment?: VerifiedPayment }
type Response = ServerResponse & { locals?: Record<string, unknown> }

/**
 * Creates Express (or Connect) middleware that serves a route only to those who paid (conformance 4.3).
 *
 * If a handler fails, by an error or a 5xx, the payment is voided. The response then carries no receipt, or on a tab that of the void.
 *
 * @throws {ProtocolError} `invalid_field` for a price that isn't a USDC amount; `price_below_minimum`.
 * @throws {TypeError} for an invalid `gatewayUrl`, or an empty `providerId`.
 * @example
 * import { requirePayment } from '@tollkeeper/sdk/express'
 * import express from 'express'
 *
 * const paid = requirePayment({
 *   gatewayUrl: 'https://gateway.example',
 *   providerId: 'prov_1',
 *   apiKey: process.env.TOLLKEEPER_API_KEY,
 *   pricing: { usdcPerUnit: '0.05' },
 * })
 * express().get('/weather', paid, (_request, response) => {
 *   response.json({ sunny: true, paid: response.locals.payment.paymentId })
 * })
 */
export function requirePayment(
  options: GateOptions,
): (request: IncomingMessage, response: ServerResponse, next: (error?: unknown) => void) => void {
  const gate = createGate(options)
  return (request: Request, response: Response, next) => {
    const url = urlOf(request)
    if (url === undefined) return send(response, unclearTarget)
    const decided = gate.check({
      method: request.method ?? 'GET',
      ...(isPaid(request) && { readBody: watchBody(request, maxBodyBytes) }),
      url,
      ...readHeaders((name) => single(request.headers[name])),
    })
    decided.then((decision) => {
      if (decision.kind !== 'serve') return discardIncoming(request, () => sendInstead(response, decision))
      const { payment, headers } = decision
      request.payment = payment
      if (response.locals) response.locals.payment = payment
      response.setHeader(paymentIdHeader, payment.paymentId)
      response.setHeader(paymentStatusHeader, 'verified')
      for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
      const isVoided = () => response.getHeader(paymentStatusHeader) === 'voided'
      if (decision.keep) followAnswer(response, decision.keep, isVoided)
      finishHead(response, headers)
      holdFailure(response, decision, gate)
      next()
    }, next)
  }
}

/**
 * Holds back a 5xx response until the payment is voided, so that its headers say whether it was.
 *
 * Node sends the head with the first of these four calls, and only then is the status final.
 */
function holdFailure(
  response: Response,
  decision: Extract<GateDecision, { kind: 'serve' }>,
  gate: Gate,
): void {
  const { writeHead, flushHeaders, write, end } = response
  type Call = () => void
  let held: Call[] | undefined
  const names = Object.keys(decision.headers)

  const release = (isVoided: boolean) => {
    Object.assign(response, { writeHead, flushHeaders, write, end })
    if (isVoided) {
      for (const name of names) response.removeHeader(name)
      response.setHeader(paymentStatusHeader, 'voided')
    }
    for (const call of held ?? []) call()
  }
  const holds = (status: number, call: Call): boolean => {
    if (held) held.push(call)
    else if (status >= 500 && !response.headersSent) {
      held = [call]
      gate.void(decision).then(release, () => release(false))
    } else {
      Object.assign(response, { writeHead, flushHeaders, write, end })
      return false
    }
    return true
  }

  response.writeHead = ((...args: Parameters<typeof writeHead>) => {
    const call = () => void writeHead.apply(response, args)
    if (!holds(args[0], call)) call()
    return response
  }) as typeof writeHead
  response.flushHeaders = () => {
    if (!holds(response.statusCode, () => flushHeaders.call(response))) flushHeaders.call(response)
  }
  response.write = ((...args: Parameters<typeof write>) => {
    // Never false while held: a stream that is piped in would wait for a `drain` that may not come.
    if (holds(response.statusCode, () => void write.apply(response, args))) return true
    return write.apply(response, args)
  }) as typeof write
  response.end = ((...args: Parameters<typeof end>) => {
    if (!holds(response.statusCode, () => void end.apply(response, args))) end.apply(response, args)
    return response
  }) as typeof end
}

/** Keeps a paid response out of shared caches, whatever the handler sets, and adds later charges. */
function finishHead(response: Response, headers: Record<string, string>): void {
  const { writeHead } = response
  response.writeHead = ((status: number, ...rest: unknown[]) => {
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
    const { given, others } = takeCacheControl(rest.at(-1))
    const value = given ?? response.getHeader('Cache-Control')
    response.setHeader('Cache-Control', paidCacheControl(value === undefined ? undefined : String(value)))
    return Reflect.apply(writeHead, response, [status, ...rest.slice(0, -1), others])
  }) as typeof writeHead
}

/** Takes `Cache-Control` out of a handler's arguments for `writeHead`, in any of Node's forms. */
function takeCacheControl(headers: unknown): { given: unknown; others: unknown } {
  const isOther = (name: unknown) => String(name).toLowerCase() !== 'cache-control'
  if (typeof headers !== 'object' || headers === null) return { given: undefined, others: headers }
  const isFlat = Array.isArray(headers) && !Array.isArray(headers[0])
  const pairs = pairsOf(headers)
  const others = pairs.filter(([name]) => isOther(name))
  const given = pairs.find(([name]) => !isOther(name))?.[1]
  if (Array.isArray(headers)) return { given, others: isFlat ? others.flat() : others }
  return { given, others: Object.fromEntries(others) }
}

function isPaid({ headers }: Request): boolean {
  return ['authorization', 'payment-signature', 'x-payment'].some((name) => headers[name] !== undefined)
}

/** Joins a header that came twice by commas, as Node does, which no payment survives. */
function single(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(', ') : value
}

const hostPattern = /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?$/i
/** Parts of a path that the URL parser would change: dot segments and backslashes. */
const ambiguousPath = /\\|(?:^|\/)(?:\.|%2e){1,2}(?:\/|$)/i

/**
 * The URL that the buyer requested, as far as the server knows: behind a proxy its origin may be another one.
 *
 * Express routes by the path as it came, and the gateway finds the endpoint by this URL. So its path must be the same, whatever
 * the `Host` header says, or a caller would be charged for another endpoint than the one that serves.
 *
 * @returns undefined for a path that no URL can have unchanged.
 */
function urlOf(request: Request): string | undefined {
  const isEncrypted = 'encrypted' in request.socket && request.socket.encrypted === true
  const protocol = request.protocol ?? (isEncrypted ? 'https' : 'http')
  const { host = '' } = request.headers
  const target = request.originalUrl ?? request.url ?? '/'
  const [path = ''] = target.split('?', 1)
  if (!path.startsWith('/') || ambiguousPath.test(path)) return undefined
  const origin = `${protocol}://${hostPattern.test(host) ? host : 'localhost'}`
  const url = parseUrl(origin) ?? new URL(`${protocol}://localhost`)
  url.pathname = path
  url.search = target.slice(path.length)
  return url.href
}

const unclearTarget = refuse(
  'invalid_request',
  'The request target must be a path without dot segments and backslashes',
).answer

function sendInstead(response: ServerResponse, decision: Exclude<GateDecision, { kind: 'serve' }>): void {
  if (decision.kind === 'again') answerAgain(response, decision.answer)
  else send(response, decision.answer)
}

function send(response: ServerResponse, { status, headers, body }: GateAnswer): void {
  response.writeHead(status, headers).end(body)
}

/**
 * Creates Express (or Connect) middleware that serves `/openapi.json`, `/.well-known/x402` and `/llms.txt`, by which agents and
 * catalogues find what this origin sells. Their contents come from the registration at the gateway; other requests pass.
 *
 * @throws {TypeError} for an invalid `gatewayUrl`, or an empty `providerId`.
 * @example
 * import { serveDiscovery } from '@tollkeeper/sdk/express'
 * import express from 'express'
 *
 * express().use(serveDiscovery({ gatewayUrl: 'https://gateway.example', providerId: 'prov_1' }))
 */
export function serveDiscovery(
  options: DiscoveryOptions,
): (request: IncomingMessage, response: ServerResponse, next: (error?: unknown) => void) => void {
  const discovery = createDiscovery(options)
  return (request: Request, response, next) => {
    const url = urlOf(request)
    const answered =
      url === undefined ? undefined : discovery.answer({ method: request.method ?? 'GET', url })
    if (answered === undefined) return next()
    answered.then((answer) => send(response, answer), next)
  }
}
