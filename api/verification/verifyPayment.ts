import { hash } from 'node:crypto'
import type { Address } from 'viem'
import type { ChainReads, PayerState } from '#chain/chainReads'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { AcceptedAuthorization } from '#ledger/acceptPayments'
import { checkSignatures, type SignatureCheckOptions } from '#ledger/checkSignatures'
import type { Database } from '#ledger/database'
import type { Payers } from '#ledger/payers'
import { maxAmount } from '#protocol/amount'
import { BaseError, type ErrorCode } from '#protocol/errors'
import { type MacaroonSecret, type MacaroonTerms, verifyMacaroon } from '#protocol/macaroon'
import type { Network } from '#protocol/networks'
import { parsePayload, type SignedAuthorization } from '#protocol/payload'
import { effectiveRate, type FeeSchedule, splitPrice } from '#protocol/tier'
import { hmacSha256 } from '../hmac.ts'
import { newId } from '../identifiers.ts'
import type { ReceiptKeys } from '../receipts/keys.ts'
import { receiptClaims } from '../receipts/receiptClaims.ts'
import { signReceipt } from '../receipts/signReceipt.ts'
import { Refusal } from '../refusal.ts'
import type { Offer, Offers } from '../registry/offers.ts'
import { createAccept } from './acceptance.ts'
import { boundNonces, checkPayment, type Presented } from './checkPayment.ts'
import type { ProviderCap } from './providerCap.ts'
import type { SettleBeforeServe } from './settleBeforeServe.ts'
import { findPaymentOfRequest, findStoredPayment, type StoredPayment } from './storedPayment.ts'

export type VerifyRequest = {
  macaroon: string
  payloads: [provider: string, fee: string]
  providerId: string
  endpointId: string
  /** What the provider's middleware asks for now, USDC base units. */
  price: bigint | undefined
  /** The chain id of the only network that the provider's middleware accepts, where it names one. */
  network: number | undefined
  idempotencyKey: string | undefined
  /** The provider whose API key came along. */
  caller: string | undefined
}

export type VerifyAnswer = { paymentId: string; requestId: string; receipt: string }

/** `price` in USDC base units. */
type Accepted = VerifyAnswer & { price: bigint }

export type VerifyNetwork = { served: ServedNetwork; reads: ChainReads; payers: Payers }

export type VerifyDeps = SignatureCheckOptions & {
  database: Database
  networks: ReadonlyMap<number, VerifyNetwork>
  offers: Offers
  providerCap: ProviderCap
  settleBeforeServe: SettleBeforeServe
  /** Counts a verification of a payer whose signatures are good; throws over its limit. */
  countPayer: (payer: Address) => void
  /** The gateway's public URL: bound into nonces, and the receipts' `iss`. */
  issuer: string
  macaroonSecrets: readonly MacaroonSecret[]
  /** Unix seconds: macaroons minted earlier are refused. */
  macaroonNotBefore: number
  receiptKeys: ReceiptKeys
  feeSchedule: FeeSchedule
  now: () => number
}

/** What the steps of a verification work with. */
type Context = VerifyDeps & { accept: ReturnType<typeof createAccept> }

/** Builds the function behind `POST /verify`: the checks in order, the reservation, the receipt. */
export function createVerifyPayment(deps: VerifyDeps): (request: VerifyRequest) => Promise<VerifyAnswer> {
  const context: Context = { ...deps, accept: createAccept(deps.database) }
  const { settleBeforeServe } = deps
  return async (request) => {
    const { price, ...answer } = await verifyOrRepeat(context, request)
    if (settleBeforeServe.appliesTo(price)) {
      await settleBeforeServe.wait(answer.paymentId, request.providerId)
    }
    return answer
  }
}

async function verifyOrRepeat(context: Context, request: VerifyRequest): Promise<Accepted> {
  const presented = { provider: parsePayload(request.payloads[0]), fee: parsePayload(request.payloads[1]) }
  const acceptedAt = context.now()
  try {
    return await reserve(context, request, presented, await check(context, request, presented, acceptedAt))
  } catch (error) {
    // What was accepted once may be refused the second time: expired, used on chain, its balance promised to itself.
    const mayBeStored =
      error instanceof BaseError &&
      (request.idempotencyKey !== undefined || timeDependentCodes.has(error.code))
    if (!mayBeStored || !(await isAuthentic(context, request, presented))) throw error
    const stored = await findByAuthorization(context, presented)
    if (stored === undefined) throw error
    return answerAgain(context, stored, request)
  }
}

