import { type ErrorCode, errorCodes } from '../protocol/errors.ts'
import type { Keep, KeptAnswer } from './answerStore.ts'
import type { WaitUntil } from './recovery.ts'
import type { VerifiedPayment } from './verification.ts'

/** An answer instead of the handler's. */
export type GateAnswer = { status: number; headers: Record<string, string>; body: string }

export type GateDecision =
  /** `headers`: what the answer carries, until `payment.charge` or `void` changes them. `keep`: who is told of it. */
  | ({ kind: 'serve'; keep?: Keep | undefined } & Served)
  | { kind: 'answer'; answer: GateAnswer }
  /** What the handler answered before. */
  | { kind: 'again'; answer: KeptAnswer }

export type Served = {
  payment: VerifiedPayment
  headers: Record<string, string>
  /** Keeps the runtime alive for a void that is repeated. */
  waitUntil?: WaitUntil | undefined
}

type Answered = Extract<GateDecision, { kind: 'answer' }>

/** @param retryAfter seconds. */
export function refuse(code: ErrorCode, detail: string, retryAfter?: number): Answered {
  const { status, title } = errorCodes[code]
  return json(
    status,
    { type: 'about:blank', title, status, detail, code },
    {
      'Content-Type': 'application/problem+json',
      ...(retryAfter !== undefined && { 'Retry-After': String(retryAfter) }),
    },
  )
}

export function json(status: number, body: object, more: Record<string, string> = {}): Answered {
  const headers = { 'Content-Type': 'application/json', 'Cache-Control': 'no-store', ...more }
  return { kind: 'answer', answer: { status, headers, body: JSON.stringify(body) } }
}
