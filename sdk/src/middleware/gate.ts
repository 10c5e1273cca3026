import type { Address } from 'viem'
import { formatUsdc, parseUsdc } from '../protocol/amount.ts'
import { maxResourceLength } from '../protocol/challenge.ts'
import { BaseError, type ErrorCode, isErrorCode, ProtocolError } from '../protocol/errors.ts'
import type { NetworkName } from '../protocol/networks.ts'
import { selectionOf } from '../protocol/selection.ts'
import { type Split, splitAnyPrice } from '../protocol/tier.ts'
import { parseTraceparent } from '../protocol/traceparent.ts'
import { encodePaymentHeader } from '../protocol/x402.ts'
import { readUpTo } from './answerBody.ts'
import {
  type AnswerOptions,
  type Answers,
  createAnswers,
  type ReadBody,
  replayedHeader,
  shelfOf,
} from './answers.ts'
import { createChallenges } from './challenges.ts'
import { type Accepted, type Charge, type Charged, createCharges } from './charges.ts'
import { type GateDecision, json, refuse, type Served } from './decision.ts'
import type { GatewayAnswer, GatewayClientOptions } from './gatewayClient.ts'
import { mockChallenge, mockPayment } from './mock.ts'
import { createOriginCheck, type SaidOrigin } from './originCheck.ts'
import { demandPayment } from './paymentRequired.ts'
import { type PaymentHeaders, type PresentedPayment, readPayment } from './presentedPayment.ts'
import type { WaitUntil } from './recovery.ts'
import { createLostVerifications, type VerifiedPayment, verifyOrGoOn } from './verification.ts'
import { createVoids } from './voids.ts'
import { createWarnings, type Warnings } from './warnings.ts'

/** Options of `requirePayment` (conformance 4.6-19). */
export type GateOptions = {
  /** The gateway's URL. */
  gatewayUrl: string
  providerId: string
  /** Price of one request in decimal USDC. The gateway refuses a challenge minted below it. */
  pricing: { usdcPerUnit: string | number }
  /** No gateway, no chain, no money: for tests only (conformance 4.5). Default false. */
  mockPayments?: boolean
  /** The provider's own wallets: a challenge that pays anybody else is refused. Default: the gateway is trusted. */
  payTo?: readonly Address[]
  /** Default: the provider's registered endpoint that matches the request's method and path. */
  endpointId?: string
  /** The only network that payment is accepted on. Default: any of those that the endpoint is registered with. */
  network?: NetworkName
  /** The provider's key. Needed to void payments of failed requests, and for a price below the registered one. */
  apiKey?: string | undefined
  /** Milliseconds for each call to the gateway, its repetitions included. Default 10,000. */
  timeout?: number
  /** Origin that buyers use, if it isn't that of the endpoint's registered URL. */
  publicUrl?: string
  /**
   * Body of a 402. `x402-v1`: the one of x402 v1, for clients that don't ask for ours as our SDK does. Either comes with the header of
   * x402 v2. Default: our own.
   */
  body?: 'tollkeeper' | 'x402-v1'
  /** `one`: asks our SDK to pay both parts by one authorization, as other clients always do. Default `two`. */
  signatures?: 'one' | 'two'
  /**
   * `false`: a price that can be paid alone is offered on no tab, for buyers such as thirdweb's, who refuse a 402 with an unknown
   * scheme. Default true.
   */
  tabs?: boolean
  /** The prefix that a proxy strips from the path, such as `/api`: endpoints are registered with it. */
  basePath?: string
  /**
   * How answers of paid requests are kept, so that a payment presented again gets its answer again. `false`: not at all. Default: ten
   * minutes in memory.
   */
  answers?: false | AnswerOptions
  /**
   * Called when the gateway refuses one of these options, with what to do: each reason at most once an hour, without secrets.
   * Default: `console.warn`.
   */
  warn?: (message: string) => void
}

type GateRequest = PaymentHeaders &
  SaidOrigin & {
    method: string
    accept?: string | null | undefined
    /** W3C Trace Context, which the gateway continues. */
    traceparent?: string | null | undefined
    /** null: it has no body. Absent: no answers are kept. */
    readBody?: ReadBody | null
    /** The values of the headers by which its answer is chosen. */
    selection?: string
  }

