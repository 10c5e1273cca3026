import type { MiddlewareHandler } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { createDiscovery, type DiscoveryOptions } from './discovery.ts'
import { createGate, type GateOptions } from './gate.ts'
import { passGate } from './honoGate.ts'
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

/** The variable that the middleware adds to Hono's context: `c.get('payment')`. */
export type PaymentVariables = { payment: VerifiedPayment }

/**
 * Creates Hono middleware that serves a route only to callers who paid (conformance 4.3).
 *
 * If a handler throws or responds with 5xx, the payment is voided. The response then has no receipt or, on a tab, the receipt of the void.
 *
 * @throws {ProtocolError} `invalid_field` for a price that isn't a USDC amount; `price_below_minimum`.
 * @throws {TypeError} for an invalid `gatewayUrl`, or an empty `providerId`.
 * @example
 * import { requirePayment } from '@tollkeeper/sdk/hono'
 * import { Hono } from 'hono'
 *
 * const paid = requirePayment({
 *   gatewayUrl: 'https://gateway.example',
 *   providerId: 'prov_1',
 *   apiKey: process.env.TOLLKEEPER_API_KEY,
 *   pricing: { usdcPerUnit: '0.05' },
 * })
 * new Hono().get('/weather', paid, (c) => c.json({ sunny: true, paid: c.get('payment').paymentId }))
 */
export function requirePayment(options: GateOptions): MiddlewareHandler<{ Variables: PaymentVariables }> {
  const gate = createGate(options)
  return (c, next) => passGate(gate, c, next)
}

/**
 * Creates Hono middleware that serves `/openapi.json`, `/.well-known/x402` and `/llms.txt`, in which agents and catalogs find what this origin sells.
 * The contents come from the registration at the gateway. Other requests pass through.
 *
 * @throws {TypeError} for an invalid `gatewayUrl`, or an empty `providerId`.
 * @example
 * import { serveDiscovery } from '@tollkeeper/sdk/hono'
 * import { Hono } from 'hono'
 *
 * new Hono().use(serveDiscovery({ gatewayUrl: 'https://gateway.example', providerId: 'prov_1' }))
 */
export function serveDiscovery(options: DiscoveryOptions): MiddlewareHandler {
  const discovery = createDiscovery(options)
  return async (c, next) => {
    const answer = await discovery.answer(c.req.raw)
    if (answer === undefined) return next()
    return c.body(answer.body, answer.status as ContentfulStatusCode, answer.headers)
  }
}
