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

/** How answers of paid requests are kept, so that a payment presented again gets its answer again. */
export type AnswerOptions = {
  /** How many seconds an answer is kept. Default 600. A payment without a macaroon (x402 v1) has no kept answer. */
  seconds?: number
  /** The longest body that is kept, in bytes. Default 262,144. */
  maxAnswerBytes?: number
  /** Most bytes of all answers in memory. Default 16,777,216. */
  maxBytes?: number
  /** Used instead of the memory. It gets ciphertext. */
  store?: AnswerStore
  /** Encrypts a store's answers: 16 characters or more that nobody guesses. Default: derived from `apiKey`. */
  secret?: string
}

/**
 * Reads a copy of a request's body.
 *
 * @returns a text instead of a longer body: its digest. Undefined if it is longer and has none, breaks off, or was read before.
 */
export type ReadBody = (maxBytes: number) => Promise<Uint8Array | string | undefined>

/** The parts of a request that its answer is bound to. */
export type AnswerRequest = {
  method: string
  /** Path and query. */
  resource: string
  /** The values of its selecting headers (`selectionOf`). Absent: it has none, as an MCP call. */
  selection?: string | undefined
  /** Absent: it has no body. */
  readBody: ReadBody | undefined
}

/** Says that an answer was given before. */
export const replayedHeader = 'Idempotent-Replayed'

/** How long a stream may take: a longer one is a feed, and nobody waits for its end. */
export const longestAnswerMs = 120_000
/** The longest request body that is read to bind an answer to it. */
export const maxBodyBytes = 1_048_576
/** How long a complete answer waits for the rest of its request. */
const bodyGraceMs = 1_000
/** How many requests wait for the answer to one payment, and for how long. */
const maxWaiting = 8

type UnderWay = { target: string; ended: Promise<void>; end: () => void; waiting: number }

export type Answers = ReturnType<typeof createAnswers>

/**
 * Keeps the answers of paid requests, and gives each again to whoever presents the same signed payment with the same request.
 *
 * It compares the header, with its signatures and its macaroon. A thief of the header gets no more than it could have bought with it
 * before. No answer is kept for a payment without a macaroon: its signatures are public once it settles, and anyone could present them.
 *
 * @param waitMs how long a repeat of a payment waits for the answer under way.
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

  /** @returns false if it is still being served after that time, or too many wait already. */
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
   * Answers a paid request once: again from the kept answer, or by `make`.
   *
   * @param make asks the gateway, which accepts a payment once.
   * @param waitUntil keeps a process alive until the answer is kept.
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
      // The gateway says what there is to say of another request.
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
      if (made.kind === 'serve') {
        isMaking = true
        // So that other processes know that they should wait for the answer.
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
      // By another process that shares the store, perhaps while this one asked.
      const since = shelf.isShared ? await findAgain() : found
      if (since?.state === 'kept') return again(since.answer)
      if (since?.state === 'serving') return isBeingServed()
      if (since?.state !== 'not_kept') return made
      const detail = `It was served, and can't be served again: ${since.reason}`
      const body = JSON.stringify({ ...JSON.parse(made.answer.body), detail })
      return { kind: 'answer', answer: { ...made.answer, body } }
    } finally {
      if (!isMaking) end()
    }
  }

  return { once }
}

/** A request's body, as far as its answer is bound to it. */
type Body = {
  /** Whether it has come to its end. */
  isRead: Promise<boolean>
  /** Undefined if it wasn't read. */
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
  /** Undefined: the record is deleted. */
  write: (entry: AnswerEntry | undefined) => Promise<void>
}): Keep {
  const drop = (reason: NotKept) => void write({ state: 'not_kept', reason: `its answer was ${reason}` })
  return {
    maxBytes,
    drop,
    forget: () => void write(undefined),
    async keep(answer) {
      if (answer.body.length > maxBytes) return drop('too long')
      // Only what is still to come has a limit: a process that stands still for a second has read it.
      const bound = (await within(body.isRead, bodyGraceMs, false)) ? await body.digest : undefined
      if (bound === undefined) drop('to a request whose body is unknown')
      else await write({ state: 'kept', target, digest: bound, answer })
    },
  }
}

function again({ status, headers, body }: KeptAnswer): GateDecision {
  return { kind: 'again', answer: { status, headers: [...headers, [replayedHeader, 'true']], body } }
}

function isBeingServed(): GateDecision {
  return refuse('payment_replayed', 'It is being served: present the same payment again', 1)
}

/**
 * Where a provider's answers are kept.
 *
 * @throws {TypeError} for a store without anything to encrypt with.
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

/** Covers all that was presented, so that nobody who knows less gets the answer. */
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

/** The result of a promise, or `late` if it takes longer. */
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
