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

const attempts = 3
const firstDelayMs = 50

/**
 * Posts to the gateway. Repeats the call only where the connection failed or gave no answer in time, and only within
 * `timeoutMs` altogether; every answer is final.
 *
 * @returns undefined where no answer could be had.
 */
export async function postToGateway(
  { gatewayUrl, apiKey, timeoutMs }: GatewayClientOptions,
  { path, body, idempotencyKey }: GatewayCall,
): Promise<GatewayAnswer | undefined> {
  const url = `${gatewayUrl.replace(/\/+$/, '')}${path}`
  const headers = new Headers({ 'content-type': 'application/json' })
  if (apiKey) headers.set('authorization', `Bearer ${apiKey}`)
  if (idempotencyKey) headers.set('idempotency-key', idempotencyKey)
  const init = { method: 'POST', headers, body: JSON.stringify(body), redirect: 'error' } as const
  const deadline = AbortSignal.timeout(timeoutMs)
  for (let attempt = 0; attempt < attempts && !deadline.aborted; attempt++) {
    if (attempt > 0) await sleep(firstDelayMs * 4 ** (attempt - 1))
    try {
      // Half of the time for one attempt leaves room for a second one when an answer got lost.
      const signal = AbortSignal.any([deadline, AbortSignal.timeout(timeoutMs / 2)])
      const response = await fetch(url, { ...init, signal })
      const text = await response.text()
      return { status: response.status, headers: response.headers, body: parseJson(text), text }
    } catch {
      // No answer: the next attempt, or none.
    }
  }
  return undefined
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    // A pending repetition must not keep a provider's process alive.
    if (typeof timer === 'object') timer.unref()
  })
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
