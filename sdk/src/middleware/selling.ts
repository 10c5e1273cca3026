import { zeroAddress } from 'viem'
import { BaseError, type ErrorCode } from '../protocol/errors.ts'
import type { NetworkName } from '../protocol/networks.ts'
import type { ReadBody } from './answers.ts'
import { type BeforeAcceptOptions, claimOf, createHook, type HookDecision } from './beforeAccept.ts'
import type { RouteTerms } from './challenges.ts'
import { type GateDecision, refuse, unavailable } from './decision.ts'
import { mockEndpoint, mockNetwork } from './mock.ts'
import type { DeclaredOrigin } from './originCheck.ts'
import type { PaymentHeaders, PresentedPayment } from './presentedPayment.ts'
import { type BuyerRequest, createPrices, type Pricing, PricingError } from './pricing.ts'
import type { WaitUntil } from './recovery.ts'
import type { VerifiedPayment } from './verification.ts'
import type { Warnings } from './warnings.ts'

/** The parts of a request that the gate reads. */
export type GateRequest = PaymentHeaders &
  DeclaredOrigin & {
    method: string
    url: string
    accept?: string | null | undefined
    /** W3C Trace Context. The gateway continues this trace. */
    traceparent?: string | null | undefined
    /** Reads a copy of the body. Null if there is no body. Undefined if responses aren't kept. */
    readBody?: ReadBody | null
    /** The values of the headers that select a response. */
    selection?: string
    /** The value of `Service-Pass`, which replaces a payment. */
    pass?: string | null | undefined
    /** Headers that the seller's functions may read. Default: none. */
    headers?: BuyerRequest['headers']
    /** The arguments of an MCP tool's call, which the seller's functions may read. */
    arguments?: unknown
  }

/** A presented payment, and the price of its request. */
export type Presentation = {
  payment: Extract<PresentedPayment, { kind: 'payment' | 'tab' }>
  price: bigint | undefined
  waitUntil: WaitUntil | undefined
}

export type SellingOptions = BeforeAcceptOptions & {
  pricing?: Pricing
  endpointId?: string
  network?: NetworkName
}

/** The functions and facts with which the gate sells a request after the price is determined. */
export type SellingContext = {
  /** Timeout in ms of a seller's function that returns a price. */
  timeoutMs: number
  warnings: Pick<Warnings, 'tell'>
  /** Requests payment of this price. If a presented payment was refused, the response contains the reason. */
  demand: (
    request: GateRequest,
    resource: string,
    price: bigint | undefined,
    code?: ErrorCode,
    detail?: string,
  ) => Promise<GateDecision>
  verify: (request: GateRequest, resource: string, presented: Presentation) => Promise<GateDecision>
  /** Returns the response in mock mode. */
  mock: (request: GateRequest, resource: string, presented: PresentedPayment, price: bigint) => GateDecision
  /** Returns the endpoint and default network of the request's route, or the response to send if they aren't known. */
  termsOf: (
    request: GateRequest,
    resource: string,
    price: bigint | undefined,
  ) => Promise<RouteTerms | GateDecision>
}

/**
 * Sells requests according to the seller's decisions. It determines the price of each request, and calls the seller's hook before a 402 and before
 * the verification of a payment.
 *
 * @throws {ProtocolError} as `createPrices`.
 * @throws {TypeError} for a hook without a price.
 */
