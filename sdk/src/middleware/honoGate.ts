import type { Context, Next } from 'hono'
import type { StatusCode } from 'hono/utils/http-status'
import type { ReadBody } from './answers.ts'
import { type Gate, readCopy, readRequest } from './gate.ts'
import { toPaidResponse } from './paidResponse.ts'
import { discardBody } from './unreadBody.ts'

/**
 * Serves a request of Hono's only if it passes the gate, with `payment` set; voids the payment if the handler fails.
 *
 * @param readBody reads a copy of the body. Default: from the request.
 * @param endsWhole whether the handler's answers never end before they are whole, even if their buyer has left.
 */
export async function passGate(
  gate: Gate,
  c: Context,
  next: Next,
  { readBody = readerOf(c), endsWhole = false }: { readBody?: ReadBody; endsWhole?: boolean } = {},
): Promise<Response | undefined> {
  const { raw } = c.req
  const decision = await gate.check(readRequest(raw, readBody), waiterOf(c))
  if (decision.kind !== 'serve') {
    await discardBody(raw)
    const { status, headers, body } = decision.answer
    // With the headers that earlier middleware has set.
    return c.newResponse(
      body.length === 0 ? null : body,
      status as StatusCode,
      Array.isArray(headers) ? toRecord(headers) : headers,
    )
  }
  c.set('payment', decision.payment)
  try {
    await next()
  } catch (error) {
    // The app handles no errors.
    decision.keep?.forget()
    throw error
  }
  const response = await toPaidResponse(gate, decision, c.res, hasFailed(c), endsWhole)
  // Hono adds the headers of the response that is replaced, unless there is none.
  c.res = undefined
  c.res = response
  return undefined
}

/** Earlier middleware may have read the body by Hono, which keeps it. */
function readerOf(c: Context): ReadBody {
  const { raw } = c.req
  return async (maxBytes) =>
    raw.bodyUsed ? new Uint8Array(await c.req.arrayBuffer()) : readCopy(raw, maxBytes)
}

function toRecord(headers: [name: string, value: string][]): Record<string, string[]> {
  const record: Record<string, string[]> = {}
  for (const [name, value] of headers) record[name] = [...(record[name] ?? []), value]
  return record
}

/** Hono turns a thrown error into a response before it comes back here, and keeps it in `c.error`. */
function hasFailed(c: Context): boolean {
  return c.error !== undefined || c.res.status >= 500
}

/** Hono throws if a runtime has none. */
function waiterOf(c: Context): ((work: Promise<unknown>) => void) | undefined {
  try {
    const { executionCtx } = c
    return (work) => executionCtx.waitUntil(work)
  } catch {
    return undefined
  }
}
