import { parseJson } from '../protocol/fields.ts'

/** A response of the gateway, with any status. */
export type GatewayAnswer = { status: number; headers: Headers; body: unknown; text: string }

export type GatewayClientOptions = {
  gatewayUrl: string
  /** The provider's API key, sent as `Authorization: Bearer`. */
  apiKey?: string | undefined
  /** Timeout in ms of a call, including its retries. */
  timeoutMs: number
  /** The `fetch` function of a gateway in the same process. Default: the global `fetch`. */
  fetch?: (url: string, init: RequestInit) => Response | Promise<Response>
  /** Called when a call got no response. */
  onFailure?: (failure: Failure) => void
}

/** The last failure of a call that got no response. */
export type Failure = Exclude<Attempt, { kind: 'answered' }>

export type GatewayCall = {
  path: string
  body: unknown
  /** The idempotency key. All retries of a call have the same key, so that the gateway returns the same response. */
  idempotencyKey?: string
  /** Whether to request only the stored response of an earlier call. The gateway then accepts no payment. */
  isAboutStored?: true
  /** The traceparent of the request that causes the call. */
  traceparent?: string | undefined
}

/**
 * The outcome of one attempt.
 *
 * - `refused`: no server listens at the gateway's address, so the gateway has not received the call
 * - `lost`: no response arrived, and the gateway may have executed the call
 */
export type Attempt =
  | { kind: 'answered'; answer: GatewayAnswer }
  | { kind: 'refused' }
  | { kind: 'lost'; isRedirect?: true; reason?: string }

const attempts = 3

/** The time at which a call must have ended, including its retries. */
export type Deadline = { signal: AbortSignal; leftMs: () => number }

export function startDeadline(timeoutMs: number): Deadline {
  const startedAt = performance.now()
  return {
    signal: AbortSignal.timeout(timeoutMs),
    leftMs: () => startedAt + timeoutMs - performance.now(),
  }
}

/** `Prefer` asks the gateway to respond this many ms before the attempt times out, so that the response still arrives in time. */
const answerMs = 1_000

export async function postOnce(
  { gatewayUrl, apiKey, timeoutMs, fetch = globalThis.fetch }: GatewayClientOptions,
  { path, body, idempotencyKey, isAboutStored, traceparent }: GatewayCall,
  deadline: Deadline,
): Promise<Attempt> {
  // One attempt may use half of the time, so that a second attempt is possible if a response is lost.
  const attemptMs = Math.min(timeoutMs / 2, deadline.leftMs())
  const headers = new Headers({ 'content-type': 'application/json' })
  // RFC 7240: asks the gateway to respond within this time.
  headers.set('prefer', `wait=${Math.max(0, Math.floor((attemptMs - answerMs) / 1_000))}`)
  if (apiKey) headers.set('authorization', `Bearer ${apiKey}`)
  if (idempotencyKey) headers.set('idempotency-key', idempotencyKey)
  if (isAboutStored) headers.set('if-match', '*')
  if (traceparent) headers.set('traceparent', traceparent)
  try {
    const response = await fetch(`${gatewayUrl.replace(/\/+$/, '')}${path}`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
      // Workers don't support redirect 'error'.
      redirect: 'manual',
      signal: AbortSignal.any([deadline.signal, AbortSignal.timeout(timeoutMs / 2)]),
    })
    // Don't follow redirects: another server would receive the API key. A runtime may show a redirect as status 0 or with its own 3xx status.
    const { status } = response
    if (status === 0 || (status >= 300 && status < 400)) return { kind: 'lost', isRedirect: true }
    const text = await response.text()
    return { kind: 'answered', answer: { status, headers: response.headers, body: parseJson(text), text } }
  } catch (error) {
    const reason = reasonOf(error)
    return reason === 'ECONNREFUSED' ? { kind: 'refused' } : { kind: 'lost', ...(reason && { reason }) }
  }
}

/**
 * Sends a POST request to the gateway. Retries it only if the connection failed or no response arrived in time, and within `timeoutMs` in total.
 * Every response is final.
 *
 * @returns undefined if no response arrived.
 */
export async function postToGateway(
  options: GatewayClientOptions,
  call: GatewayCall,
): Promise<GatewayAnswer | undefined> {
  const deadline = startDeadline(options.timeoutMs)
  let failure: Failure = { kind: 'lost' }
  for (let attempt = 0; attempt < attempts && !deadline.signal.aborted; attempt++) {
    if (attempt > 0) await sleep(delayMs(attempt))
    const outcome = await postOnce(options, call, deadline)
    if (outcome.kind === 'answered') return outcome.answer
    failure = outcome
  }
  options.onFailure?.(failure)
  return undefined
}

/** Returns the delay in ms before a retry: 50 before attempt 1, then 200, 800, and 3,200 before all later attempts. The first call is attempt 0. */
export function delayMs(attempt: number): number {
  return 50 * 4 ** Math.min(attempt - 1, 3)
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    // A timer must not keep a provider's process alive.
    if (typeof timer === 'object') timer.unref()
  })
}

/** Returns why a connection failed, for example `ECONNREFUSED`. Only Node's `fetch` reports this, in the error's cause. */
function reasonOf(error: unknown): string | undefined {
  const cause = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && 'code' in cause ? String(cause.code) : undefined
}
