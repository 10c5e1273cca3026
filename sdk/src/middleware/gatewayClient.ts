import { parseJson } from '../protocol/fields.ts'

/** An answer of the gateway, whatever its status. */
export type GatewayAnswer = { status: number; headers: Headers; body: unknown; text: string }

export type GatewayClientOptions = {
  gatewayUrl: string
  /** Sent as `Authorization: Bearer`. */
  apiKey?: string | undefined
  /** Milliseconds for a call, its repetitions included. */
  timeoutMs: number
  /** Of a gateway within this process. Default: the global one. */
  fetch?: (url: string, init: RequestInit) => Response | Promise<Response>
  /** Called when a call got no answer at all. */
  onFailure?: (failure: Failure) => void
}

/** The end of a call without an answer. */
export type Failure = Exclude<Attempt, { kind: 'answered' }>

export type GatewayCall = {
  path: string
  body: unknown
  /** Equal for every repetition, so that the gateway answers the same. */
  idempotencyKey?: string
  /** Only asks for its earlier answer; nothing is accepted. */
  isAboutStored?: true
  /** From the request that it is made for. */
  traceparent?: string | undefined
}

/**
 * The outcome of one attempt.
 *
 * - `refused`: nothing listens at the gateway's address, so it has not seen the call
 * - `lost`: no answer came, and the gateway may have acted on the call
 */
export type Attempt =
  | { kind: 'answered'; answer: GatewayAnswer }
  | { kind: 'refused' }
  | { kind: 'lost'; isRedirect?: true; reason?: string }

const attempts = 3

/** When a call must be over, its repetitions included. */
export type Deadline = { signal: AbortSignal; leftMs: () => number }

export function startDeadline(timeoutMs: number): Deadline {
  const startedAt = performance.now()
  return {
    signal: AbortSignal.timeout(timeoutMs),
    leftMs: () => startedAt + timeoutMs - performance.now(),
  }
}

/** How long an answer needs for its way back, when the gateway waits as long as it may. */
const answerMs = 1_000

export async function postOnce(
  { gatewayUrl, apiKey, timeoutMs, fetch = globalThis.fetch }: GatewayClientOptions,
  { path, body, idempotencyKey, isAboutStored, traceparent }: GatewayCall,
  deadline: Deadline,
): Promise<Attempt> {
  // Half of the time for one attempt leaves room for a second one if an answer got lost.
  const attemptMs = Math.min(timeoutMs / 2, deadline.leftMs())
  const headers = new Headers({ 'content-type': 'application/json' })
  // RFC 7240: nobody hears what the gateway says later than this.
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
      // Workers don't know 'error'.
      redirect: 'manual',
      signal: AbortSignal.any([deadline.signal, AbortSignal.timeout(timeoutMs / 2)]),
    })
    // Nobody else gets the key; browsers and Deno show a redirect as status 0, or as it came.
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
 * Posts to the gateway. Repeats the call only if the connection failed or gave no answer in time, and only within
 * `timeoutMs` altogether; every answer is final.
 *
 * @returns undefined if no answer came.
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

/** How long to wait before an attempt, counted from 0: 50, 200, 800 and then 3,200 milliseconds. */
export function delayMs(attempt: number): number {
  return 50 * 4 ** Math.min(attempt - 1, 3)
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    // A pending repetition must not keep a provider's process alive.
    if (typeof timer === 'object') timer.unref()
  })
}

/** Why a connection failed, such as `ECONNREFUSED`. Only Node's `fetch` gives it, in its cause. */
function reasonOf(error: unknown): string | undefined {
  const cause = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && 'code' in cause ? String(cause.code) : undefined
}
