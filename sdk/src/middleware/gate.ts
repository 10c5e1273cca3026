import type { Address } from 'viem'
import { formatUsdc, parseUsdc } from '../protocol/amount.ts'
import { maxResourceLength } from '../protocol/challenge.ts'
import { BaseError, type ErrorCode, isErrorCode } from '../protocol/errors.ts'
import { type Network, type NetworkName, networkByName } from '../protocol/networks.ts'
import { passHeader } from '../protocol/pass.ts'
import type { PassTerms } from '../protocol/passTerms.ts'
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
import type { BeforeAcceptOptions } from './beforeAccept.ts'
import { createChallenges } from './challenges.ts'
import { type Accepted, type Charge, type Charged, createCharges } from './charges.ts'
import { type Answered, type GateDecision, json, refuse, type Served, unavailable } from './decision.ts'
import { maxRequiredLength } from './fitRequired.ts'
import type { GatewayAnswer, GatewayClientOptions } from './gatewayClient.ts'
import { mockChallenge, mockEndpoint, mockPayment } from './mock.ts'
import { createOriginCheck } from './originCheck.ts'
import { createPages, type PageOptions, type Pages, pageHeadBytes } from './page.ts'
import { boughtPass, createPassServing, passLeftHeader } from './passServing.ts'
import { demandPayment } from './paymentRequired.ts'
import { type PaymentHeaders, type PresentedPayment, readPayment } from './presentedPayment.ts'
import { type Pricing, readPass, toWirePrice } from './pricing.ts'
import type { WaitUntil } from './recovery.ts'
import { createSelling, type GateRequest, type Presentation, type SellingContext } from './selling.ts'
import { createLostVerifications, type VerifiedPayment, verifyOrGoOn } from './verification.ts'
import { createVoids } from './voids.ts'
import { createWarnings, type Warnings } from './warnings.ts'

/** Options of `requirePayment` (conformance 4.6-19). */
export type GateOptions = BeforeAcceptOptions &
  PageOptions & {
    /** The gateway's URL. */
    gatewayUrl: string
    providerId: string
    /**
     * Price of one request: `'$0.05'`, `{ usdcPerUnit: '0.05' }`, or a function of the request. A lower payment is rejected. `{ usdcPerUnit: '1',
     * pass: '1h' }` sells a pass, which pays for further requests, and requires `apiKey` (docs/passes.md).
     */
    pricing: Pricing
    /** Uses no gateway, no chain and no USDC. Only for tests (conformance 4.5). Default false. */
    mockPayments?: boolean
    /** The provider's own wallets. A challenge that pays any other wallet is refused. Default: the gateway's wallets are trusted. */
    ownWallets?: readonly Address[]
    /** Id of the endpoint. Default: the provider's registered endpoint that matches the request's method and path. */
    endpointId?: string
    /**
     * The only network on which payments are accepted: its name, or the result of `defineNetwork`. Default: all networks of the endpoint's
     * registration.
     */
    network?: NetworkName | Network
    /** The provider's API key. Required for voiding payments of failed requests, and for a price below the registered price. */
    apiKey?: string | undefined
    /** Timeout in ms of each call to the gateway, including its retries. Default 10,000. */
    timeout?: number
    /**
     * Origin that buyers call. Required if it differs from the origin of the endpoint's registered URL. Also required if endpoints on several hosts
     * have the same path, unless `endpointId` is set. A request's `Host` never selects the endpoint.
     */
    publicUrl?: string
    /**
     * Whether to accept clients of x402 v1. If true, a 402 has the body of x402 v1. Our SDK still gets our own body, because it requests that body.
     * Clients of v2 read a header. Default false.
     */
    acceptX402V1?: boolean
    /**
     * Where a price is divided between the provider and the platform. `onchain`: our SDK signs once for the whole price, and a splitter contract
     * divides it; other clients always sign once. `separate`: our SDK signs each part. Default `separate`.
     */
    split?: 'onchain' | 'separate'
    /**
     * Whether to offer tabs. If `false`, a price that can be paid as a single payment is never offered on a tab. Use this for buyers such as
     * thirdweb's, who refuse a 402 with an unknown scheme. Default true.
     */
    tabs?: boolean
    /** The prefix that a proxy strips from the path, such as `/api`. The registered paths of endpoints contain it. */
    basePath?: string
    /**
     * Options for keeping the responses to paid requests, so that a payment that is presented again gets its response again. `false`: responses
     * aren't kept. Default: ten minutes in memory.
     */
    answers?: false | AnswerOptions
    /**
     * Called when the gateway rejects one of these options, with advice on what to do. It is called at most once an hour for each reason, and never
     * with secrets. Default: `console.warn`.
     */
    warn?: (message: string) => void
  }

