import type { MiddlewareHandler } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { createDiscovery, type DiscoveryOptions } from './discovery.ts'
import { createGate, type GateOptions } from './gate.ts'
import { passGate } from './honoGate.ts'
import type { VerifiedPayment } from './verification.ts'

export type { AnswerStore } from './answerStore.ts'
export type { AnswerOptions } from './answers.ts'
export type { DiscoveryOptions } from './discovery.ts'
export { exposedHeaders, type GateOptions } from './gate.ts'
export type { VerifiedPayment } from './verification.ts'

/** What the middleware adds to Hono's context: `c.get('payment')`. */
export type PaymentVariables = { payment: VerifiedPayment }

/**
 * Creates Hono middleware that serves a route only to those who paid (SPEC 4.3).
 *
 * A handler that throws or answers 5xx gets the payment voided, and the response carries no receipt but that of the void, on a tab.
 *
 * @throws {ProtocolError} `invalid_field` for a price that isn't a USDC amount; `price_below_minimum`.
 * @throws {TypeError} for a `gatewayUrl` that is no URL, or an empty `providerId`.
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
 * Creates Hono middleware that serves `/openapi.json`, `/.well-known/x402` and `/llms.txt`: by them agents and catalogues find
 * what this origin sells. All of it comes from what is registered at the gateway; other requests pass.
 *
 * @throws {TypeError} for a `gatewayUrl` that is no URL, or an empty `providerId`.
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
