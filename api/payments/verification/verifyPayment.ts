import { hash } from 'node:crypto'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import { createAccept } from '@tollkeeper/ledger/acceptance/acceptance'
import { checkSignatures, type SignatureCheckOptions } from '@tollkeeper/ledger/acceptance/checkSignatures'
import {
  type Checked,
  checkPresented,
  type Presented,
  type Screen,
  toCandidate,
} from '@tollkeeper/ledger/acceptance/door'
import {
  findPaymentOfRequest,
  findStoredPayment,
  type StoredPayment,
} from '@tollkeeper/ledger/acceptance/storedPayment'
import type { Hooks, PaymentHookRequest } from '@tollkeeper/ledger/hooks/askHook'
import { findPass } from '@tollkeeper/ledger/passes/passes'
import type { SalesSwitch } from '@tollkeeper/ledger/registry/salesStop'
import type { Database } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { paymentName } from '@tollkeeper/sdk/protocol/acceptDecision'
import { maxAmount } from '@tollkeeper/sdk/protocol/amount'
import type { Deployment } from '@tollkeeper/sdk/protocol/deployments'
import { BaseError, type ErrorCode } from '@tollkeeper/sdk/protocol/errors'
import { parseMacaroon } from '@tollkeeper/sdk/protocol/macaroon'
import { type Network, networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { isSamePass } from '@tollkeeper/sdk/protocol/passTerms'
import { parsePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { splitterOf } from '@tollkeeper/sdk/protocol/splitter'
import { effectiveRate, splitPrice } from '@tollkeeper/sdk/protocol/tier'
import type { Address, Hash } from 'viem'
import { Refusal } from '../../http/refusal.ts'
import type { Offer } from '../../registry/offers.ts'
import { type SoldPass, signPass } from '../passes/signPass.ts'
import type { ReceiptKeys } from '../receipts/keys.ts'
import { type ReceiptFacts, receiptClaims } from '../receipts/receiptClaims.ts'
import { signReceipt } from '../receipts/signReceipt.ts'
import { boundNonces, checkPayment, type PaymentTerms } from './checkPayment.ts'
import type { NotePrice } from './notePrice.ts'
import { findTerms, type TermsOptions, type TermsRequest, type VerifyNetwork } from './paymentTerms.ts'
import type { ProviderCap } from './providerCap.ts'
import { gasOfShortWindow, patientSeconds } from './shortWindow.ts'

export type VerifyRequest = PurchaseRequest & {
  /** The payloads for provider and platform, or one payload that contains both parts. */
  payloads: readonly [string, string?]
}

/** The request of a verification, for any kind of payment. */
export type PurchaseRequest = TermsRequest & {
  idempotencyKey: string | undefined
  /** Whether the request only asks for the answer that it got before; then nothing is accepted. */
  isAboutStored?: boolean
  /** Time after which the caller has stopped waiting. */
  waitMs?: number | undefined
}

export type VerifyAnswer = {
  paymentId: string
  requestId: string
  receipt: string
  /** The pass that the payment bought, as JWS compact. */
  pass?: string
  /** The transaction that settled the payment, if the answer waited for it. */
  transactionHash?: Hash | undefined
}

/** `price` in USDC base units. */
type Accepted = VerifyAnswer & { price: bigint }

export type VerifyOptions = SignatureCheckOptions &
  TermsOptions & {
    sql: Database
    providerCap: ProviderCap
    sales: SalesSwitch
    gasAllowance: bigint
    hooks: Pick<Hooks, 'require'>
    /** Counts a verification for a payer whose signatures are valid; throws over the limit. */
    countPayer: (payer: Address) => void
    /** The gateway's public URL, which is bound into nonces and is the `iss` of receipts. */
    issuer: string
    receiptKeys: ReceiptKeys
    notePrice: NotePrice
    now: () => number
  }

/** The context that all steps of a verification share. */
type VerifyContext = VerifyOptions & { accept: ReturnType<typeof createAccept> }

/** Creates the function behind `POST /verify`. It runs the checks in order, stores the payment and signs the receipt. */
export function createVerifyPayment(
  options: VerifyOptions,
): (request: VerifyRequest) => Promise<VerifyAnswer> {
  const context: VerifyContext = { ...options, accept: createAccept(options.sql) }
  const { settleBeforeServe } = options
  return async (request) => {
    const { price, ...answer } = await verifyOrRepeat(context, request)
    if (!settleBeforeServe.appliesTo(price)) return answer
    return { ...answer, transactionHash: await settleBeforeServe.wait(answer.paymentId, request) }
  }
}

async function verifyOrRepeat(context: VerifyContext, request: VerifyRequest): Promise<Accepted> {
  const [first, second] = request.payloads
  const presented: Presented =
    second === undefined ? [parsePayload(first)] : [parsePayload(first), parsePayload(second)]
  const acceptedAt = context.now()
  const deadlineMs = deadlineOf(request)
  if (request.isAboutStored) {
    const stored =
      (await isAuthentic(context, request, presented)) && (await findByAuthorization(context, presented))
    if (!stored) throw new Refusal('unknown_payment')
    return answerAgain(context, stored, request, presented)
  }
  try {
    await context.sales.requireOpen()
    const admissible = await check(context, request, presented, acceptedAt)
    return await reserve(context, request, presented, { ...admissible, deadlineMs })
  } catch (error) {
    // A payment that was accepted may fail these checks the second time, because it has expired, was used on chain, or its own reservation leaves too
    // little balance.
    const mayBeStored =
      error instanceof BaseError &&
      (request.idempotencyKey !== undefined || timeDependentCodes.has(error.code))
    if (!mayBeStored || !(await isAuthentic(context, request, presented))) throw error
    const stored = await findByAuthorization(context, presented)
    if (stored === undefined) throw error
    return answerAgain(context, stored, request, presented)
  }
}

type Admissible = {
  terms: PaymentTerms
  network: VerifyNetwork
  offer: Offer
  /** The recipient of one authorization for both parts; null: each part has a separate authorization. */
  splitter: Address | null
  checked: readonly [Checked, Checked?]
  acceptedAt: number
}

/**
 * Extra time in ms after the caller's `Prefer: wait` in which an answer may still be sent. The preference is in whole seconds, and
 * middleware keeps one second of its waiting time for the answer's transmission.
 */
const answerMs = 500

/** Returns the time, by `performance.now()`, until which the caller of a new request waits for the answer; undefined if it has no limit. */
export function deadlineOf({ waitMs }: Pick<PurchaseRequest, 'waitMs'>): number | undefined {
  return waitMs === undefined ? undefined : performance.now() + waitMs + answerMs
}

/** @throws {ProtocolError|Refusal} for the first fault; until then nothing is stored. */
async function check(
  context: VerifyContext,
  request: VerifyRequest,
  presented: Presented,
  acceptedAt: number,
): Promise<Admissible> {
  const [first, second] = presented
  const seconds = Math.floor(acceptedAt / 1000)
  if (first.value + (second?.value ?? 0n) > maxAmount) throw new Refusal('amount_too_high')

  const { terms, network } = await findTerms(context, request, presented, seconds)
  requirePrice(terms, request)
  requirePass(terms, request)
  // Ignores the operator's own minimum, because challenges from before it was raised are honored.
  if (terms.amount + terms.feeAmount < network.served.network.minimumPrice)
    throw new Refusal('price_below_minimum', 'This price is too low to be paid individually: pay it on a tab')
  const splitter = second ? null : findSplitter(terms, network.served.deployment)
  checkPayment(presented, terms, splitter, seconds)

  const offer = await findVerifiedOffer(context, request, network)
  const isBound = boundNonces(presented, context.issuer, terms.requestId)
  // A bound nonce can't belong to another payment, but its payer may have cancelled it. That is no worse than a spent balance, so bound nonces are
  // read only as often as the balance.
  const asksNonces = isBound.includes(false) || !network.payers.isCached(first.from)
  const { payerSignatures, contractTimeoutMs, countPayer } = context
  const [checked] = await Promise.all([
    checkPresented(presented, network, {
      payerSignatures,
      contractTimeoutMs,
      countPayer,
      isBound,
      asksNonces,
      screen: screenOf(context, request, offer, {
        source: 'verify',
        payer: first.from,
        payment: paymentName(first.from, first.nonce),
        amount: terms.amount + terms.feeAmount,
        network: network.served.network.name,
      }),
    }),
    // If the payee was blacklisted after the challenge, the payment would keep failing, or stay in a splitter.
    network.payees.requirePayable(terms.payTo),
    splitter && network.payees.requirePayable(splitter),
  ])
  return { terms, network, offer, splitter, checked, acceptedAt }
}

/**
 * Returns the offer of an endpoint, if the caller may verify payments for it.
 *
 * @throws {Refusal} as {@link requireAcceptedNetwork}; `unauthorized`, `forbidden`
 */
export async function findVerifiedOffer(
  { offers }: Pick<TermsOptions, 'offers'>,
  request: TermsRequest,
  network: VerifyNetwork,
): Promise<Offer> {
  const offer = await offers.ofEndpoint(request.endpointId)
  if (offer === undefined) throw new Refusal('unknown_endpoint')
  requireAcceptedNetwork(request, offer, network.served.network)
  if (offer.requiresKey && request.caller !== request.providerId) {
    throw new Refusal(
      request.caller === undefined ? 'unauthorized' : 'forbidden',
      'This provider requires its API key for every verification',
    )
  }
  return offer
}

/** Returns the function that asks the hook of an offer's provider about a payment; null if the provider has no hook. */
export function screenOf(
  { hooks }: Pick<VerifyOptions, 'hooks'>,
  { providerId, endpointId }: TermsRequest,
  { hasHook, url }: Offer,
  facts: Pick<PaymentHookRequest, 'source' | 'payer' | 'payment' | 'amount' | 'network'>,
): Screen | null {
  if (!hasHook) return null
  return () =>
    hooks.require({ moment: 'payment', providerId, endpointId, resource: url, request: null, ...facts })
}

/** @throws {Refusal} `challenge_price_too_low` if the provider now requests more. */
export function requirePrice({ amount, feeAmount }: PaymentTerms, { price: asked }: TermsRequest): void {
  const price = amount + feeAmount
  if (asked === undefined || price >= asked) return
  throw new Refusal('challenge_price_too_low', undefined, {
    details: { asked: asked.toString(), challenged: price.toString() },
  })
}

/**
 * Requires that the challenge and the middleware sell the same pass, so that neither of them can extend the pass alone.
 *
 * @throws {Refusal} `pass_mismatch`
 */
export function requirePass({ pass: challenged }: PaymentTerms, { pass: sold }: TermsRequest): void {
  if (isSamePass(challenged, sold)) return
  throw new Refusal('pass_mismatch', undefined, {
    details: { sold: sold ?? null, challenged: challenged ?? null },
  })
}

/**
 * Requires that the payer's own key signed the payment. Middleware later verifies the payer's proofs without a node, so it can't ask a contract.
 *
 * @throws {Refusal} `pass_payer_unsupported`, before anything is stored.
 */
async function requireOwnKey(
  { payerSignatures }: VerifyContext,
  { served }: VerifyNetwork,
  presented: Presented,
): Promise<void> {
  const signed = presented.filter((one) => one !== undefined)
  const areOwn = await payerSignatures(served.domainSeparator, signed)
  if (areOwn.includes(false)) throw new Refusal('pass_payer_unsupported')
}

/** Signs the receipt and stores the payment, unless its authorizations are already used, or the payer's balance is reserved for other payments. */
async function reserve(
  context: VerifyContext,
  request: VerifyRequest,
  presented: Presented,
  {
    terms,
    network,
    offer,
    splitter,
    checked,
    acceptedAt,
    deadlineMs,
  }: Admissible & { deadlineMs: number | undefined },
): Promise<Accepted> {
  const { sql, feeSchedule, providerCap, accept } = context
  const { served, payers } = network
  const [first, second] = presented
  const { requestId, pass } = terms
  if (pass?.boundTo === 'payer') await requireOwnKey(context, network, presented)
  const price = terms.amount + terms.feeAmount
  const paymentId = newId('pay')
  const payment = {
    paymentId,
    providerId: request.providerId,
    endpointId: request.endpointId,
    tier: splitPrice(price, feeSchedule).tier,
    effectiveRate: effectiveRate(price, terms.feeAmount),
    acceptedAt,
    token: served.token,
    payer: first.from,
    resource: offer.url,
    payee: terms.payTo,
    feeRecipient: terms.feePayTo,
    providerAmount: second ? first.value : terms.amount,
    feeAmount: second ? second.value : terms.feeAmount,
    splitter,
  }
  const receipt = receiptOf(context, { ...payment, network: served.network }, presented)

  const total = payment.providerAmount + payment.feeAmount
  await providerCap.require(request.providerId, served.network.testnet, total)
  const gas = await gasOfShortWindow(network, context, {
    entry: { isPair: second !== undefined, recipient: splitter ?? terms.payTo, hasCode: checked[0].hasCode },
    fee: payment.feeAmount,
    providerId: request.providerId,
    validForSeconds: Number(earliestEnd(presented)) - acceptedAt / 1000,
  })
  const { paymentId: id, payer: _, ...facts } = payment
  const candidate = toCandidate(
    {
      ...facts,
      id,
      source: 'gateway',
      requestId,
      chainId: terms.chainId,
      price,
      first: { stage: 'waiting' },
      idempotencyKey: request.idempotencyKey ?? null,
      requestHash: hashRequest(request, request.payloads),
      challengedAt: terms.mintedAt * 1000,
      ...(gas && { gas }),
      ...(pass && { pass }),
    },
    checked,
  )
  const verdict = await accept(candidate, payers, checked[0].state, deadlineMs).catch(unlessShort)
  if (verdict === 'accepted') {
    context.notePrice(offer, price)
    providerCap.add(request.providerId, served.network.testnet, total)
    const sold = pass && { ...payment, ...pass, startsAt: acceptedAt }
    return { paymentId, requestId, receipt, price, ...(sold && { pass: passOf(context, sold) }) }
  }
  const stored =
    (await findPaymentOfRequest(sql, requestId)) ?? (await findByAuthorization(context, presented))
  // The payment that held the challenge or an authorization has been rolled back since.
  if (stored === undefined)
    throw new Refusal('dependency_unavailable', 'A concurrent request was rolled back: try again')
  return answerAgain(context, stored, request, presented)
}

/** Explains a refusal for lack of gas: only authorizations with a short validity use the allowance, so a longer validity would be accepted. */
function unlessShort(error: unknown): never {
  if (!(error instanceof BaseError && error.code === 'gas_not_covered')) throw error
  throw new Refusal(
    'authorization_expires_too_soon',
    `Authorizations must be valid for another ${patientSeconds} seconds: the gas allowance for shorter ones is used up today`,
    { cause: error },
  )
}

function earliestEnd([first, second]: Presented): bigint {
  return second && second.validBefore < first.validBefore ? second.validBefore : first.validBefore
}

/**
 * Returns whether macaroon and signatures are valid, even if the macaroon has expired. Payer and nonce are public once they are on chain, so
 * only a caller who shows macaroon and signatures may learn that the payment exists.
 */
async function isAuthentic(
  context: VerifyContext,
  request: VerifyRequest,
  presented: Presented,
): Promise<boolean> {
  try {
    const { network } = await findTerms(context, request, presented, 0)
    await checkSignatures(presented as readonly SignedAuthorization[], network, {
      ...context,
      asksNonces: false,
    })
    return true
  } catch {
    return false
  }
}

/** Answers a request whose challenge or authorization was used before: the request that used it gets its answer again, any other request gets 409. */
async function answerAgain(
  context: VerifyContext,
  stored: StoredPayment,
  request: VerifyRequest,
  presented: Presented,
): Promise<Accepted> {
  const { paymentId, requestId, price, releasedAt } = stored
  const isTheirs =
    stored.requestHash === hashRequest(request, request.payloads) &&
    (releasedAt === null
      ? request.idempotencyKey !== undefined && stored.idempotencyKey === request.idempotencyKey
      : await context.settleBeforeServe.takeOver(paymentId, request.idempotencyKey))
  if (!isTheirs || requestId === null) {
    // The signature is public once it is on chain, and without a macaroon it is all that the caller has shown.
    const details = request.macaroon === undefined ? {} : { paymentId }
    throw new Refusal('payment_replayed', undefined, { details })
  }
  const { providerId, endpointId } = request
  const [network, acceptedAt] = [networkByChainId(stored.chainId), stored.acceptedAt.getTime()]
  const receipt = receiptOf(context, { ...stored, providerId, endpointId, network, acceptedAt }, presented)
  const pass = await passAgain(context, paymentId, request)
  return { paymentId, requestId, receipt, price, ...(pass !== undefined && { pass }) }
}

/** Signs the pass of a payment that was accepted before, with the same claims. */
async function passAgain(
  context: VerifyContext,
  paymentId: string,
  { macaroon }: VerifyRequest,
): Promise<string | undefined> {
  if (macaroon === undefined || parseMacaroon(macaroon).terms.pass === undefined) return undefined
  const [stored, { offers }] = [await findPass(context.sql, paymentId), context]
  const offer = stored && (await offers.ofEndpoint(stored.endpointId))
  if (!stored || !offer) return undefined
  const startsAt = stored.startsAt.getTime()
  const seconds = Math.floor(stored.endsAt.getTime() / 1000) - Math.floor(startsAt / 1000)
  const { requests, ...sold } = stored
  return passOf(context, {
    ...sold,
    resource: offer.url,
    startsAt,
    seconds,
    ...(requests !== null && { requests }),
  })
}

function passOf({ issuer, receiptKeys }: VerifyContext, sold: SoldPass): string {
  return signPass(sold, { issuer, key: receiptKeys.current })
}

/**
 * Signs the receipt of an accepted payment. It isn't stored but signed again on demand, with the same claims. ES256 uses a random number
 * for each signature, so its bytes differ.
 */
function receiptOf(
  { issuer, receiptKeys }: VerifyContext,
  payment: Omit<ReceiptFacts, 'validBefore' | 'provider' | 'fee'>,
  presented: Presented,
): string {
  const [first, second] = presented
  const claims = receiptClaims(
    {
      ...payment,
      validBefore: earliestEnd(presented),
      provider: toSigned(first),
      fee: second ? toSigned(second) : null,
    },
    { issuer, signedAt: payment.acceptedAt, status: 'verified' },
  )
  return signReceipt(claims, receiptKeys.current)
}

async function findByAuthorization(
  { sql, networks }: VerifyContext,
  [first, second]: Presented,
): Promise<StoredPayment | undefined> {
  return findStoredPayment(sql, {
    tokens: [...networks.values()].map(({ served }) => ({
      chainId: served.network.chainId,
      token: served.token,
    })),
    payer: first.from,
    nonces: second ? [first.nonce, second.nonce] : [first.nonce],
  })
}

/** Codes of refusals that a repeated request may get although it was accepted before. */
const timeDependentCodes: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'macaroon_expired',
  'challenge_network_mismatch',
  'endpoint_disabled',
  'provider_disabled',
  'authorization_expired',
  'authorization_expires_too_soon',
  'authorization_used',
  'insufficient_balance',
  'payer_limit_exceeded',
  'payer_in_debt',
  'payer_blocked',
  'payer_blacklisted',
  'token_paused',
  'sales_stopped',
  'payment_declined',
  'decision_unavailable',
])

