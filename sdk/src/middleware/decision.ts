import { type ErrorCode, errorCodes } from '../protocol/errors.ts'
import type { Keep, KeptAnswer } from './answerStore.ts'
import type { WaitUntil } from './recovery.ts'
import type { VerifiedPayment } from './verification.ts'

/** A response that replaces the handler's. */
export type GateAnswer = { status: number; headers: Record<string, string>; body: string }

export type GateDecision =
  /**
   * Serve the request, add `headers` to the handler's response, and call `keep` with that response. Read `headers` only after the handler has run,
   * because `payment.charge` and `void` may change them.
   */
  | ({ kind: 'serve'; keep?: Keep | undefined } & Served)
  | { kind: 'answer'; answer: GateAnswer }
  /** The handler's kept response, to be sent again. */
  | { kind: 'again'; answer: KeptAnswer }

export type Served = {
  payment: VerifiedPayment
  headers: Record<string, string>
  /** Cancels the counting of this request, because it was not served. Set only if the request has a pass for a number of requests. */
  giveBack?: (() => Promise<void>) | undefined
  /** Keeps the runtime alive while a void is being retried. */
  waitUntil?: WaitUntil | undefined
}

export type Answered = Extract<GateDecision, { kind: 'answer' }>

/**
 * @param retryAfter seconds.
 * @param details further facts for the caller.
 */
export function refuse(code: ErrorCode, detail: string, retryAfter?: number, details?: object): Answered {
  const { status, title } = errorCodes[code]
  return json(
    status,
    { type: 'about:blank', title, status, detail, code, ...details },
    {
      'Content-Type': 'application/problem+json',
      ...(retryAfter !== undefined && { 'Retry-After': String(retryAfter) }),
    },
  )
}

/** If a response sets `Vary`, merges it with the value that earlier software has set, for example CORS' `Origin`. */
export function keepVary(headers: Record<string, string>, before: unknown): Record<string, string> {
  const { Vary: own } = headers
  if (own === undefined || typeof before !== 'string' || before === '') return headers
  return { ...headers, Vary: `${before}, ${own}` }
}

export function json(status: number, body: object, more: Record<string, string> = {}): Answered {
  const headers = { 'Content-Type': 'application/json', 'Cache-Control': 'no-store', ...more }
  return { kind: 'answer', answer: { status, headers, body: JSON.stringify(body) } }
}

/** Returns the 503 response for a request that can't be sold, because a dependency of the gate isn't responding. */
export function unavailable(detail: string): Answered {
  return refuse('dependency_unavailable', detail, 1)
}
