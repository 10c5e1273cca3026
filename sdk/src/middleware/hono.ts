import type { MiddlewareHandler } from 'hono'
import { createGate, type GateOptions } from './gate.ts'
import { passGate } from './honoGate.ts'
import type { VerifiedPayment } from './verification.ts'

export { exposedHeaders, type GateOptions } from './gate.ts'
export type { VerifiedPayment } from './verification.ts'

/** What the middleware adds to Hono's context: `c.get('payment')`. */
export type PaymentVariables = { payment: VerifiedPayment }

/**
 * Creates Hono middleware that serves a route only to those who paid (SPEC 4.3).
 *
 * A handler that throws or answers 5xx gets the payment voided, and the response carries no receipt.
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