/** For the gateway's own proxy: it has no network, and the registered price applies. */
export type InnerGateOptions = Omit<GateOptions, 'pricing'> &
  Partial<Pick<GateOptions, 'pricing'>> &
  Pick<GatewayClientOptions, 'fetch'> & {
    /** State that outlives the gate. */
    memory?: GateMemory
  }

/** What a gate remembers from one request to the next. */
export type GateMemory = { answers: Answers; lost: ReturnType<typeof createLostVerifications> }

export type Gate = {
  /**
   * Asks for payment, or verifies the presented one. Never throws, whatever a caller sends or the gateway answers.
   *
   * @param waitUntil keeps a process alive for work after the answer, if its runtime would end it.
   */
  check(request: GateRequest, waitUntil?: WaitUntil): Promise<GateDecision>
  /**
   * Voids a payment because the handler failed. The answer then has nothing more of it, or on a tab the receipt of the void, which
   * tells its buyer what its other requests still need.
   *
   * If the gateway doesn't answer, the void is repeated in the background.
   *
   * @returns false if it isn't voided, or not yet: it is being settled, there is no `apiKey`, or the gateway doesn't answer.
   */
  void(served: Served): Promise<boolean>
}

/** The gateway completes a path by the origin of its endpoint. */
const maxOriginLength = 262

/** Header that carries the receipt to the buyer (conformance 4.3-4). */
const receiptHeader = 'Service-Receipt'
/** Header that names the payment. */
export const paymentIdHeader = 'Service-Payment-Id'
/** Header with the charge in decimal USDC, if it is less than the price. */
const chargedHeader = 'Service-Charged'
/** Header that says whether the payment is `verified` or, after a failed request, `voided`. */
export const paymentStatusHeader = 'Service-Payment-Status'

/**
 * The headers that a page of another origin may read only if the response exposes them (CORS): all that a buyer's client
 * looks at.
 *
 * @example
 * import { exposedHeaders } from '@tollkeeper/sdk/fetch'
 *
 * const response = Response.json({ sunny: true })
 * response.headers.set('Access-Control-Expose-Headers', exposedHeaders.join())
 */
export const exposedHeaders = [
  receiptHeader,
  paymentIdHeader,
  paymentStatusHeader,
  chargedHeader,
  'PAYMENT-REQUIRED',
  'PAYMENT-RESPONSE',
  'X-PAYMENT-RESPONSE',
  'Retry-After',
  replayedHeader,
]

/**
 * Creates the middleware without a framework: it decides whether to serve, or what to answer instead.
 *
 * It fails closed: without the gateway's verdict nothing is served.
 *
 * @throws {ProtocolError} for a price that is not a USDC amount or below the minimum.
 * @throws {TypeError} without a gateway or a provider.
 */
