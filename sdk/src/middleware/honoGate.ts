import type { Context, Next } from 'hono'
import type { StatusCode } from 'hono/utils/http-status'
import type { ReadBody } from './answers.ts'
import { type Gate, readCopy, readRequest } from './gate.ts'
import { toPaidResponse } from './paidResponse.ts'
import { discardBody } from './unreadBody.ts'

type PassGateOptions = {
  readBody?: ReadBody
  endsWhole?: boolean
  isFailure?: (status: number) => boolean
}

/**
 * Serves a Hono request only if the gate lets it pass, and sets `payment`. Voids the payment if the handler fails.
 *
 * @param options.readBody reads a copy of the body. Default: reads it from the request.
 * @param options.endsWhole whether the handler always completes its responses, even if the buyer has disconnected.
 * @param options.isFailure whether a response with this status voids the payment. Default: 500 and above.
 */
export async function passGate(
  gate: Gate,
  c: Context,
  next: Next,
  { readBody = readerOf(c), endsWhole = false, isFailure = (status) => status >= 500 }: PassGateOptions = {},
): Promise<Response | undefined> {
  const { raw } = c.req
  const decision = await gate.check(readRequest(raw, readBody), waiterOf(c))
  if (decision.kind !== 'serve') {
    await discardBody(raw)
    const { status, headers, body } = decision.answer
    // `newResponse` also adds the headers that earlier middleware has set.
    return c.newResponse(
      body.length === 0 ? null : body,
      status as StatusCode,
      Array.isArray(headers) ? toRecord(headers) : appendVary(c, headers),
    )
  }
  c.set('payment', decision.payment)
  try {
    await next()
  } catch (error) {
    // The error gets here only if the app has no error handler.
    decision.keep?.forget()
    throw error
  }
  // If the handler threw, Hono has already caught the error: it has created a response, and put the error into `c.error`.
  const response = await toPaidResponse(
    gate,
    decision,
    c.res,
    c.error !== undefined || isFailure(c.res.status),
    endsWhole,
  )
  // Clear the previous response first, because Hono would copy its headers to the new one.
  c.res = undefined
  c.res = response
  return undefined
}

/** Returns a function that reads the body. If earlier middleware has read the body through Hono, Hono still has it. */
function readerOf(c: Context): ReadBody {
  const { raw } = c.req
  return async (maxBytes) =>
    raw.bodyUsed ? new Uint8Array(await c.req.arrayBuffer()) : readCopy(raw, maxBytes)
}

/** Appends to the `Vary` that earlier middleware has set, such as CORS' `Origin`. @returns the other headers. */
function appendVary(c: Context, { Vary, ...others }: Record<string, string>): Record<string, string> {
  if (Vary !== undefined) c.header('Vary', Vary, { append: true })
  return others
}

function toRecord(headers: [name: string, value: string][]): Record<string, string[]> {
  const record: Record<string, string[]> = {}
  for (const [name, value] of headers) record[name] = [...(record[name] ?? []), value]
  return record
}

/** Returns the runtime's `waitUntil`. Returns undefined on Node, which has none: there, Hono would throw, which costs 30 µs per request. */
function waiterOf(c: Context): ((work: Promise<unknown>) => void) | undefined {
  if (isOnNode(c)) return undefined
  try {
    const { executionCtx } = c
    return (work) => executionCtx.waitUntil(work)
  } catch {
    return undefined
  }
}

/** Returns whether @hono/node-server serves the request. It passes Node's own request as `incoming`. */
function isOnNode({ env }: Context): boolean {
  return typeof env === 'object' && env !== null && 'incoming' in env
}
