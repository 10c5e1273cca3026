import { hash, randomUUID } from 'node:crypto'
import type { AddressGuard } from '@tollkeeper/runtime/addressGuard'
import { createCache } from '@tollkeeper/runtime/cache'
import { send } from '@tollkeeper/runtime/send'
import { signWebhook } from '@tollkeeper/runtime/signWebhook'
import { type ParsedDecision, parseAcceptDecision } from '@tollkeeper/sdk/protocol/acceptDecision'
import { formatShortUsdc, formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { isRecord, parseJson } from '@tollkeeper/sdk/protocol/fields'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'
import { type AcceptHook, findHook, secretsOf } from './hooks.ts'

/** A request to a provider's hook for a decision. */
export type HookRequest = {
  providerId: string
  /**
   * `offer`: before a 402, when nothing has been paid. `payment`: before a payment is accepted. For endpoints that are sold through the gateway's
   * proxy, the request contains the buyer's HTTP request, and the hook may decide to serve free or at another price. For all other payments, the hook
   * can only allow or refuse.
   */
  moment: 'offer' | 'payment'
  /** How the payment was presented. */
  source: 'proxy' | 'verify' | 'tab' | 'facilitator' | 'submission'
  payer: Address | null
  /** Null if the payment is for no registered endpoint. */
  endpointId: string | null
  /** USDC base units. */
  amount: bigint
  network: NetworkName
  resource: string
  request: { method: string; url: string; headers: Record<string, string> } | null
  /** Identifies the payment, and is equal each time that the payment is presented. Null if nothing was paid. */
  payment: string | null
}

/** A request about a payment. */
export type PaymentHookRequest = HookRequest & { payer: Address; payment: string }

/** `failed`: the hook returned no decision, and the provider wants payments refused in that case. */
export type HookAnswer = ParsedDecision | { kind: 'failed'; why: string }

/** How a request to a hook ended, for metrics. */
export type HookOutcome = ParsedDecision['kind'] | 'failed' | 'cached' | 'paused' | 'busy'

export type HookSettings = {
  sql: Queryable
  guard: AddressGuard
  now: () => number
  onOutcome?: (outcome: HookOutcome) => void
}

/** Maximum time in ms for a hook's answer, including the connection. */
export const hookTimeoutMs = 2_000
/** Maximum concurrent requests to one provider's hook, and to all hooks. */
const maxOpenOfProvider = 16
const maxOpen = 256
/** After this many failures in a row, the hook gets no requests for {@link pauseMs}. After that, one request at a time tries it again. */
const failuresUntilPause = 5
const pauseMs = 10_000
/** Maximum age in ms of a cached registration. */
const registryTtlMs = 2_000
/** Maximum of `cacheSeconds`, and maximum number of cached decisions per provider and in total. */
const maxCacheSeconds = 86_400
const maxCachedOfProvider = 2_000
const maxCached = 50_000
/** Time in ms for which an allowed payment is remembered, so that the hook isn't asked again when the payment is presented again. */
const allowedMs = 600_000
const maxAllowed = 50_000
const maxHooks = 10_000
const maxAnswerBytes = 4_096

type Health = { open: number; failures: number; pausedUntil: number }
type Kept = { answer: ParsedDecision; until: number }

/** Creates a bounded map that evicts its oldest entries. */
function createShelf<V extends { until: number }>(max: number, now: () => number) {
  const entries = new Map<string, V>()
  return {
    get size() {
      return entries.size
    },
    get(key: string): V | undefined {
      const entry = entries.get(key)
      if (entry === undefined || entry.until > now()) return entry
      entries.delete(key)
      return undefined
    },
    set(key: string, entry: V): void {
      entries.delete(key)
      if (entries.size >= max) entries.delete(entries.keys().next().value ?? '')
      entries.set(key, entry)
    },
  }
}

export type Hooks = ReturnType<typeof createHooks>

/**
 * Creates a client for providers' hooks. It holds no database connection while it waits for a hook. A hook that hangs, answers wrongly or sends too
 * much harms only its own provider: requests have a time limit, a maximum number, and a pause after failures.
 */
export function createHooks({ sql, guard, now, onOutcome = () => {} }: HookSettings) {
  const registered = createCache<string, AcceptHook | undefined>({
    load: (providerId) => findHook(sql, providerId),
    ttlMs: registryTtlMs,
    max: maxHooks,
    now,
  })
  const health = new Map<string, Health>()
  /** The decisions that hooks allow us to cache. Each provider has a separate cache, so that no provider evicts another provider's decisions. */
  const cached = new Map<string, ReturnType<typeof createShelf<Kept>>>()
  const allowed = createShelf<{ until: number }>(maxAllowed, now)
  let open = 0

  function healthOf(providerId: string): Health {
    const known = health.get(providerId)
    if (known) return known
    if (health.size >= maxHooks) for (const [key, { open }] of health) if (open === 0) health.delete(key)
    const fresh = { open: 0, failures: 0, pausedUntil: 0 }
    health.set(providerId, fresh)
    return fresh
  }

  function keep(providerId: string, key: string, entry: Kept): void {
    let shelf = cached.get(providerId)
    if (!shelf) {
      let total = 0
      for (const one of cached.values()) total += one.size
      if (total >= maxCached) cached.delete(cached.keys().next().value ?? '')
      shelf = createShelf<Kept>(maxCachedOfProvider, now)
      cached.set(providerId, shelf)
    }
    shelf.set(key, entry)
  }

  function fail(hook: AcceptHook, why: string): HookAnswer {
    return hook.onFailure === 'accept' ? { kind: 'accept' } : { kind: 'failed', why }
  }

  async function askOnce(hook: AcceptHook, question: HookRequest): Promise<HookAnswer> {
    const { providerId } = hook
    const key = cacheKeyOf(hook, question)
    const kept = cached.get(providerId)?.get(key)
    if (kept) {
      onOutcome('cached')
      return kept.answer
    }
    const state = healthOf(providerId)
    const isTrying = state.failures >= failuresUntilPause
    if (state.pausedUntil > now() || (isTrying && state.open > 0)) {
      onOutcome('paused')
      return fail(hook, 'the hook failed too often and will be tried again in a few seconds')
    }
    if (state.open >= maxOpenOfProvider || open >= maxOpen) {
      onOutcome('busy')
      return fail(hook, 'too many requests to the hook are open')
    }
    state.open += 1
    open += 1
    try {
      const { answer, cacheSeconds } = await askUrl(hook, question, { guard, now: now() })
      state.failures = 0
      if (cacheSeconds > 0) keep(providerId, key, { answer, until: now() + cacheSeconds * 1_000 })
      onOutcome(answer.kind)
      return answer
    } catch (error) {
      state.failures += 1
      if (state.failures >= failuresUntilPause) state.pausedUntil = now() + pauseMs
      onOutcome('failed')
      return fail(hook, error instanceof Error ? error.message : String(error))
    } finally {
      state.open -= 1
      open -= 1
    }
  }

  return {
    /**
     * Asks a provider's hook.
     *
     * @returns undefined if the provider has no hook. After a failure, the decision that the provider registered for that case.
     */
    async ask(question: HookRequest): Promise<HookAnswer | undefined> {
      const hook = await registered.get(question.providerId)
      return hook && askOnce(hook, question)
    },

    /**
     * Requires a provider's hook to allow a signed payment before it is accepted. The amount is signed and can't change any more, so
     * another price only matters if it is higher, and a decision to serve free allows the payment.
     *
     * The hook is asked once for each payment that it allows.
     *
     * @throws {BaseError} `payment_declined`, `challenge_price_too_low`, `decision_unavailable`
     */
    async require(question: PaymentHookRequest): Promise<void> {
      const hook = await registered.get(question.providerId)
      if (hook === undefined) return
      const key = allowedKeyOf(hook, question)
      if (allowed.get(key)) return
      requireCovered(await askOnce(hook, question), question.amount)
      allowed.set(key, { until: now() + allowedMs })
    },

    /** Records that the hook allowed a payment when it was asked about the HTTP request, so that `require` doesn't ask again. */
    async allow(question: PaymentHookRequest): Promise<void> {
      const hook = await registered.get(question.providerId)
      if (hook) allowed.set(allowedKeyOf(hook, question), { until: now() + allowedMs })
    },

    /** Reads the names of the request headers that the hook receives; undefined if there is no hook. */
    async headersOf(providerId: string): Promise<readonly string[] | undefined> {
      return (await registered.get(providerId))?.headers
    },
  }
}

/** @throws {BaseError} */
function requireCovered(answer: HookAnswer, amount: bigint): void {
  if (answer.kind === 'failed') throw decisionUnavailable()
  if (answer.kind === 'refuse') throw declined(answer)
  if (answer.kind !== 'price' || answer.price <= amount) return
  throw new BaseError(
    'challenge_price_too_low',
    `The seller asks ${formatUsdc(answer.price)} USDC of this payer`,
    {
      details: { asked: answer.price.toString(), challenged: amount.toString() },
    },
  )
}

function declined({ reason, code }: Extract<HookAnswer, { kind: 'refuse' }>): BaseError {
  return new BaseError('payment_declined', reason, { details: code === undefined ? {} : { reason: code } })
}

/** The error doesn't give the buyer the reason, which is the provider's business. */
function decisionUnavailable(): BaseError {
  return new BaseError(
    'decision_unavailable',
    'The seller could not decide about this payment, so it is not accepted: present it again',
    { details: { retryAfter: 1 } },
  )
}

/** Sends a signed request to the hook's URL. @throws {Error} if the answer isn't a decision. */
export async function askUrl(
  hook: AcceptHook,
  question: HookRequest,
  { guard, now }: { guard: AddressGuard; now: number },
): Promise<{ answer: ParsedDecision; cacheSeconds: number }> {
  const { providerId, payment } = question
  const id =
    payment === null
      ? randomUUID().replaceAll('-', '')
      : hash('sha256', JSON.stringify([providerId, payment])).slice(0, 32)
  const timestamp = new Date(now)
  const body = JSON.stringify({
    type: 'payment.before_accept',
    timestamp: timestamp.toISOString(),
    data: toData(question),
  })
  const secrets = secretsOf(hook, now)
  const headers = signWebhook({ id: `msg_${id}`, timestamp, body, secrets })
  const result = await send({
    url: hook.url,
    headers: { ...headers, accept: 'application/json' },
    body,
    guard,
    timeoutMs: hookTimeoutMs,
    maxResponseBytes: maxAnswerBytes + 1,
  })
  if (result.status === 'unanswered') throw new Error(result.failure)
  const { httpStatus, body: text } = result
  if (httpStatus !== 200) throw new Error(`expected status 200, got ${httpStatus}`)
  const type = result.headers['content-type'] ?? ''
  if (!/^application\/(?:[\w.-]+\+)?json\b/i.test(type)) throw new Error('expected application/json')
  if (text.length > maxAnswerBytes) throw new Error(`expected at most ${maxAnswerBytes} bytes`)
  const json = parseJson(text)
  return { answer: parseAcceptDecision(json), cacheSeconds: cacheSecondsOf(json) }
}

function cacheSecondsOf(json: unknown): number {
  const { cacheSeconds = 0 } = isRecord(json) ? json : {}
  if (typeof cacheSeconds !== 'number' || !(cacheSeconds >= 0))
    throw new Error('expected cacheSeconds of 0 or more')
  return Math.min(cacheSeconds, maxCacheSeconds)
}

function toData({ payment: _, amount, ...facts }: HookRequest) {
  return { ...facts, amount: amount.toString(), usdc: formatShortUsdc(amount) }
}

/**
 * Returns a key of everything that a decision may depend on, except the amount: a hook that decides by the amount must not allow caching.
 */
function cacheKeyOf({ changedAt }: AcceptHook, question: HookRequest): string {
  const { moment, source, payer, endpointId, network, request } = question
  return hash(
    'sha256',
    JSON.stringify([changedAt.getTime(), moment, source, payer, endpointId, network, request]),
  )
}

function allowedKeyOf({ changedAt }: AcceptHook, question: HookRequest): string {
  const { providerId, endpointId, payment } = question
  return hash('sha256', JSON.stringify([changedAt.getTime(), providerId, endpointId, payment]))
}
