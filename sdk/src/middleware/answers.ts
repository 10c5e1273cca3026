import { bytesToHex } from '../protocol/bytes.ts'
import {
  type AnswerEntry,
  type AnswerShelf,
  type AnswerStore,
  createAnswerMemory,
  type Keep,
  type KeptAnswer,
  type NotKept,
  sealAnswers,
} from './answerStore.ts'
import { type GateDecision, refuse } from './decision.ts'
import type { PresentedPayment } from './presentedPayment.ts'
import type { WaitUntil } from './recovery.ts'

/** Options for keeping the responses to paid requests, so that a buyer who presents a payment again gets the same response. */
export type AnswerOptions = {
  /** Time in seconds for which a response is kept. Default 600. The response to a payment without a macaroon (x402 v1) isn't kept. */
  seconds?: number
  /** Maximum length in bytes of a response body to keep. Default 262,144. */
  maxAnswerBytes?: number
  /** Maximum total size in bytes of all responses in memory. Default 16,777,216. */
  maxBytes?: number
  /** Keeps the responses outside of the process. It receives only ciphertext. Default: the responses stay in memory. */
  store?: AnswerStore
  /** Encrypts the responses in a store. At least 16 characters, hard to guess. Default: derived from `apiKey`. */
  secret?: string
}

/**
 * Reads a copy of a request's body.
 *
 * @returns the body, or its digest as text if the body is longer than `maxBytes`. Undefined if neither is known, because the body breaks off, was
 * read before, or is too long and its digest isn't available.
 */
export type ReadBody = (maxBytes: number) => Promise<Uint8Array | string | undefined>

/** The parts of a request that its response is bound to. */
export type AnswerRequest = {
  method: string
  /** Path and query. */
  resource: string
  /** The values of the headers that select a response (`selectionOf`). Undefined if the request has none, like an MCP call. */
  selection?: string | undefined
  /** Undefined if the request has no body. */
  readBody: ReadBody | undefined
}

/** Response header that marks a replayed response. */
export const replayedHeader = 'Idempotent-Replayed'

/** Maximum duration in ms of a response stream that is kept. A longer stream is probably a live feed, which can't be replayed as a whole. */
export const longestAnswerMs = 120_000
/** Maximum length in bytes of a request body that the middleware reads to bind the response to this body. */
export const maxBodyBytes = 1_048_576
/** Maximum time in ms to wait, after a response is complete, until the body of its request has been read. */
const bodyGraceMs = 1_000
/** Maximum number of requests that wait at the same time for the response to one payment. */
const maxWaiting = 8

type UnderWay = { target: string; ended: Promise<void>; end: () => void; waiting: number }

export type Answers = ReturnType<typeof createAnswers>

/**
 * Keeps the responses to paid requests. Sends a response again if a caller presents the same signed payment with the same request.
 *
 * The whole header is compared, including signatures and macaroon. Anyone who steals the header gains only what the header could buy before. The
 * response to a payment without a macaroon isn't kept: the payment's signatures become public when it settles, and then anyone could present them.
 *
 * @param waitMs maximum time in ms for which a repeated request waits for the response in progress.
 * @param onFailure called when the store fails.
 */
export function createAnswers(
  options: AnswerOptions,
  { shelf, waitMs, onFailure }: { shelf: AnswerShelf; waitMs: number; onFailure: () => void },
) {
  const { seconds = 600, maxAnswerBytes = 262_144 } = options
  const underWay = new Map<string, UnderWay>()

  async function find(name: string): Promise<AnswerEntry | undefined> {
    try {
      return await shelf.find(name)
    } catch {
      onFailure()
      return undefined
    }
  }

  async function put(name: string, entry: AnswerEntry, secondsLeft: number): Promise<void> {
    try {
      await shelf.put(name, entry, secondsLeft)
    } catch {
      onFailure()
    }
  }

  /** @returns false if the payment is still being served after `waitMs`, or if too many requests already wait. */
  async function waitFor(one: UnderWay): Promise<boolean> {
    if (one.waiting >= maxWaiting) return false
    one.waiting++
    try {
      return await within(
        one.ended.then(() => true),
        waitMs,
        false,
      )
    } finally {
      one.waiting--
    }
  }

  /**
   * Responds to a paid request with the kept response, or by calling `make` once.
   *
   * @param make sends the payment to the gateway, which accepts it only once, and serves the request.
   * @param waitUntil keeps the process alive until the response is kept.
   */
  async function once(
    presented: Extract<PresentedPayment, { kind: 'payment' | 'tab' }>,
    request: AnswerRequest,
    make: () => Promise<GateDecision>,
    waitUntil?: WaitUntil,
  ): Promise<GateDecision> {
    const { macaroon } = presented
    if (macaroon === undefined) return make()
    const name = nameOf(presented, macaroon)
    const target = `${request.method} ${request.resource} ${request.selection ?? ''}`
    let body: Body | undefined
    const bodyOf = () => {
      body ??= readBody(request.readBody)
      return body
    }
    const findAgain = async (): Promise<AnswerEntry | undefined> => {
      const found = await find(name)
      const isTheirs =
        found?.state !== 'kept' || (found.target === target && found.digest === (await bodyOf().digest))
      return isTheirs ? found : undefined
    }

    for (let one = underWay.get(name); one !== undefined; one = underWay.get(name)) {
      // This is a different request with the same payment. Let the gateway decide about it.
      if (one.target !== target) return make()
      if (!(await waitFor(one))) return isBeingServed()
    }
    const own = begin(target)
    underWay.set(name, own)
    const end = () => {
      if (underWay.get(name) === own) underWay.delete(name)
      own.end()
    }
    let isMaking = false
    try {
      const found = await findAgain()
      if (found?.state === 'kept') return again(found.answer)
      const made = await make()
      // Don't keep this response: nothing was paid, and the seller decides about each free request separately.
      if (made.kind === 'serve' && made.payment.free) return made
      if (made.kind === 'serve') {
        isMaking = true
        // Tells other processes to wait for the response.
        const told = shelf.isShared && put(name, { state: 'serving' }, longestAnswerMs / 1000)
        const write = async (entry: AnswerEntry | undefined) => {
          await told
          if (entry || told) await put(name, entry ?? { state: 'not_kept', reason: 'it failed' }, seconds)
          end()
        }
        waitUntil?.(own.ended)
        return { ...made, keep: keepOf({ target, body: bodyOf(), maxBytes: maxAnswerBytes, write }) }
      }
      if (made.kind !== 'answer' || made.answer.status !== 409) return made
      // Another process with the same store may have served the payment in the meantime.
      const since = shelf.isShared ? await findAgain() : found
      if (since?.state === 'kept') return again(since.answer)
      if (since?.state === 'serving') return isBeingServed()
      if (since?.state !== 'not_kept') return made
      const detail = `This payment's request was served, and can't be served again: ${since.reason}`
      const body = JSON.stringify({ ...JSON.parse(made.answer.body), detail })
      return { kind: 'answer', answer: { ...made.answer, body } }
    } finally {
      if (!isMaking) end()
    }
  }

  return { once }
}

