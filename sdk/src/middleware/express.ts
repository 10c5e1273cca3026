import type { IncomingMessage, ServerResponse } from 'node:http'
import { maxBodyBytes } from './answers.ts'
import { type GateAnswer, type GateDecision, keepVary } from './decision.ts'
import { createDiscovery, type DiscoveryOptions } from './discovery.ts'
import { createGate, type GateOptions } from './gate.ts'
import { answerAgain, watchBody } from './nodeAnswer.ts'
import { isPaid, type NodeRequest, readNodeRequest, unclearTarget, urlOf } from './nodeRequest.ts'
import { startPaidResponse } from './nodeResponse.ts'
import { discardIncoming } from './unreadBody.ts'
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

/** The field that the middleware adds to Express' request: `req.payment`. `res.locals.payment` is the same object. */
export type PaidRequest = { payment: VerifiedPayment }

type Request = IncomingMessage & NodeRequest & { payment?: VerifiedPayment }
type Response = ServerResponse & { locals?: Record<string, unknown> }

/**
 * Creates Express (or Connect) middleware that serves a route only to callers who paid (conformance 4.3).
 *
 * If a handler throws or responds with 5xx, the middleware voids the payment. The response then has no receipt or, on a tab, the receipt of the void.
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
    const readBody = isPaid(request) ? watchBody(request, maxBodyBytes) : undefined
    const decided = gate.check(readNodeRequest(request, { url, readBody }))
    decided.then((decision) => {
      if (decision.kind !== 'serve') return discardIncoming(request, () => sendInstead(response, decision))
      request.payment = decision.payment
      if (response.locals) response.locals.payment = decision.payment
      startPaidResponse(response, decision, gate)
      next()
    }, next)
  }
}

function sendInstead(response: ServerResponse, decision: Exclude<GateDecision, { kind: 'serve' }>): void {
  if (decision.kind === 'again') answerAgain(response, decision.answer)
  else send(response, decision.answer)
}

function send(response: ServerResponse, { status, headers, body }: GateAnswer): void {
  response.writeHead(status, keepVary(headers, response.getHeader('Vary'))).end(body)
}

/**
 * Creates Express (or Connect) middleware that serves `/openapi.json`, `/.well-known/x402` and `/llms.txt`, in which agents and catalogs find what
 * this origin sells. The contents come from the registration at the gateway. Other requests pass through.
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