export function createGate(options: InnerGateOptions): Gate {
  const { providerId, gatewayUrl, apiKey, network, timeout = 10_000, mockPayments = false } = options
  const { body: bodyForm = 'tollkeeper', tabs = true, signatures, publicUrl } = options
  requireProvider(options)
  const { basePath } = options
  if (basePath && !/^\/[^?#]*$/.test(basePath)) {
    throw new TypeError(`basePath must be a path like /api, got ${basePath}`)
  }
  const pricing = options.pricing && { usdcPerUnit: String(options.pricing.usdcPerUnit) }
  const split = pricing && splitAnyPrice(requirePrice(parseUsdc(pricing.usdcPerUnit)))
  const { fetch } = options
  const warnings = createWarnings(options)
  if (mockPayments) warnings.checkMock()
  const gateway = {
    gatewayUrl,
    apiKey,
    timeoutMs: timeout,
    onFailure: warnings.onFailure,
    ...(fetch && { fetch }),
  }
  const challenges = createChallenges(gateway, { ...options, pricing, warnings })
  const checkOrigin = createOriginCheck(options.warn)
  const { charge, voidPayment } = createCharges(gateway, { mockPayments, warnings })
  const { answers, lost } = memoryOf(options, warnings)

  const check: Gate['check'] = async (asked, waitUntil) => {
    // An endpoint for GET also answers HEAD (RFC 9110 section 9.3.2), for the same price.
    const request = asked.method === 'HEAD' ? { ...asked, method: 'GET' } : asked
    const resource = resourceOf(request.url, options)
    if (resource.length > maxResourceLength - maxOriginLength) {
      return refuse(
        'uri_too_long',
        `A URL has at most ${maxResourceLength - maxOriginLength} characters here`,
      )
    }
    let presented: PresentedPayment
    try {
      presented = readPayment(request)
    } catch (error) {
      if (!(error instanceof BaseError)) throw error
      return refuse(error.code, error.message)
    }
    if (mockPayments && split) {
      const absolute = resource.replace(/^\//, `${new URL(request.url).origin}/`)
      return checkMock(presented, options, { resource: absolute, split })
    }
    if (presented.kind === 'absent') return demand(request, resource)
    if (presented.kind === 'mock') return demand(request, resource, 'mock_mode_off')
    const payment = presented
    const make = () => verify(request, resource, payment, waitUntil)
    const { method, readBody, selection } = asked
    if (!answers || readBody === undefined) return make()
    const bound = { method, resource, selection, readBody: readBody ?? undefined }
    return answers.once(payment, bound, make, waitUntil)
  }

  /** A 402 with a fresh challenge, and with the reason if a payment was presented. */
  async function demand(
    request: GateRequest,
    resource: string,
    code?: ErrorCode,
    detail?: string,
  ): Promise<GateDecision> {
    const { answer, challenge } = await challenges.ask(request, resource)
    if (!answer || !challenge) return refuseChallenge(answer, options)
    if (!publicUrl) checkOrigin(challenge.accepts[0].resource, request)
    const asked = { ...(answer.body as object), ...(signatures === 'one' && { signatures }) }
    const { accept } = request
    const demanded = { tabs, body: bodyForm, accept, code, detail }
    const { body, headers } = demandPayment(asked, challenge, demanded)
    return json(402, body, headers)
  }

  async function verify(
    request: GateRequest,
    resource: string,
    presented: Extract<PresentedPayment, { kind: 'payment' | 'tab' }>,
    waitUntil: WaitUntil | undefined,
  ): Promise<GateDecision> {
    const { macaroon } = presented
    const x402 =
      presented.kind === 'tab' ? { version: 2 as const, network: presented.network } : presented.x402
    // Without a macaroon, only the header says which network it is paid on.
    const paidOn = network ?? (macaroon === undefined ? x402?.network : undefined)
    if (x402 && paidOn && paidOn !== x402.network) {
      return demand(request, resource, 'challenge_network_mismatch')
    }
    let endpointId = options.endpointId ?? challenges.endpointOf(request)
    if (!endpointId) {
      // Not from the macaroon, because the buyer could present one of a cheaper endpoint.
      const { answer, challenge } = await challenges.ask(request, resource)
      if (!challenge) return refuseChallenge(answer, options)
      endpointId = challenge.endpointId
    }
    const call = {
      path: '/verify',
      body: {
        ...(presented.kind === 'tab' ? { tab: presented.tab } : { payloads: presented.payloads }),
        macaroon,
        providerId,
        endpointId,
        pricing,
        ...(paidOn && { network: paidOn }),
        ...(x402 && { x402Version: x402.version }),
      },
      idempotencyKey: crypto.randomUUID(),
      traceparent: parseTraceparent(request.traceparent)?.text,
    }
    const answer = await verifyOrGoOn(gateway, call, { lost, voidPayment, waitUntil })
    if (!answer) return unavailable('The gateway did not answer')
    if (answer.status === 200) {
      const served = serve(answer, x402?.version, charge)
      return served.kind === 'serve' ? { ...served, waitUntil } : served
    }
    challenges.forget(request)
    if (answer.status === 402) {
      const { code, detail } = (answer.body ?? {}) as Record<string, unknown>
      const known = isErrorCode(code) ? code : 'invalid_signature'
      return demand(request, resource, known, typeof detail === 'string' ? detail : undefined)
    }
    // The malformed part is the buyer's.
    if (answer.status !== 400) warnings.explain(answer)
    return [400, 409, 413, 422, 429, 503].includes(answer.status) ? passOn(answer) : misconfigured(answer)
  }

  const voids = createVoids({ voidPayment })
  return {
    check,
    async void(served) {
      const outcome = await voidServed(served, voidPayment)
      if (outcome === 'unknown') voids.repeatLater(served.payment, served.waitUntil)
      return outcome === 'done'
    },
  }
}

async function voidServed(
  { payment, headers }: Served,
  voidPayment: (payment: VerifiedPayment) => Promise<Charged>,
): Promise<Charged['outcome']> {
  // Its own charge changes the receipt. If that stays as it is, whether it was refused shows when it is repeated.
  if (payment.tab) return (await payment.charge(0)) ? 'done' : 'unknown'
  const { outcome } = await voidPayment(payment)
  if (outcome === 'done') for (const name of Object.keys(headers)) delete headers[name]
  return outcome
}

/** A gate's memory; without answers if that is turned off or nothing is paid. @throws {TypeError} for a store without a secret. */
function memoryOf(
  { answers = {}, apiKey, timeout = 10_000, mockPayments, memory }: InnerGateOptions,
  warnings: Pick<Warnings, 'tell'>,
): Partial<GateMemory> & Pick<GateMemory, 'lost'> {
  if (memory) return memory
  const lost = createLostVerifications()
  if (answers === false || mockPayments) return { lost }
  const onFailure = () => warnings.tell('answer_store_failed')
  return {
    lost,
    answers: createAnswers(answers, { shelf: shelfOf(answers, apiKey), waitMs: timeout, onFailure }),
  }
}

function checkMock(
  { kind }: PresentedPayment,
  { gatewayUrl, providerId, endpointId = 'ep_mock' }: InnerGateOptions,
  terms: { resource: string; split: Split },
): GateDecision {
  const mocked = { gatewayUrl, providerId, endpointId, ...terms }
  const charge: Charge = async (_, amount) =>
    amount <= terms.split.price ? { outcome: 'done', receipt: null } : { outcome: 'refused' }
  if (kind === 'mock') return toServe(mockPayment(mocked), charge)
  return json(402, { ...mockChallenge(mocked), error: 'Payment required (mock mode)' })
}

function requirePrice(price: bigint): bigint {
  if (price > 0n) return price
  throw new ProtocolError('price_below_minimum', 'A price must be over 0')
}

export function requireProvider({
  gatewayUrl,
  providerId,
}: {
  gatewayUrl: string
  providerId: string
}): void {
  if (!URL.canParse(gatewayUrl)) throw new TypeError(`gatewayUrl must be a URL, got ${gatewayUrl}`)
  if (!providerId) throw new TypeError('providerId must be given: what POST /providers answered')
}

/** The parts of a request that the gate reads. */
export function readRequest(
  request: Request,
  readBody: ReadBody = (max) => readCopy(request, max),
): GateRequest {
  const { method, url, headers } = request
  return {
    // The method comes first, since looking for a body costs some runtimes a request of their own.
    readBody: method === 'GET' || method === 'HEAD' ? null : readBody,
    method,
    url,
    ...readHeaders((name) => headers.get(name)),
  }
}

/** The headers that the gate looks at. @param get by a lower-case name. */
export function readHeaders(get: (name: string) => string | null | undefined) {
  return {
    authorization: get('authorization'),
    paymentSignature: get('payment-signature'),
    xPayment: get('x-payment'),
    accept: get('accept'),
    traceparent: get('traceparent'),
    forwardedProto: get('x-forwarded-proto'),
    forwardedHost: get('x-forwarded-host'),
    selection: selectionOf(get),
  }
}

/** Reads a copy of what the handler reads. */
export async function readCopy(request: Request, maxBytes: number): Promise<Uint8Array | undefined> {
  if (request.bodyUsed) return undefined
  const { body } = request.clone()
  const read = body && (await readUpTo(body, maxBytes))
  return read === null ? new Uint8Array() : read
}

function serve({ body }: GatewayAnswer, x402Version: 1 | 2 | undefined, charge: Charge): GateDecision {
  const { verified, receipt, paymentId, paymentResponse, tab } = (body ?? {}) as Record<string, unknown>
  if (verified !== true || typeof receipt !== 'string' || typeof paymentId !== 'string') {
    return unavailable('The gateway answered without a receipt')
  }
  const header = x402Version === 1 ? 'X-PAYMENT-RESPONSE' : 'PAYMENT-RESPONSE'
  const isResponse = x402Version && typeof paymentResponse === 'object' && paymentResponse !== null
  const accepted = { verified, receipt, paymentId, ...(isTab(tab) && { tab }) } as const
  return toServe(accepted, charge, isResponse ? { [header]: paymentResponse } : {})
}

function isTab(tab: unknown): tab is NonNullable<VerifiedPayment['tab']> {
  const { id, sequence } = (tab ?? {}) as Record<string, unknown>
  return typeof id === 'string' && typeof sequence === 'number'
}

/** @param responses x402's headers, by name. */
function toServe(accepted: Accepted, charge: Charge, responses: Record<string, object> = {}): GateDecision {
  const headers: Record<string, string> = { [receiptHeader]: accepted.receipt }
  for (const [name, response] of Object.entries(responses)) headers[name] = encodePaymentHeader(response)
  const payment: VerifiedPayment = {
    ...accepted,
    charge: async (usdc) => {
      const amount = parseUsdc(usdc)
      const charged = await charge(accepted, amount)
      if (charged.outcome === 'refused') return false
      // Neither the price nor the amount is known to be what is charged, so the buyer is told neither.
      if (charged.outcome === 'unknown') {
        for (const name of [receiptHeader, chargedHeader, ...Object.keys(responses)]) delete headers[name]
        return false
      }
      headers[chargedHeader] = formatUsdc(amount)
      if (charged.receipt === null) delete headers[receiptHeader]
      else headers[receiptHeader] = charged.receipt
      // x402's own field for a price that turned out lower.
      for (const [name, response] of Object.entries(responses))
        headers[name] = encodePaymentHeader({ ...response, amount: amount.toString() })
      return true
    },
  }
  return { kind: 'serve', payment, headers }
}

/**
 * The resource for a price: a path and query, whose origin is the registered endpoint's. What a request says
 * of its origin, in `Host` or in proxies' headers, is never passed on.
 */
function resourceOf(url: string, { publicUrl, basePath = '' }: InnerGateOptions): string {
  const { protocol, pathname, search } = new URL(url)
  // An MCP tool's name stands for all of it, wherever its server is reached.
  if (protocol === 'mcp:') return url
  return (publicUrl ? new URL(publicUrl).origin : '') + basePath.replace(/\/$/, '') + pathname + search
}

/** Answers if there is no challenge. Passes on what concerns the buyer; the rest is for the provider to correct. */
function refuseChallenge(
  answer: GatewayAnswer | undefined,
  { endpointId }: Pick<InnerGateOptions, 'endpointId'>,
): GateDecision {
  if (!answer || answer.status === 200) return unavailable('The gateway gave no challenge')
  // Unless the provider names the endpoint, the buyer chose the path. Asking for the same path again won't help.
  if (!endpointId && codeOf(answer) === 'unknown_endpoint') return passOn(answer)
  return [409, 429, 503].includes(answer.status) ? passOn(answer) : misconfigured(answer)
}

/** Passes on the gateway's problem+json, with the headers that say when to try again. */
function passOn(answer: GatewayAnswer): GateDecision {
  const headers: Record<string, string> = {
    'Content-Type': answer.headers.get('content-type') ?? 'application/problem+json',
    'Cache-Control': 'no-store',
  }
  for (const name of [
    'retry-after',
    'ratelimit',
    'ratelimit-policy',
    'ratelimit-limit',
    'ratelimit-remaining',
    'ratelimit-reset',
  ]) {
    const value = answer.headers.get(name)
    if (value !== null) headers[name] = value
  }
  return { kind: 'answer', answer: { status: answer.status, headers, body: answer.text } }
}

/** The gateway refused the provider (a wrong key, an unknown endpoint), so the buyer can only try again later. */
function misconfigured(answer: GatewayAnswer): GateDecision {
  const code = codeOf(answer)
  const reason = isErrorCode(code) ? code : `status ${answer.status}`
  return unavailable(`The gateway refused this provider's request: ${reason}`)
}

function codeOf({ body }: GatewayAnswer): unknown {
  return ((body ?? {}) as { code?: unknown }).code
}

function unavailable(detail: string): GateDecision {
  return refuse('dependency_unavailable', detail, 1)
}
