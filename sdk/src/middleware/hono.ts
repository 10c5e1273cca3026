import type { Context, MiddlewareHandler } from 'hono'
import { paidCacheControl } from './cacheControl.ts'
import { createGate, type GateOptions, paymentIdHeader, paymentStatusHeader } from './gate.ts'
import type { VerifiedPayment } from './verification.ts'

export type { GateOptions } from './gate.ts'
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
 * import { requirePayment } from '@tollkeeper/sdk/middleware/hono'
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
  return async (c, next) => {
    const decision = await gate.check({
      method: c.req.method,
      url: c.req.url,
      authorization: c.req.header('authorization'),
      paymentSignature: c.req.header('payment-signature'),
      xPayment: c.req.header('x-payment'),
      accept: c.req.header('accept'),
      forwardedProto: c.req.header('x-forwarded-proto'),
      forwardedHost: c.req.header('x-forwarded-host'),
    })
    if (decision.kind === 'answer') {
      const { status, headers, body } = decision.answer
      return new Response(body, { status, headers })
    }
    const { payment, headers } = decision
    c.set('payment', payment)
    await next()
    c.header('Cache-Control', paidCacheControl(c.res.headers.get('cache-control')))
    c.header(paymentIdHeader, payment.paymentId)
    const isVoided = hasFailed(c) && (await gate.void(payment))
    c.header(paymentStatusHeader, isVoided ? 'voided' : 'verified')
    for (const [name, value] of Object.entries(headers)) c.header(name, isVoided ? undefined : value)
  }
}

/** Hono turns a thrown error into a response before it comes back here, and keeps it in `c.error`. */
function hasFailed(c: Context): boolean {
  return c.error !== undefined || c.res.status >= 500
}