/** Options for the gateway's own proxy, which needs no network call and uses the registered price. */
export type InnerGateOptions = Omit<GateOptions, 'pricing'> &
  Partial<Pick<GateOptions, 'pricing'>> &
  Pick<GatewayClientOptions, 'fetch'> & {
    /** State that other code creates and that lives longer than the gate. */
    memory?: GateMemory
  }

/** The options as the gate uses them: networks are given by name. */
type NamedGateOptions = Omit<InnerGateOptions, 'network'> & { network?: NetworkName }

/** The state that a gate keeps between requests. */
export type GateMemory = { answers: Answers; lost: ReturnType<typeof createLostVerifications> }

export type Gate = {
  /**
   * Requests payment, or verifies the presented payment. Never throws, even if the request or the gateway's response is malformed.
   *
   * @param waitUntil keeps the process alive for work after the response, in runtimes that would otherwise end it.
   */
  check(request: GateRequest, waitUntil?: WaitUntil): Promise<GateDecision>
  /**
   * Voids a payment because the handler failed. The response then doesn't mention the payment. On a tab, the response has the void's receipt instead,
   * which tells the buyer what the tab's other requests cost.
   *
   * If the gateway isn't responding, the void is retried in the background.
   *
   * @returns false if the payment isn't voided, or not yet: it is being settled, there is no `apiKey`, or the gateway isn't responding.
   */
  void(served: Served): Promise<boolean>
}

/** Maximum length of an origin. The gateway prepends the endpoint's origin to a path, so this much room is reserved. */
const maxOriginLength = 262

/** Header with the receipt for the buyer (conformance 4.3-4). */
const receiptHeader = 'Service-Receipt'
/** Header with the payment's id. */
export const paymentIdHeader = 'Service-Payment-Id'
/** Header with the charged amount in decimal USDC, if that is lower than the price. */
const chargedHeader = 'Service-Charged'
/** Header with the payment's status: `verified`, `voided` after a failed request, or `free` if no payment was needed. */
export const paymentStatusHeader = 'Service-Payment-Status'

/** Returns the headers with the id and status of a served request's payment. */
export function statusHeaders(
  { free, paymentId }: VerifiedPayment,
  isVoided = false,
): Record<string, string> {
  if (free) return { [paymentStatusHeader]: 'free' }
  return { [paymentIdHeader]: paymentId, [paymentStatusHeader]: isVoided ? 'voided' : 'verified' }
}

/**
 * All headers that a buyer's client reads. A page of another origin can read them only if the response exposes them (CORS).
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
  passHeader,
  passLeftHeader,
  'PAYMENT-REQUIRED',
  'PAYMENT-RESPONSE',
  'X-PAYMENT-RESPONSE',
  'Retry-After',
  replayedHeader,
]

/**
 * Creates the middleware without a framework. It decides whether to serve a request, or which response to send instead.
 *
 * If the gateway gives no definite response, nothing is served: the middleware fails closed.
 *
 * @throws {ProtocolError} for a price that is not a USDC amount or below the minimum; `unknown_network` for a network object that doesn't
 *   come from `defineNetwork`.
 * @throws {TypeError} without a gateway or a provider.
 */
