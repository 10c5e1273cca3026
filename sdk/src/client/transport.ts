import { concatBytes } from '../protocol/bytes.ts'
import { eitherSignal, type OwnSignal, timeoutSignal } from './abort.ts'
import { HttpError, NetworkError, RequestAbortedError, RequestTimeoutError } from './errors.ts'
import { withinOrigin } from './redirects.ts'
import type { SignedPayment } from './signedPayment.ts'

/**
 * Maximum number of bytes to read from a response, counted after decompression. The limit is needed because the client holds the response in memory,
 * and the sender chooses the length.
 */
const defaultMaxResponseBytes = 16_777_216

/** One deadline for all HTTP calls of one operation. */
export type Deadline = {
  timeoutMs: number | undefined
  /** Fires at the deadline. */
  timer: AbortSignal
  /** Fires at the deadline, or when the caller aborts. The code that starts a deadline ends this signal afterwards. */
  signal: OwnSignal
  /** Maximum number of bytes to read from each response. */
  maxResponseBytes: number
  /** The payment that was sent. Errors include it. */
  payment?: SignedPayment
  /** Set for an operation that concerns an earlier payment, such as closing a tab. Without it, errors would report `not_charged`. */
  outcome?: 'unknown'
}

/** @param timeoutMs undefined: no time limit, only the caller's signal. */
export function startDeadline(
  timeoutMs?: number,
  callerSignal?: AbortSignal | null,
  maxResponseBytes = defaultMaxResponseBytes,
): Deadline {
  const isLimited = timeoutMs !== undefined
  const timer = isLimited ? timeoutSignal(timeoutMs) : new AbortController().signal
  // Without a time limit, no listener is added to the caller's signal.
  const signal = !callerSignal ? timer : isLimited ? eitherSignal(timer, callerSignal) : callerSignal
  return { timeoutMs, timer, signal, maxResponseBytes }
}

/** A response that was received completely. */
export type Answer = {
  /** The URL that responded. After a redirect, it differs from the requested URL. */
  url: string
  status: number
  headers: Headers
  /** Parsed JSON, text as a string, or anything else as bytes. Null if there is no body. */
  body: unknown
}

/**
 * Sends a request and reads the whole response.
 *
 * @throws {RequestTimeoutError} at the deadline
 * @throws {NetworkError} if the connection failed before the response was complete
 * @throws {HttpError} `response_too_large`
 * @throws {RequestAbortedError} if the caller aborted after the payment was sent
 * @throws the caller's own abort reason, if nothing was sent yet
 */
export async function send(
  fetch: typeof globalThis.fetch,
  url: string,
  init: RequestInit,
  deadline: Deadline,
): Promise<Answer> {
  try {
    return await readAnswer(await fetch(url, { ...init, signal: deadline.signal }), url, deadline)
  } catch (error) {
    throw error instanceof HttpError ? error : toNetworkError(error, url, deadline)
  }
}

/**
 * Sends a request to the client's own gateway or facilitator, like {@link send}. The request may contain a payment, a tab's state or a signature, so
 * a redirect to another origin is an error.
 */
export function sendToGateway(...[fetch, url, init, deadline]: Parameters<typeof send>): Promise<Answer> {
  return send(withinOrigin(fetch), url, init, deadline)
}

/** Reads a whole response. */
export async function readAnswer(response: Response, url: string, deadline: Deadline): Promise<Answer> {
  const { status, headers } = response
  return { url: response.url || url, status, headers, body: await readBody(response, url, deadline) }
}

/** Waits for the given time, but at most until the deadline. */
export async function pause(ms: number, deadline: Deadline): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const passed = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms)
  })
  await waitFor(passed, deadline).finally(() => clearTimeout(timer))
}

/** Waits for work that can't be aborted, such as a wallet that asks a person, but at most until the deadline. */
export async function waitFor<Result>(work: Promise<Result>, deadline: Deadline): Promise<Result> {
  const { signal } = deadline
  let stop = () => {}
  const stopped = new Promise<never>((_, reject) => {
    stop = () => reject(abortError(deadline))
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop, { once: true })
  })
  return Promise.race([work, stopped]).finally(() => signal.removeEventListener('abort', stop))
}

async function readBody(response: Response, url: string, deadline: Deadline): Promise<unknown> {
  const bytes = await readBytes(response, url, deadline)
  if (bytes.length === 0) return null
  const type = response.headers.get('content-type') ?? ''
  if (/^application\/(?:[\w.+-]+\+)?json\b/i.test(type)) {
    const text = new TextDecoder().decode(bytes)
    try {
      return JSON.parse(text)
    } catch {
      return text
    }
  }
  return /^text\//i.test(type) ? new TextDecoder().decode(bytes) : bytes
}

async function readBytes(response: Response, url: string, deadline: Deadline): Promise<Uint8Array> {
  const { maxResponseBytes } = deadline
  const requireRoom = (length: number) => {
    if (length <= maxResponseBytes) return
    throw new HttpError(
      'response_too_large',
      `The response of ${new URL(url).origin} has more than ${maxResponseBytes} bytes: to accept it, raise maxResponseBytes`,
      { status: response.status, ...sent(deadline) },
    )
  }
  // React Native's responses have no stream.
  if (!response.body) {
    const bytes = new Uint8Array(await response.arrayBuffer())
    requireRoom(bytes.length)
    return bytes
  }
  const parts: Uint8Array[] = []
  let length = 0
  // Safari's streams can't be iterated over.
  const reader = response.body.getReader()
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      length += read.value.length
      requireRoom(length)
      parts.push(read.value)
    }
  } catch (error) {
    // Ends the connection. Ignore the error if the connection has already failed.
    reader.cancel().catch(() => {})
    throw error
  }
  return concatBytes(...parts)
}

/** Returns the error of a failed call: a timeout, an abort, or a {@link NetworkError}. */
export function toNetworkError(error: unknown, url: string, deadline: Deadline): unknown {
  if (deadline.signal.aborted) return abortError(deadline)
  return new NetworkError(url, { cause: error, ...sent(deadline) })
}

/** Returns a timeout error at the deadline. If the caller aborted, returns an error with the sent payment or, without one, the caller's reason. */
function abortError(deadline: Deadline): unknown {
  const { timeoutMs, timer, signal, payment } = deadline
  const { reason } = signal
  // A signal from the caller's own AbortSignal.timeout() also has a TimeoutError as its reason.
  if (timer.aborted && timeoutMs !== undefined && reason === timer.reason)
    return new RequestTimeoutError(timeoutMs, { cause: reason, ...sent(deadline) })
  return payment ? new RequestAbortedError({ cause: reason, payment }) : reason
}

function sent({ payment, outcome }: Deadline): Pick<Deadline, 'payment' | 'outcome'> {
  return { ...(payment && { payment }), ...(outcome && { outcome }) }
}

/** Returns the URL of a path on a server whose URL may end with a slash. */
export function urlOf(base: string, path: string): string {
  return `${base.replace(/\/+$/, '')}/${path}`
}
