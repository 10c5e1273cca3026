import type { Context, Next } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { paidCacheControl } from './cacheControl.ts'
import { type Gate, paymentIdHeader, paymentStatusHeader } from './gate.ts'

/** Serves a request of Hono's only if it passes the gate, with `payment` set; voids the payment if the handler fails. */
export async function passGate(gate: Gate, c: Context, next: Next): Promise<Response | undefined> {
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
    return c.body(body, status as ContentfulStatusCode, headers)
  }
  const { payment, headers } = decision
  c.set('payment', payment)
  await next()
  c.header('Cache-Control', paidCacheControl(c.res.headers.get('cache-control')))
  c.header(paymentIdHeader, payment.paymentId)
  const isVoided = hasFailed(c) && (await gate.void(payment))
  c.header(paymentStatusHeader, isVoided ? 'voided' : 'verified')
  for (const [name, value] of Object.entries(headers)) c.header(name, isVoided ? undefined : value)
  return undefined
}

/** Hono turns a thrown error into a response before it comes back here, and keeps it in `c.error`. */
function hasFailed(c: Context): boolean {
  return c.error !== undefined || c.res.status >= 500
}