/**
 * Rejects a payment if the endpoint no longer accepts its kind of money, test or real, or if the caller accepts only another network. Test money is
 * also rejected if the endpoint is disabled, because a production endpoint may have replaced it. In all other cases, a challenge keeps its terms even
 * if the registration has changed since.
 *
 * @throws {Refusal} `challenge_network_mismatch`; `endpoint_disabled` or `provider_disabled`
 */
function requireAcceptedNetwork(
  { network: asked }: TermsRequest,
  { payees, disabled }: Offer,
  { chainId, name, testnet }: Network,
): void {
  const isKept = payees.some((payee) => networkByChainId(payee.chainId).testnet === testnet)
  if (!isKept || (asked !== undefined && asked !== chainId)) {
    throw new Refusal('challenge_network_mismatch', undefined, { details: { challenged: name } })
  }
  if (testnet && disabled !== null) throw new Refusal(disabled)
}

function toSigned({ to: recipient, value, nonce }: SignedAuthorization) {
  return { recipient, value, nonce }
}

/** @throws {Refusal} `amount_too_high` for a price that no splitter can divide */
function findSplitter(terms: PaymentTerms, { splitterFactory }: Deployment): Address {
  const splitter = splitterOf(terms, splitterFactory, keccak256)
  if (splitter === undefined) throw new Refusal('amount_too_high')
  return splitter.address
}

/**
 * Hashes everything that determines the charge and the purchase. Equal requests have equal hashes.
 *
 * @param signed what the buyer signed, as JSON.
 */
export function hashRequest(
  { macaroon, providerId, endpointId, price, pass, network }: PurchaseRequest,
  signed: unknown,
): string {
  return hash(
    'sha256',
    JSON.stringify([
      macaroon,
      signed,
      providerId,
      endpointId,
      price?.toString() ?? null,
      network ?? null,
      ...(pass ? [pass.seconds, pass.requests ?? null, pass.boundTo] : []),
    ]),
  )
}
