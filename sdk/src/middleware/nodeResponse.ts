import type { ServerResponse } from 'node:http'
import type { GateDecision } from './decision.ts'
import { type Gate, paymentStatusHeader, statusHeaders } from './gate.ts'
import { followAnswer, pairsOf } from './nodeAnswer.ts'
import { paidCacheControl } from './paidResponse.ts'

type Serve = Extract<GateDecision, { kind: 'serve' }>

/** Adds the payment's headers to a response, and keeps the response for replays. Voids the payment if the response is a 5xx. */
export function startPaidResponse(response: ServerResponse, decision: Serve, gate: Gate): void {
  const { payment, headers } = decision
  for (const [name, value] of Object.entries(statusHeaders(payment))) response.setHeader(name, value)
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
  const isVoided = () => response.getHeader(paymentStatusHeader) === 'voided'
  if (decision.keep) followAnswer(response, decision.keep, isVoided)
  finishHead(response, headers)
  holdFailure(response, decision, gate)
}

/**
 * Delays a 5xx response until the void has an outcome, so that the headers can report it.
 *
 * Node sends the head with the first call of `writeHead`, `flushHeaders`, `write` or `end`, so the status isn't final before that call.
 */
function holdFailure(response: ServerResponse, decision: Serve, gate: Gate): void {
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
    // Never return false while the response is delayed: a stream that is piped in would wait for a `drain` event that may not come.
    if (holds(response.statusCode, () => void write.apply(response, args))) return true
    return write.apply(response, args)
  }) as typeof write
  response.end = ((...args: Parameters<typeof end>) => {
    if (!holds(response.statusCode, () => void end.apply(response, args))) end.apply(response, args)
    return response
  }) as typeof end
}

/**
 * Sets `Cache-Control` so that shared caches don't keep a paid response, even if the handler allows it. Also sets the payment's headers, which a
 * charge may have changed.
 */
function finishHead(response: ServerResponse, headers: Record<string, string>): void {
  const { writeHead } = response
  response.writeHead = ((status: number, ...rest: unknown[]) => {
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
    const { given, others } = takeCacheControl(rest.at(-1))
    const value = given ?? response.getHeader('Cache-Control')
    response.setHeader('Cache-Control', paidCacheControl(value === undefined ? undefined : String(value)))
    return Reflect.apply(writeHead, response, [status, ...rest.slice(0, -1), others])
  }) as typeof writeHead
}

/** Removes `Cache-Control` from the arguments of a handler's `writeHead`, in any of Node's forms. */
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
