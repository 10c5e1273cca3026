import { hash } from 'node:crypto'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import { createAccept } from '@tollkeeper/ledger/acceptance/acceptance'
import { checkSignatures, type SignatureCheckOptions } from '@tollkeeper/ledger/acceptance/checkSignatures'
import { type Checked, checkPresented, type Presented, toCandidate } from '@tollkeeper/ledger/acceptance/door'
import {
  findPaymentOfRequest,
  findStoredPayment,
  type StoredPayment,
} from '@tollkeeper/ledger/acceptance/storedPayment'
import type { Database } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { maxAmount } from '@tollkeeper/sdk/protocol/amount'
import type { Deployment } from '@tollkeeper/sdk/protocol/deployments'
import { BaseError, type ErrorCode } from '@tollkeeper/sdk/protocol/errors'
import { type Network, networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { parsePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { splitterOf } from '@tollkeeper/sdk/protocol/splitter'
import { effectiveRate, splitPrice } from '@tollkeeper/sdk/protocol/tier'
import type { Address, Hash } from 'viem'
import { Refusal } from '../../http/refusal.ts'
import type { Offer } from '../../registry/offers.ts'
import type { ReceiptKeys } from '../receipts/keys.ts'
import { type ReceiptFacts, receiptClaims } from '../receipts/receiptClaims.ts'
import { signReceipt } from '../receipts/signReceipt.ts'
import { boundNonces, checkPayment, type PaymentTerms } from './checkPayment.ts'
import { findTerms, type TermsOptions, type TermsRequest, type VerifyNetwork } from './paymentTerms.ts'
import type { ProviderCap } from './providerCap.ts'
import { gasOfShortWindow, patientSeconds } from './shortWindow.ts'

export type VerifyRequest = PurchaseRequest & {
  /** The provider's and the platform's payload, or one for both. */
  payloads: readonly [string, string?]
}

/** A verification's request, for any kind of payment. */
export type PurchaseRequest = TermsRequest & {
  idempotencyKey: string | undefined
  /** Only asks for the answer that it had; accepts nothing. */
  isAboutStored?: boolean
  /** After how long the caller has stopped waiting. */
  waitMs?: number | undefined
}

export type VerifyAnswer = {
  paymentId: string
  requestId: string
  receipt: string
  /** The transaction that settled it, if that was awaited. */
  transactionHash?: Hash | undefined
}

/** `price` in USDC base units. */
type Accepted = VerifyAnswer & { price: bigint }

export type VerifyOptions = SignatureCheckOptions &
  TermsOptions & {
    sql: Database
    providerCap: ProviderCap
    gasAllowance: bigint
    /** Counts a verification for a payer whose signatures are good; throws over its limit. */
    countPayer: (payer: Address) => void
    /** The gateway's public URL: bound into nonces, and the receipts' `iss`. */
    issuer: string
    receiptKeys: ReceiptKeys
    now: () => number
  }

/** What the steps of a verification work with. */
type VerifyContext = VerifyOptions & { accept: ReturnType<typeof createAccept> }

/** Builds the function behind `POST /verify`: the checks in order, the reservation, the receipt. */
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
    const admissible = await check(context, request, presented, acceptedAt)
    return await reserve(context, request, presented, { ...admissible, deadlineMs })
  } catch (error) {
    // A payment that was accepted may be refused the second time: it expired, was used on chain, or took its own balance.
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
  /** The recipient of one authorization for both parts; null: each part has its own. */
  splitter: Address | null
  checked: readonly [Checked, Checked?]
  acceptedAt: number
}

/** How late an answer may be: `Prefer: wait` has whole seconds, and leaves one for the answer's way back. */
const answerMs = 500

/** Until when the caller of a new request waits for its answer, by `performance.now()`. */
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
  // Without the operator's own minimum: challenges from before it was raised are honoured.
  if (terms.amount + terms.feeAmount < network.served.network.minimumPrice)
    throw new Refusal('price_below_minimum', 'A price of less is paid by a tab, since it settles with others')
  const splitter = second ? null : findSplitter(terms, network.served.deployment)
  checkPayment(presented, terms, splitter, seconds)

  const offer = await findVerifiedOffer(context, request, network)
  const isBound = boundNonces(presented, context.issuer, terms.requestId)
  // A bound nonce can belong to no other payment, so that it is unused matters only as much as the balance, and is
  // read as often.
  const asksNonces = isBound.includes(false) || !network.payers.isCached(first.from)
  const [checked] = await Promise.all([
    checkPresented(presented, network, { ...context, isBound, asksNonces }),
    // If the payee was blacklisted since the challenge, the payment would fail again and again, or stay in a splitter.
    network.payees.requirePayable(terms.payTo),
    splitter && network.payees.requirePayable(splitter),
  ])
  return { terms, network, offer, splitter, checked, acceptedAt }
}

