import type { Address } from 'viem'
import {
  type AcceptDecision,
  type ParsedDecision,
  parseAcceptDecision,
  paymentName,
} from '../protocol/acceptDecision.ts'
import { parseMacaroon } from '../protocol/macaroon.ts'
import { type NetworkName, networkByChainId } from '../protocol/networks.ts'
import { parsePayload } from '../protocol/payload.ts'
import { parseTabPayload } from '../protocol/tab.ts'
import type { PresentedPayment } from './presentedPayment.ts'
import { type BuyerRequest, within } from './pricing.ts'

/** The facts on which `beforeAccept` decides. */
export type AcceptRequest = {
  /**
   * The payer that the presented payment names. The gateway then requires this payer's signature, so no one else can pay in its name. Undefined: the
   * request has no payment, so it would get a 402.
   */
  payer: Address | undefined
  /** The endpoint's id at the gateway, `ep_…`. */
  endpoint: string
  /** The request's price or, if a payment is presented, the payment's amount, in USDC base units. */
  amount: bigint
  /** The network of the payment or, without a payment, the network that the 402 would offer. */
  network: NetworkName
  request: BuyerRequest
  /**
   * Identifies the presented payment. The value is the same each time the payment is presented, so that a quota can count it once. Undefined without
   * a payment.
   */
  payment: string | undefined
}

/** Decides whether to accept a request, refuse it, serve it for free, or sell it at another price. */
export type BeforeAccept = (question: AcceptRequest) => AcceptDecision | Promise<AcceptDecision>

export type BeforeAcceptOptions = {
  /**
   * Called before a 402 is created, and again before a presented payment is sent to the gateway. If it refuses a request or serves it for free, the
   * payment is never sent, so nothing is charged.
   *
   * If it accepts a presented payment, it isn't called again for that payment: a repeated request gets the same decision, and a kept response is sent
   * without a call. For free requests, it is called each time.
   */
  beforeAccept?: BeforeAccept
  /** Timeout in ms of `beforeAccept`. Default 2,000. */
  hookTimeout?: number
  /**
   * Reaction if `beforeAccept` throws, takes too long, or doesn't return a decision. `refuse`: the response is 503, and nothing is charged. `accept`:
   * the request is sold at its normal price. Default `refuse`.
   */
  onHookFailure?: 'refuse' | 'accept'
}

/** The hook's decision. `failed`: the hook made no decision, and nothing may be sold. */
export type HookDecision = ParsedDecision | { kind: 'failed' }

/** Maximum number of remembered decisions about presented payments, and their maximum age in ms. */
const maxRemembered = 1_000
const rememberedMs = 600_000

export type Hook = ReturnType<typeof createHook>

/**
 * Creates a hook that calls the seller's function with a timeout, and remembers its decisions about payments.
 *
 * @param onFailure called with a description of the failure.
 */
export function createHook(
  beforeAccept: BeforeAccept,
  { hookTimeout = 2_000, onHookFailure = 'refuse' }: Omit<BeforeAcceptOptions, 'beforeAccept'>,
  onFailure: (reason: string) => void,
) {
  const remembered = new Map<string, { decided: Promise<HookDecision>; until: number }>()

  async function ask(question: AcceptRequest): Promise<HookDecision> {
    try {
      return parseAcceptDecision(await within(hookTimeout, async () => beforeAccept(question)))
    } catch (error) {
      onFailure(error instanceof Error ? error.message : String(error))
      return { kind: onHookFailure === 'accept' ? 'accept' : 'failed' }
    }
  }

  /** Calls the seller's function about a presented payment, unless the function has already allowed this payment. */
  async function askOnce(key: string, question: AcceptRequest): Promise<HookDecision> {
    const known = remembered.get(key)
    if (known && known.until > Date.now()) {
      const decision = await known.decided
      if (isSale(decision)) return decision
    }
    const decided = ask(question)
    remembered.delete(key)
    if (remembered.size >= maxRemembered) remembered.delete(remembered.keys().next().value ?? '')
    remembered.set(key, { decided, until: Date.now() + rememberedMs })
    const decision = await decided
    // Don't remember this decision: the seller may accept a refused payment the next time, and decides about each free request separately.
    if (!isSale(decision) && remembered.get(key)?.decided === decided) remembered.delete(key)
    return decision
  }

  return {
    /** @param payment the presented payment, whose payer is `question.payer`. */
    async ask(question: AcceptRequest, payment?: Presented): Promise<HookDecision> {
      return payment ? askOnce(nameOf(payment, question.request), question) : ask(question)
    },
  }
}

type Presented = Extract<PresentedPayment, { kind: 'payment' | 'tab' }>

function isSale({ kind }: HookDecision): boolean {
  return kind === 'accept' || kind === 'price'
}

/** Returns a key for a payment and its request, so that no other request gets the same decision. */
function nameOf(payment: Presented, { method, url, arguments: given }: BuyerRequest): string {
  const signed = payment.kind === 'tab' ? payment.tab : payment.payloads
  return JSON.stringify([payment.macaroon, signed, method, url, given])
}

/** Facts about a presented payment, read from the payment itself. They are unverified: the gateway verifies the payment later. */
export type Claim = {
  payer: Address
  /** The name that {@link paymentName} returns for this payment. */
  name: string
  amount: bigint | undefined
  network: NetworkName | undefined
}

/**
 * Reads the payer, the amount and the network from an unverified payment.
 *
 * @throws {ProtocolError} `invalid_payload`, `macaroon_invalid`, `unknown_network`
 */
export function claimOf(payment: Presented): Claim {
  const terms = payment.macaroon === undefined ? undefined : parseMacaroon(payment.macaroon).terms
  const network = terms && networkByChainId(terms.chainId).name
  if (payment.kind === 'tab') {
    const { payer, tabId, sequence } = parseTabPayload(payment.tab)
    const amount = terms && terms.amount + terms.feeAmount
    const name = paymentName(payer, `${tabId}:${sequence}`)
    return { payer, name, amount, network: network ?? payment.network }
  }
  const [first, second] = payment.payloads
  const { from, value, nonce } = parsePayload(first)
  const amount = value + (second === undefined ? 0n : parsePayload(second).value)
  return { payer: from, name: paymentName(from, nonce), amount, network: network ?? payment.x402?.network }
}
