/** An answer of the gateway, whatever its status. */
export type GatewayAnswer = { status: number; headers: Headers; body: unknown; text: string }

export type GatewayClientOptions = {
  gatewayUrl: string
  /** Sent as `Authorization: Bearer`. */
  apiKey?: string | undefined
  /** Milliseconds for a call, its repetitions included. */
  timeoutMs: number
}

export type GatewayCall = {
  path: string
  body: unknown
  /** The same for every repetition, so that the gateway answers the same. */
  idempotencyKey?: string
}

/**
 * The outcome of one attempt.
 *
 * - `refused`: nothing listens at the gateway's address, so it has not seen the call
 * - `lost`: no answer came, and the gateway may have acted on the call
 */
export type Attempt = { kind: 'answered'; answer: GatewayAnswer } | { kind: 'refused' } | { kind: 'lost' }

const attempts = 3

/** Posts to the gateway once. */
export async function postOnce(
  { gatewayUrl, apiKey, timeoutMs }: GatewayClientOptions,
  { path, body, idempotencyKey }: GatewayCall,
  deadline: AbortSignal,
): Promise<Attempt> {
  const headers = new Headers({ 'content-type': 'application/json' })
  if (apiKey) headers.set('authorization', `Bearer ${apiKey}`)
  if (idempotencyKey) headers.set('idempotency-key', idempotencyKey)
  try {
    const response = await fetch(`${gatewayUrl.replace(/\/+$/, '')}${path}`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
      redirect: 'error',
      // Half of the time for one attempt leaves room for a second one when an answer got lost.
      signal: AbortSignal.any([deadline, AbortSignal.timeout(timeoutMs / 2)]),
    })
    const text = await response.text()
    const { status } = response
    return { kind: 'answered', answer: { status, headers: response.headers, body: parseJson(text), text } }
  } catch (error) {
    return { kind: isConnectionRefused(error) ? 'refused' : 'lost' }
  }
}

/**
 * Posts to the gateway. Repeats the call only where the connection failed or gave no answer in time, and only within
 * `timeoutMs` altogether; every answer is final.
 *
 * @returns undefined where no answer came.
 */
export async function postToGateway(
  options: GatewayClientOptions,
  call: GatewayCall,
): Promise<GatewayAnswer | undefined> {
  const deadline = AbortSignal.timeout(options.timeoutMs)
  for (let attempt = 0; attempt < attempts && !deadline.aborted; attempt++) {
    if (attempt > 0) await sleep(delayMs(attempt))
    const outcome = await postOnce(options, call, deadline)
    if (outcome.kind === 'answered') return outcome.answer
  }
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

/** Whether nothing listens there. Only Node's `fetch` tells so, in its cause; elsewhere the call counts as lost. */
function isConnectionRefused(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && 'code' in cause && cause.code === 'ECONNREFUSED'
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