/**
 * The offer of an endpoint, for whoever verifies for it.
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
      'This provider wants its API key with every verification',
    )
  }
  return offer
}

/** @throws {Refusal} `challenge_price_too_low` if the provider asks for more now. */
export function requirePrice({ amount, feeAmount }: PaymentTerms, { price: asked }: TermsRequest): void {
  const price = amount + feeAmount
  if (asked === undefined || price >= asked) return
  throw new Refusal('challenge_price_too_low', undefined, {
    details: { asked: asked.toString(), challenged: price.toString() },
  })
}

/** Signs the receipt and stores the payment, unless its authorizations or its balance are another's already. */
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
  const { requestId } = terms
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
    },
    checked,
  )
  const verdict = await accept(candidate, payers, checked[0].state, deadlineMs).catch(unlessShort)
  if (verdict === 'accepted') {
    providerCap.add(request.providerId, served.network.testnet, total)
    return { paymentId, requestId, receipt, price }
  }
  const stored =
    (await findPaymentOfRequest(sql, requestId)) ?? (await findByAuthorization(context, presented))
  // The payment that held it was rolled back since.
  if (stored === undefined)
    throw new Refusal('dependency_unavailable', 'A concurrent request was undone: try again')
  return answerAgain(context, stored, request, presented)
}

/** Only short windows draw for their gas, so a longer one would be accepted: the error says so. */
function unlessShort(error: unknown): never {
  if (!(error instanceof BaseError && error.code === 'gas_not_covered')) throw error
  throw new Refusal(
    'authorization_expires_too_soon',
    `Authorizations must be valid for another ${patientSeconds} seconds: nothing is left today for the gas of what can't wait so long`,
    { cause: error },
  )
}

function earliestEnd([first, second]: Presented): bigint {
  return second && second.validBefore < first.validBefore ? second.validBefore : first.validBefore
}

/**
 * Whether macaroon and signatures are good, at any time. Payer and nonce are public once they are on chain, so only
 * a caller who shows this much may learn that their payment exists.
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

/** Answers a used challenge or authorization: the same request gets its answer again, any other one 409. */
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
    // The signature is public once it is on chain, and without a macaroon nothing else was shown.
    const details = request.macaroon === undefined ? {} : { paymentId }
    throw new Refusal('payment_replayed', undefined, { details })
  }
  const { providerId, endpointId } = request
  const [network, acceptedAt] = [networkByChainId(stored.chainId), stored.acceptedAt.getTime()]
  const receipt = receiptOf(context, { ...stored, providerId, endpointId, network, acceptedAt }, presented)
  return { paymentId, requestId, receipt, price }
}

/**
 * The receipt of an accepted payment. It isn't stored but signed again on demand, with the same claims. ES256 draws a number
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

/** Refusals that a repeated request may get although it was accepted before. */
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
  'payer_quarantined',
  'payer_blacklisted',
  'token_paused',
])

/**
 * A challenge may be older than the registration, and keeps its terms. But it can't pay with test money any more once the
 * endpoint is for real money or disabled, as when it was replaced for production.
 *
 * @throws {Refusal} `challenge_network_mismatch`; or that the endpoint or provider is disabled
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

/** @throws {Refusal} `amount_too_high` for a price that no splitter divides */
function findSplitter(terms: PaymentTerms, { splitterFactory }: Deployment): Address {
  const splitter = splitterOf(terms, splitterFactory, keccak256)
  if (splitter === undefined) throw new Refusal('amount_too_high')
  return splitter.address
}

/**
 * Hashes everything that decides what is charged, and for what: equal for equal requests.
 *
 * @param signed what the buyer signed, as JSON.
 */
export function hashRequest(
  { macaroon, providerId, endpointId, price, network }: PurchaseRequest,
  signed: unknown,
): string {
  return hash(
    'sha256',
    JSON.stringify([macaroon, signed, providerId, endpointId, price?.toString() ?? null, network ?? null]),
  )
}
