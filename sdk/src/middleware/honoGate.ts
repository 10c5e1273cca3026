import type { Context, Next } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { type Gate, readRequest } from './gate.ts'
import { paidHeaders } from './paidHeaders.ts'

/** Serves a request of Hono's only if it passes the gate, with `payment` set; voids the payment if the handler fails. */
export async function passGate(gate: Gate, c: Context, next: Next): Promise<Response | undefined> {
  const decision = await gate.check(readRequest(c.req.raw), waiterOf(c))
  if (decision.kind === 'answer') {
    const { status, headers, body } = decision.answer
    return c.body(body, status as ContentfulStatusCode, headers)
  }
  c.set('payment', decision.payment)
  await next()
  const handled = { hasFailed: hasFailed(c), cacheControl: c.res.headers.get('cache-control') }
  for (const [name, value] of await paidHeaders(gate, decision, handled)) c.header(name, value)
  return undefined
}

/** Hono turns a thrown error into a response before it comes back here, and keeps it in `c.error`. */
function hasFailed(c: Context): boolean {
  return c.error !== undefined || c.res.status >= 500
}

/** Where a runtime has none, Hono throws. */
function waiterOf(c: Context): ((work: Promise<unknown>) => void) | undefined {
  try {
    const { executionCtx } = c
    return (work) => executionCtx.waitUntil(work)
  } catch {
    return undefined
  }
}