export function createSelling(options: SellingOptions, context: SellingContext) {
  const { warnings, demand, verify } = context
  const { beforeAccept, endpointId, network } = options
  const prices = createPrices(options.pricing, context.timeoutMs)
  if (beforeAccept && !options.pricing) throw new TypeError('beforeAccept needs pricing')
  const hook =
    beforeAccept && createHook(beforeAccept, options, (reason) => warnings.tell('hook_failed', reason))

  /** Determines the price of a request, and calls `then` with it. If the price can't be determined, nothing is sold. */
  async function withPrice(
    request: GateRequest,
    then: (price: bigint | undefined) => GateDecision | Promise<GateDecision>,
  ): Promise<GateDecision> {
    let price: bigint | undefined
    try {
      price = prices.fixed ?? (await prices.of(toBuyerRequest(request)))
    } catch (error) {
      if (!(error instanceof PricingError)) throw error
      warnings.tell('pricing_failed', error.message)
      return unavailable('The price of this request is not known')
    }
    return then(price)
  }

  async function ask(
    request: GateRequest,
    resource: string,
    price: bigint | undefined,
    code?: ErrorCode,
    detail?: string,
  ): Promise<GateDecision> {
    const sell = (agreed: bigint | undefined) => demand(request, resource, agreed, code, detail)
    if (!hook) return sell(price)
    const terms =
      endpointId && network ? { endpointId, network } : await context.termsOf(request, resource, price)
    if ('kind' in terms) return terms
    const decision = await hook.ask({
      payer: undefined,
      payment: undefined,
      endpoint: endpointId ?? terms.endpointId,
      amount: price as bigint,
      network: network ?? (terms.network as NetworkName),
      request: toBuyerRequest(request),
    })
    return follow(decision, price, sell)
  }

  async function pay(request: GateRequest, resource: string, presented: Presentation): Promise<GateDecision> {
    const { payment, price } = presented
    const sell = (agreed: bigint | undefined) => verify(request, resource, { ...presented, price: agreed })
    if (!hook) return sell(price)
    let claim: ReturnType<typeof claimOf>
    try {
      claim = claimOf(payment)
    } catch (error) {
      if (!(error instanceof BaseError)) throw error
      if (error.status !== 402) return refuse(error.code, error.message)
      return ask(request, resource, price, error.code)
    }
    const terms = endpointId ? { endpointId } : await context.termsOf(request, resource, price)
    if ('kind' in terms) return terms
    const question = {
      payer: claim.payer,
      payment: claim.name,
      endpoint: terms.endpointId,
      amount: claim.amount ?? (price as bigint),
      network: (claim.network ?? network) as NetworkName,
      request: toBuyerRequest(request),
    }
    return follow(await hook.ask(question, payment), price, sell)
  }

  async function mock(
    request: GateRequest,
    resource: string,
    presented: PresentedPayment,
    price: bigint,
  ): Promise<GateDecision> {
    const sell = (agreed: bigint | undefined) => context.mock(request, resource, presented, agreed as bigint)
    if (!hook) return sell(price)
    const isPaid = presented.kind === 'mock'
    const decision = await hook.ask({
      payer: isPaid ? zeroAddress : undefined,
      payment: isPaid ? 'mock' : undefined,
      endpoint: endpointId ?? mockEndpoint,
      amount: price,
      network: mockNetwork,
      request: toBuyerRequest(request),
    })
    return follow(decision, price, sell)
  }

  return {
    /** Requests payment, unless the seller's hook decides otherwise. */
    offer: (request: GateRequest, resource: string, code?: ErrorCode, detail?: string) =>
      withPrice(request, (price) => ask(request, resource, price, code, detail)),
    /** Verifies a presented payment, unless the seller's hook decides otherwise. */
    pay: (request: GateRequest, resource: string, presented: Omit<Presentation, 'price'>) =>
      withPrice(request, (price) => pay(request, resource, { ...presented, price })),
    /** Returns the response in mock mode, according to the hook's decision. The payer of a mock payment is the zero address. */
    mock: (request: GateRequest, resource: string, presented: PresentedPayment) =>
      withPrice(request, (price) => mock(request, resource, presented, price as bigint)),
  }
}

function toBuyerRequest({ method, url, headers = noHeaders, arguments: given }: GateRequest): BuyerRequest {
  return { method, url, headers, ...(given !== undefined && { arguments: given }) }
}

const noHeaders = { get: () => null }

/** @param sell called with the price in USDC base units, if the request is to be sold. */
async function follow(
  decision: HookDecision,
  price: bigint | undefined,
  sell: (price: bigint | undefined) => GateDecision | Promise<GateDecision>,
): Promise<GateDecision> {
  switch (decision.kind) {
    case 'accept':
      return sell(price)
    case 'price':
      return sell(decision.price)
    case 'free':
      return { kind: 'serve', payment: { ...noPayment }, headers: {} }
    case 'refuse':
      return refuse('payment_declined', decision.reason, undefined, {
        ...(decision.code !== undefined && { reason: decision.code }),
      })
    case 'failed':
      return refuse('decision_unavailable', 'The seller could not decide: nothing was charged. Try again', 1)
  }
}

/** The payment that the handler receives if a request is served for free. */
const noPayment: VerifiedPayment = {
  verified: true,
  free: true,
  receipt: '',
  paymentId: '',
  charge: async () => false,
}