export function createGate(given: InnerGateOptions): Gate {
  const options = nameNetwork(given)
  const { providerId, gatewayUrl, apiKey, network, timeout = 10_000, mockPayments = false } = options
  const { acceptX402V1 = false, tabs = true, split = 'separate', publicUrl } = options
  requireProvider(options)
  requireBasePath(options)
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
  const pass = readSoldPass(options)
  const challenges = createChallenges(gateway, { ...options, pass, warnings })
  const checkOrigin = createOriginCheck(options.warn)
  const pages = createPages(options, { isMock: mockPayments, warnings })
  const { charge, voidPayment } = createCharges(gateway, { mockPayments, warnings })
  const { answers, lost } = memoryOf(options, warnings)
  const refuseWithout = (answer: GatewayAnswer | undefined) => refuseChallenge(answer, options)

  const selling = createSelling(options, {
    timeoutMs: timeout,
    warnings,
    demand,
    verify,
    mock: (request, resource, presented, price) =>
      checkMock(presented, options, { request, pages, resource, split: splitAnyPrice(price) }),
    termsOf: createTermsOf(challenges, options),
  })
  const passContext = { ...options, challenges, warnings, demand: selling.offer, refuseWithout }
  const servePass = createPassServing(gateway, passContext)

  const check: Gate['check'] = async (asked, waitUntil) => {
    // An endpoint for GET also handles HEAD (RFC 9110 section 9.3.2), at the same price.
    const request = asked.method === 'HEAD' ? { ...asked, method: 'GET' } : asked
    const resource = resourceOf(request.url, options)
    const presented = readPresented(request, resource)
    if (presented.kind === 'answer') return presented
    if (mockPayments && options.pricing) {
      const absolute = resource.replace(/^\//, `${new URL(request.url).origin}/`)
      return selling.mock(request, absolute, presented)
    }
    if (presented.kind === 'absent' && asked.pass && servePass) return servePass(request, resource, waitUntil)
    if (presented.kind === 'absent') return selling.offer(request, resource)
    if (presented.kind === 'mock') return selling.offer(request, resource, 'mock_mode_off')
    const payment = presented
    // A kept response is sent even if the seller would decide differently now.
    const make = () => selling.pay(request, resource, { payment, waitUntil })
    const { method, readBody, selection } = asked
    if (!answers || readBody === undefined) return make()
    const bound = { method, resource, selection, readBody: readBody ?? undefined }
    return answers.once(payment, bound, make, waitUntil)
  }

  /** Returns a 402 with a new challenge. If a payment was presented, the 402 also has the reason for its refusal. */
  async function demand(
    request: GateRequest,
    resource: string,
    price: bigint | undefined,
    code?: ErrorCode,
    detail?: string,
  ): Promise<GateDecision> {
    const { answer, challenge } = await challenges.ask(request, resource, price)
    if (!answer || !challenge) return refuseWithout(answer)
    if (!publicUrl) checkOrigin(challenge.accepts[0].resource, request)
    const asked = { ...(answer.body as object), ...(split === 'onchain' && { signatures: 'one' }) }
    const { accept } = request
    const isForPerson = code === undefined && pages.isWanted(request)
    const maxHeaderLength = isForPerson ? maxRequiredLength - pageHeadBytes : undefined
    const demanded = { tabs, acceptX402V1, accept, code, detail, maxHeaderLength }
    const { body, headers } = demandPayment(asked, challenge, demanded)
    const answered = isForPerson ? pages.answer(request, challenge, headers) : undefined
    return answered ?? json(402, body, { Vary: 'Accept', ...headers })
  }

  async function verify(
    request: GateRequest,
    resource: string,
    { payment: presented, price, waitUntil }: Presentation,
  ): Promise<GateDecision> {
    const { macaroon } = presented
    const x402 =
      presented.kind === 'tab' ? { version: 2 as const, network: presented.network } : presented.x402
    // If a payment has no macaroon, only its header names the network.
    const paidOn = network ?? (macaroon === undefined ? x402?.network : undefined)
    if (x402 && paidOn && paidOn !== x402.network) {
      return demand(request, resource, price, 'challenge_network_mismatch')
    }
    let endpointId = options.endpointId ?? challenges.endpointOf(request)
    if (!endpointId) {
      // Don't read the endpoint from the macaroon: the buyer could present a macaroon of a cheaper endpoint.
      const { answer, challenge } = await challenges.ask(request, resource, price)
      if (!challenge) return refuseWithout(answer)
      endpointId = challenge.endpointId
    }
    const call = {
      path: '/verify',
      body: {
        ...(presented.kind === 'tab' ? { tab: presented.tab } : { payloads: presented.payloads }),
        macaroon,
        providerId,
        endpointId,
        pricing: toWirePrice(price, pass),
        ...(paidOn && { network: paidOn }),
        ...(x402 && { x402Version: x402.version }),
      },
      idempotencyKey: crypto.randomUUID(),
      traceparent: parseTraceparent(request.traceparent)?.text,
    }
    const answer = await verifyOrGoOn(gateway, call, { lost, voidPayment, waitUntil })
    if (!answer) return unavailable('The gateway did not respond')
    if (answer.status === 200) {
      const served = serve(answer, x402?.version, charge)
      return served.kind === 'serve' ? { ...served, waitUntil } : served
    }
    challenges.forget(request)
    if (answer.status === 402) {
      const { code, detail } = (answer.body ?? {}) as Record<string, unknown>
      const known = isErrorCode(code) ? code : 'invalid_signature'
      return demand(request, resource, price, known, typeof detail === 'string' ? detail : undefined)
    }
    // The hook that the provider registered at the gateway has refused the payment.
    if (codeOf(answer) === 'payment_declined') return passOn(answer)
    // A 400 means that the request is malformed. Only the parts that come from the buyer can be malformed, so don't warn the provider.
    if (answer.status !== 400) warnings.explain(answer)
    return [400, 409, 413, 422, 429, 503].includes(answer.status) ? passOn(answer) : misconfigured(answer)
  }

  const voids = createVoids({ voidPayment })
  return {
    check,
    async void(served) {
      if (served.payment.free) return false
      // The payment stays valid, because it also pays for the other requests with the pass.
      if (served.giveBack) {
        await served.giveBack()
        return false
      }
      const outcome = await voidServed(served, voidPayment)
      if (outcome === 'unknown') voids.repeatLater(served.payment, served.waitUntil)
      return outcome === 'done'
    },
  }
}

/** Replaces a network object by its name. A name is kept even if this process doesn't know it, because the gateway may know it. */
function nameNetwork({ network, ...options }: InnerGateOptions): NamedGateOptions {
  if (network === undefined) return options
  return { ...options, network: typeof network === 'object' ? networkByName(network).name : network }
}

/** Returns a function that finds the endpoint and default network of a request's route. It requests a challenge if they aren't known. */
function createTermsOf(
  challenges: ReturnType<typeof createChallenges>,
  options: NamedGateOptions,
): SellingContext['termsOf'] {
  return async (request, resource, price) => {
    const known = challenges.termsOf(request)
    if (known) return known
    const { answer, challenge } = await challenges.ask(request, resource, price)
    if (!challenge) return refuseChallenge(answer, options)
    return { endpointId: challenge.endpointId, network: challenge.accepts[0].network }
  }
}

/** Reads the payment of a request. Returns a response if it can't be read. */
function readPresented(request: PaymentHeaders, resource: string): PresentedPayment | Answered {
  if (resource.length > maxResourceLength - maxOriginLength) {
    return refuse('uri_too_long', `A URL may have at most ${maxResourceLength - maxOriginLength} characters`)
  }
  try {
    return readPayment(request)
  } catch (error) {
    if (!(error instanceof BaseError)) throw error
    return refuse(error.code, error.message)
  }
}

/** @throws {TypeError} */
function requireBasePath({ basePath }: Pick<InnerGateOptions, 'basePath'>): void {
  if (!basePath || /^\/[^?#]*$/.test(basePath)) return
  throw new TypeError(`basePath must be a path like /api, got ${basePath}`)
}

/** Reads which pass the price buys. @throws {TypeError} for an invalid pass, or without the API key that selling passes requires. */
function readSoldPass({ pricing, apiKey, mockPayments }: InnerGateOptions): PassTerms | undefined {
  const pass = readPass(pricing)
  if (!pass || apiKey || mockPayments) return pass
  throw new TypeError('pricing.pass needs apiKey: only the provider sells passes for its endpoints')
}

async function voidServed(
  { payment, headers }: Served,
  voidPayment: (payment: VerifiedPayment) => Promise<Charged>,
): Promise<Charged['outcome']> {
  // `charge` also replaces the response's receipt. It returns false both for a refused charge and for a lost response. A retry of the same charge
  // shows which of the two it was.
  if (payment.tab) return (await payment.charge(0)) ? 'done' : 'unknown'
  const { outcome } = await voidPayment(payment)
  if (outcome === 'done') for (const name of Object.keys(headers)) delete headers[name]
  return outcome
}

/**
 * Returns a gate's memory. It keeps no responses if `answers` is false, or in mock mode. @throws {TypeError} for a store without a secret.
 */
function memoryOf(
  { answers = {}, apiKey, timeout = 10_000, mockPayments, memory }: NamedGateOptions,
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
  { gatewayUrl, providerId, endpointId = mockEndpoint }: NamedGateOptions,
  { request, pages, ...terms }: { request: GateRequest; pages: Pages; resource: string; split: Split },
): GateDecision {
  const mocked = { gatewayUrl, providerId, endpointId, ...terms }
  const charge: Charge = async (_, amount) =>
    amount <= terms.split.price ? { outcome: 'done', receipt: null } : { outcome: 'refused' }
  if (kind === 'mock') return toServe(mockPayment(mocked), charge)
  const challenge = mockChallenge(mocked)
  const isForPerson = kind === 'absent' && pages.isWanted(request)
  const answered = isForPerson ? pages.answer(request, challenge, {}) : undefined
  return answered ?? json(402, { ...challenge, error: 'Payment required (mock mode)' }, { Vary: 'Accept' })
}

export function requireProvider({
  gatewayUrl,
  providerId,
}: {
  gatewayUrl: string
  providerId: string
}): void {
  if (!URL.canParse(gatewayUrl)) throw new TypeError(`gatewayUrl must be a URL, got ${gatewayUrl}`)
  if (!providerId)
    throw new TypeError('providerId is missing: set it to the id that POST /providers returned')
}

/** The parts of a request that the gate reads. */
export function readRequest(
  request: Request,
  readBody: ReadBody = (max) => readCopy(request, max),
): GateRequest {
  const { method, url, headers } = request
  return {
    // Check only the method: in some runtimes, reading `request.body` first creates a complete request, which is expensive.
    readBody: method === 'GET' || method === 'HEAD' ? null : readBody,
    method,
    url,
    ...readHeaders((name) => headers.get(name)),
  }
}

/** Reads the headers that the gate uses. @param get returns a header by its lower-case name. */
export function readHeaders(get: (name: string) => string | null | undefined) {
  return {
    authorization: get('authorization'),
    paymentSignature: get('payment-signature'),
    xPayment: get('x-payment'),
    pass: get('service-pass'),
    accept: get('accept'),
    traceparent: get('traceparent'),
    forwardedProto: get('x-forwarded-proto'),
    forwardedHost: get('x-forwarded-host'),
    selection: selectionOf(get),
    headers: { get: (name: string) => get(name.toLowerCase()) ?? null },
  }
}

/** Reads a copy of the body. The handler reads the original. */
export async function readCopy(request: Request, maxBytes: number): Promise<Uint8Array | undefined> {
  if (request.bodyUsed) return undefined
  const { body } = request.clone()
  const read = body && (await readUpTo(body, maxBytes))
  return read === null ? new Uint8Array() : read
}

function serve({ body }: GatewayAnswer, x402Version: 1 | 2 | undefined, charge: Charge): GateDecision {
  const { verified, receipt, paymentId, paymentResponse, tab, pass } = (body ?? {}) as Record<string, unknown>
  if (verified !== true || typeof receipt !== 'string' || typeof paymentId !== 'string') {
    return unavailable('The gateway responded without a receipt')
  }
  const header = x402Version === 1 ? 'X-PAYMENT-RESPONSE' : 'PAYMENT-RESPONSE'
  const isResponse = x402Version && typeof paymentResponse === 'object' && paymentResponse !== null
  const bought = boughtPass(pass)
  const accepted = { verified, receipt, paymentId, ...(isTab(tab) && { tab }) } as const
  const served = toServe(
    { ...accepted, ...(bought && { pass: bought.pass }) },
    charge,
    isResponse ? { [header]: paymentResponse } : {},
  )
  Object.assign(served.headers, bought?.headers)
  return served
}

function isTab(tab: unknown): tab is NonNullable<VerifiedPayment['tab']> {
  const { id, sequence } = (tab ?? {}) as Record<string, unknown>
  return typeof id === 'string' && typeof sequence === 'number'
}

/** @param responses x402's response headers, by name. */
function toServe(
  accepted: Accepted,
  charge: Charge,
  responses: Record<string, object> = {},
): Extract<GateDecision, { kind: 'serve' }> {
  const headers: Record<string, string> = { [receiptHeader]: accepted.receipt }
  for (const [name, response] of Object.entries(responses)) headers[name] = encodePaymentHeader(response)
  const payment: VerifiedPayment = {
    ...accepted,
    charge: async (usdc) => {
      const amount = parseUsdc(usdc)
      const charged = await charge(accepted, amount)
      if (charged.outcome === 'refused') return false
      // It isn't known whether the price or the lower amount is charged, so report neither to the buyer.
      if (charged.outcome === 'unknown') {
        for (const name of [receiptHeader, chargedHeader, ...Object.keys(responses)]) delete headers[name]
        return false
      }
      headers[chargedHeader] = formatUsdc(amount)
      if (charged.receipt === null) delete headers[receiptHeader]
      else headers[receiptHeader] = charged.receipt
      // x402's own field for a charge that is lower than the price.
      for (const [name, response] of Object.entries(responses))
        headers[name] = encodePaymentHeader({ ...response, amount: amount.toString() })
      return true
    },
  }
  return { kind: 'serve', payment, headers }
}

/**
 * Returns the resource that a request pays for: a path and query, to which the gateway adds the registered endpoint's origin. The origin that a
 * request states, in `Host` or in proxies' headers, is never used.
 */
function resourceOf(url: string, { publicUrl, basePath = '' }: NamedGateOptions): string {
  const { protocol, pathname, search } = new URL(url)
  // An MCP tool's name is its complete resource. It doesn't depend on the server's URL.
  if (protocol === 'mcp:') return url
  return (publicUrl ? new URL(publicUrl).origin : '') + basePath.replace(/\/$/, '') + pathname + search
}

/**
 * Returns the response if the gateway returned no challenge. Forwards problems that the buyer can correct. For the provider's problems, returns a
 * 503.
 */
function refuseChallenge(
  answer: GatewayAnswer | undefined,
  { endpointId }: Pick<InnerGateOptions, 'endpointId'>,
): GateDecision {
  if (!answer || answer.status === 200) return unavailable('The gateway returned no challenge')
  // If no `endpointId` is configured, the buyer's path determines the endpoint. The gateway has no endpoint for this path, so a retry won't help.
  if (!endpointId && codeOf(answer) === 'unknown_endpoint') return passOn(answer)
  return [409, 429, 503].includes(answer.status) ? passOn(answer) : misconfigured(answer)
}

/** Forwards the gateway's problem+json, and the headers about when to try again. */
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

/** The gateway rejected the provider (for example for a wrong key or an unknown endpoint), so the buyer can only try again later. */
function misconfigured(answer: GatewayAnswer): GateDecision {
  const code = codeOf(answer)
  const reason = isErrorCode(code) ? code : `status ${answer.status}`
  return unavailable(`The gateway rejected this provider's request: ${reason}`)
}

function codeOf({ body }: GatewayAnswer): unknown {
  return ((body ?? {}) as { code?: unknown }).code
}
