import { followBody, hasItsLength } from './answerBody.ts'
import type { GateDecision } from './decision.ts'
import { type Gate, statusHeaders } from './gate.ts'

/**
 * Returns a handler's response in the form that the buyer gets. If the response is a failure, the payment is voided. Any other response is kept for
 * replays.
 *
 * The result is a copy, because a handler may return the same empty response again, or a response of `fetch`, which can't be changed.
 *
 * @param endsWhole whether the response's body always ends complete, even if the buyer has disconnected.
 */
export async function toPaidResponse(
  gate: Gate,
  decision: Extract<GateDecision, { kind: 'serve' }>,
  response: Response,
  hasFailed: boolean,
  endsWhole = false,
): Promise<Response> {
  const { payment, headers, keep } = decision
  const names = Object.keys(headers)
  const isVoided = hasFailed && (await gate.void(decision))
  // The response of a protocol upgrade can't be copied.
  if (response.status === 101) {
    keep?.drop('an upgrade')
    return response
  }
  if (isVoided) keep?.forget()
  let bytes: Uint8Array<ArrayBuffer> | undefined
  let mayBeShort = false
  let tell = () => {}
  const whole = (body: Uint8Array<ArrayBuffer>, hasLeft: boolean) => {
    bytes = body
    mayBeShort = hasLeft && !endsWhole
    tell()
  }
  const follows = keep && !isVoided && response.body
  const body = follows ? await followBody(follows, keep, whole) : response.body
  const copy = new Response(body, response)
  copy.headers.set('Cache-Control', paidCacheControl(response.headers.get('cache-control')))
  for (const [name, value] of Object.entries(statusHeaders(payment, isVoided))) copy.headers.set(name, value)
  for (const name of names) copy.headers.delete(name)
  for (const [name, value] of Object.entries(headers)) copy.headers.set(name, value)
  if (!keep || isVoided) return copy
  const head = { status: copy.status, headers: [...copy.headers] }
  tell = () => {
    if (bytes === undefined) return
    const answer = { ...head, body: bytes }
    if (mayBeShort && !hasItsLength(answer)) keep.drop('broken off')
    else keep.keep(answer)
  }
  if (response.body === null) bytes = new Uint8Array()
  tell()
  return copy
}

/**
 * Returns the `Cache-Control` of a paid response. It prevents shared caches from serving the response to callers who did not pay (RFC 9111 section
 * 5.2.2).
 *
 * @param given the handler's value. `private` and `no-store` in it are kept.
 */
export function paidCacheControl(given: string | null | undefined): string {
  const directives = (given ?? '').split(',').map((directive) => directive.trim())
  const kept = directives.filter(
    (directive) => directive !== '' && !/^(?:public$|s-maxage=)/i.test(directive),
  )
  if (kept.some((directive) => /^(?:private|no-store)$/i.test(directive))) return kept.join(', ')
  return ['private', ...kept].join(', ')
}