type Checked = {
  terms: MacaroonTerms
  network: VerifyNetwork
  offer: Offer
  /** USDC base units, both halves. */
  price: bigint
  payerHasCode: boolean
  /** See {@link requireUnused}. */
  acceptedBlocks: [provider: bigint | null, fee: bigint | null]
  acceptedAt: number
}

/** @throws {ProtocolError|Refusal} the first thing that is wrong; nothing is stored until then. */
async function check(
  context: Context,
  request: VerifyRequest,
  presented: Presented,
  acceptedAt: number,
): Promise<Checked> {
  const { provider, fee } = presented
  const seconds = Math.floor(acceptedAt / 1000)
  if (provider.value + fee.value > maxAmount) throw new Refusal('amount_too_high')

  const { terms, network } = readChallenge(context, request, presented, seconds)
  const price = terms.amount + terms.feeAmount
  if (request.price !== undefined && price < request.price) {
    throw new Refusal('challenge_price_too_low', undefined, {
      details: { asked: request.price.toString(), challenged: price.toString() },
    })
  }
  checkPayment(presented, terms, seconds)

  const offer = await context.offers.ofEndpoint(request.endpointId)
  if (offer === undefined) throw new Refusal('unknown_endpoint')
  requireAcceptedNetwork(request, offer, network.served.network)
  if (offer.requiresKey && request.caller !== request.providerId) {
    throw new Refusal(
      request.caller === undefined ? 'unauthorized' : 'forbidden',
      'This provider wants its API key with every verification',
    )
  }

  const isBound = boundNonces(presented, context.issuer, terms.requestId)
  // A bound nonce can stand for no other payment, so that it is unused matters only as much as that the balance is
  // there: it is asked about as often.
  const asksNonces = !(isBound[0] && isBound[1] && network.payers.isCached(provider.from))
  const { hasCode, nonces } = await checkSignatures([provider, fee], network, { ...context, asksNonces })
  context.countPayer(provider.from)
  const acceptedBlocks = requireUnused(presented, isBound, nonces)
  return { terms, network, offer, price, payerHasCode: hasCode, acceptedBlocks, acceptedAt }
}

/** Signs the receipt and stores the payment, unless its authorizations or its balance are another's already. */
async function reserve(
  context: Context,
  request: VerifyRequest,
  presented: Presented,
  { terms, network, offer, price, payerHasCode, acceptedBlocks, acceptedAt }: Checked,
): Promise<Accepted> {
  const { database, feeSchedule, issuer, providerCap, receiptKeys, accept } = context
  const { served, payers } = network
  const { provider, fee } = presented
  const { requestId } = terms
  const paymentId = newId('pay')
  const facts = {
    providerId: request.providerId,
    endpointId: request.endpointId,
    tier: splitPrice(price, feeSchedule).tier,
    effectiveRate: effectiveRate(price, terms.feeAmount),
    acceptedAt,
    token: served.token,
    payer: provider.from,
    resource: offer.url,
    payee: provider.to,
    feeRecipient: fee.to,
    providerAmount: provider.value,
    feeAmount: fee.value,
    splitter: null,
  }
  const halves = [toAccepted(provider, acceptedBlocks[0]), toAccepted(fee, acceptedBlocks[1])] as const
  const validBefore = provider.validBefore < fee.validBefore ? provider.validBefore : fee.validBefore
  const claims = receiptClaims(
    { ...facts, paymentId, network: served.network, validBefore, provider: halves[0], fee: halves[1] },
    { issuer, signedAt: acceptedAt, status: 'verified' },
  )
  const receipt = signReceipt(claims, receiptKeys.current)

  const total = provider.value + fee.value
  await providerCap.require(request.providerId, served.network.testnet, total)
  const verdict = await accept(
    {
      ...facts,
      id: paymentId,
      requestId,
      chainId: terms.chainId,
      payerHasCode,
      authorizations: [...halves],
      price,
      receipt,
      idempotencyKey: request.idempotencyKey ?? null,
      requestHash: hashRequest(request),
      challengedAt: terms.mintedAt * 1000,
      limit: null,
    },
    payers,
  )
  if (verdict === 'accepted') {
    providerCap.add(request.providerId, served.network.testnet, total)
    return { paymentId, requestId, receipt, price }
  }
  const stored =
    (await findPaymentOfRequest(database, requestId)) ?? (await findByAuthorization(context, presented))
  // Whatever held it was rolled back since.
  if (stored === undefined)
    throw new Refusal('dependency_unavailable', 'A concurrent request was undone: try again')
  return answerAgain(context, stored, request)
}