/** The digest of a request's body, to which the response is bound. */
type Body = {
  /** Resolves when reading the body has ended, even if reading failed. */
  isRead: Promise<boolean>
  /** The digest of the body. Undefined if the body wasn't read. */
  digest: Promise<string | undefined>
}

function keepOf({
  target,
  body,
  maxBytes,
  write,
}: {
  target: string
  body: Body
  maxBytes: number
  /** Stores the entry, and lets waiting requests continue. Undefined: the request failed, so there is no response to replay. */
  write: (entry: AnswerEntry | undefined) => Promise<void>
}): Keep {
  const drop = (reason: NotKept) => void write({ state: 'not_kept', reason: `its response was ${reason}` })
  return {
    maxBytes,
    drop,
    forget: () => void write(undefined),
    async keep(answer) {
      if (answer.body.length > maxBytes) return drop('too long')
      // Limit the time for reading the body, but not for hashing it. Otherwise, a process that was paused for a second after it had read the body
      // would drop the response.
      const bound = (await within(body.isRead, bodyGraceMs, false)) ? await body.digest : undefined
      if (bound === undefined) drop('not kept, because the body of the request is unknown')
      else await write({ state: 'kept', target, digest: bound, answer })
    },
  }
}

function again({ status, headers, body }: KeptAnswer): GateDecision {
  return { kind: 'again', answer: { status, headers: [...headers, [replayedHeader, 'true']], body } }
}

function isBeingServed(): GateDecision {
  return refuse(
    'payment_replayed',
    "This payment's request is still being served: present the payment again",
    1,
  )
}

/**
 * Returns the storage for a provider's responses.
 *
 * @throws {TypeError} for a store without a secret or an API key to encrypt with.
 */
export function shelfOf(
  { store, secret, maxBytes = 16_777_216 }: AnswerOptions,
  apiKey: string | undefined,
): AnswerShelf {
  if (!store) return createAnswerMemory(maxBytes)
  const key = secret ?? apiKey
  if (key === undefined || key.length < 16)
    throw new TypeError('answers.store needs answers.secret, of 16 characters or more, or an apiKey')
  return sealAnswers(store, key)
}

function begin(target: string): UnderWay {
  let end = () => {}
  const ended = new Promise<void>((resolve) => {
    end = resolve
  })
  return { target, ended, end, waiting: 0 }
}

/** Returns a name that depends on everything that was presented, so that a caller who knows only a part doesn't get the response. */
function nameOf(presented: Extract<PresentedPayment, { kind: 'payment' | 'tab' }>, macaroon: string): string {
  return presented.kind === 'tab'
    ? `${macaroon} ${JSON.stringify(presented.tab)}`
    : `${macaroon} ${presented.payloads.join(' ')}`
}

function readBody(read: ReadBody | undefined): Body {
  const reading = read ? read(maxBodyBytes).catch(() => undefined) : Promise.resolve(new Uint8Array())
  return { isRead: reading.then(() => true), digest: reading.then(digest) }
}

async function digest(body: Uint8Array | string | undefined): Promise<string | undefined> {
  if (typeof body === 'string') return body
  if (body === undefined || body.length === 0) return body && ''
  return bytesToHex(new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array(body))))
}

/** Returns the result of a promise, or `late` if the promise takes longer than the given time. */
async function within<Result>(promise: Promise<Result>, ms: number, late: Result): Promise<Result> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const timeout = new Promise<Result>((resolve) => {
    timer = setTimeout(resolve, ms, late)
  })
  try {
    return await Promise.race([promise, timeout])
  } finally {
    clearTimeout(timer)
  }
}