/** @throws {ProtocolError|Refusal} what is wrong with the macaroon, or its network */
function readChallenge(
  { macaroonSecrets, macaroonNotBefore, networks }: Context,
  { macaroon, providerId, endpointId }: VerifyRequest,
  { provider, fee }: Presented,
  seconds: number,
): { terms: MacaroonTerms; network: VerifyNetwork } {
  const { terms } = verifyMacaroon(macaroon, {
    secrets: macaroonSecrets,
    hmac: hmacSha256,
    now: seconds,
    notBefore: macaroonNotBefore,
    request: { providerId, endpointId, payer: provider.from, amount: provider.value + fee.value },
  })
  const network = networks.get(terms.chainId)
  if (network === undefined || network.served.token !== terms.asset) throw new Refusal('network_not_served')
  return { terms, network }
}

/**
 * Whether macaroon and signatures are good, whatever the time. Payer and nonce are public once they are on chain: only
 * who shows this much may learn that a payment of them exists, and its id.
 */
async function isAuthentic(context: Context, request: VerifyRequest, presented: Presented): Promise<boolean> {
  try {
    const { network } = readChallenge(context, request, presented, 0)
    await checkSignatures([presented.provider, presented.fee], network, {
      ...context,
      asksNonces: false,
    })
    return true
  } catch {
    return false
  }
}

/** What a used challenge or authorization gets: its stored answer if it's the same request again, else 409. */
async function answerAgain(
  { settleBeforeServe }: Context,
  stored: StoredPayment,
  request: VerifyRequest,
): Promise<Accepted> {
  const { paymentId, requestId, receipt, price, releasedAt } = stored
  const isTheirs =
    stored.requestHash === hashRequest(request) &&
    (releasedAt === null
      ? request.idempotencyKey !== undefined && stored.idempotencyKey === request.idempotencyKey
      : await settleBeforeServe.takeOver(paymentId, request.idempotencyKey))
  if (!isTheirs) throw new Refusal('payment_replayed', undefined, { details: { paymentId } })
  return { paymentId, requestId, receipt, price }
}

async function findByAuthorization(
  { database, networks }: Context,
  { provider, fee }: Presented,
): Promise<StoredPayment | undefined> {
  return findStoredPayment(database, {
    tokens: [...networks.values()].map(({ served }) => ({
      chainId: served.network.chainId,
      token: served.token,
    })),
    payer: provider.from,
    nonces: [provider.nonce, fee.nonce],
  })
}

/** Refusals that a request may get although it was accepted before. */
const timeDependentCodes: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'macaroon_expired',
  'challenge_network_mismatch',
  'authorization_expired',
  'authorization_expires_too_soon',
  'authorization_used',
  'insufficient_balance',
  'payer_limit_exceeded',
  'payer_in_debt',
  'payer_blacklisted',
  'token_paused',
])

/**
 * Refuses nonces that the chain calls used or cancelled, where it was asked.
 *
 * @returns for each half the block at which an unbound nonce was unused, null for a bound one.
 * @throws {Refusal} `authorization_used`
 */
function requireUnused(
  { provider, fee }: Presented,
  isBound: [provider: boolean, fee: boolean],
  state: PayerState | undefined,
): [bigint | null, bigint | null] {
  for (const [half, { nonce }] of [provider, fee].entries()) {
    if (!state?.isUsed[half]) continue
    const payload = `payloads[${half}]`
    throw new Refusal('authorization_used', `The nonce of ${payload} was used or cancelled on chain`, {
      details: { payload, nonce },
    })
  }
  const acceptedBlock = state?.blockNumber ?? null
  return [isBound[0] ? null : acceptedBlock, isBound[1] ? null : acceptedBlock]
}

/**
 * The challenge may be older than what the endpoint accepts now, or than the middleware's own choice.
 *
 * @throws {Refusal} `challenge_network_mismatch`
 */
function requireAcceptedNetwork(
  { network: asked }: VerifyRequest,
  { payees }: Offer,
  { chainId, name }: Network,
): void {
  const isAccepted = payees.some((payee) => payee.chainId === chainId)
  if (isAccepted && (asked === undefined || asked === chainId)) return
  throw new Refusal('challenge_network_mismatch', undefined, { details: { challenged: name } })
}

function toAccepted(authorization: SignedAuthorization, acceptedBlock: bigint | null): AcceptedAuthorization {
  const { to, value, validAfter, validBefore, nonce, signature } = authorization
  return { recipient: to, value, validAfter, validBefore, nonce, signature, acceptedBlock }
}

/** What makes two requests the same: everything in them that decides what is charged, and for what. */
function hashRequest({ macaroon, payloads, providerId, endpointId, price, network }: VerifyRequest): string {
  return hash(
    'sha256',
    JSON.stringify([macaroon, payloads, providerId, endpointId, price?.toString() ?? null, network ?? null]),
  )
}
