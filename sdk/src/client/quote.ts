import type { Address } from 'viem'
import { formatShortUsdc } from '../protocol/amount.ts'
import type { Challenge } from '../protocol/challenge.ts'
import type { Network, NetworkName } from '../protocol/networks.ts'
import { proposedBy, requireSoldAlone } from './challengeSigner.ts'
import { isIssuedBy } from './checkChallenge.ts'
import { ChallengeRefusedError, type ClientErrorCode } from './errors.ts'
import { readPaymentRequired } from './exactOffers.ts'
import { readChallengeOf } from './headerChallenge.ts'
import { hostOf, type Limits, type OwnLimit, requireRoom } from './limits.ts'
import type { Asked } from './offers.ts'
import { chooseOffer, limitsForOthers } from './otherSellers.ts'
import { priceOf } from './payment.ts'
import type { Answer } from './transport.ts'

/** The price of a request, and whether the client would pay it. */
export type Quote = {
  /** The requested URL. */
  url: string
  /** Price in USDC base units, including the fee. 0 for a free request. */
  amount: bigint
  /** The same price in decimal USDC, such as `0.05`. */
  price: string
  /** The platform's part of the amount, in base units. Undefined for sellers that don't use Tollkeeper, because they don't report it. */
  fee: bigint | undefined
  network: NetworkName
  /** The wallet that receives the payment. Undefined for a free request. */
  payTo: Address | undefined
  /** The seller's description of what is bought. */
  description: string
  /** Media type of the purchased content, if the seller names it. */
  mimeType: string | undefined
  /** `tollkeeper`: the payment goes through a gateway. `x402`: the seller doesn't use Tollkeeper. Undefined for a free request. */
  seller: 'tollkeeper' | 'x402' | undefined
  /** The ways to pay the request, in the seller's order. */
  schemes: ('exact' | 'tab')[]
  /** Whether the client would put the request on a tab. */
  isOnTab: boolean
  /** Whether the client's options and limits allow paying the request now. `limits.onPayment` isn't called. */
  isAllowed: boolean
  /** Why the request isn't allowed. Undefined if it is. */
  refusal: { code: ClientErrorCode; message: string } | undefined
}

/** The parts of a client that a quote needs. */
export type QuoteContext = {
  gatewayUrl: string
  network: Network
  usdc: Address | undefined
  limits: Limits
  mockPayments: boolean
  paysOthers: boolean
  /** The maximum price of this call. */
  own: OwnLimit | undefined
  /** Reads and checks a challenge. @returns whether the client would put the request on a tab. @throws {ChallengeRefusedError} */
  accept: (asked: Asked, answer: Answer) => Promise<boolean>
  keepsTabs: boolean
}

/** Returns the quote for a response that requests no payment. */
export function freeQuote(url: string, network: NetworkName): Quote {
  return {
    url,
    amount: 0n,
    price: '0',
    fee: 0n,
    network,
    payTo: undefined,
    description: '',
    mimeType: undefined,
    seller: undefined,
    schemes: [],
    isOnTab: false,
    isAllowed: true,
    refusal: undefined,
  }
}

/**
 * Returns a quote from a 402. Signs and counts nothing.
 *
 * @throws {ChallengeRefusedError} for a 402 without an offer that this client could pay.
 */
export async function readQuote(asked: Asked, answer: Answer, context: QuoteContext): Promise<Quote> {
  const { gatewayUrl, paysOthers } = context
  const isOther = readPaymentRequired(answer) !== undefined && !(await isIssuedBy(gatewayUrl, answer))
  const challenge = isOther && paysOthers ? undefined : await readChallenge(answer, gatewayUrl)
  return challenge ? quoteChallenge(asked, answer, challenge, context) : quoteOther(asked, answer, context)
}

async function quoteChallenge(
  asked: Asked,
  answer: Answer,
  challenge: Challenge,
  { network, limits, own, mockPayments, keepsTabs, accept }: QuoteContext,
): Promise<Quote> {
  const [provider, fee] = challenge.accepts
  let isOnTab = false
  const refusal = await refusalOf(async () => {
    if (mockPayments) return
    isOnTab = await accept(asked, answer)
    if (!isOnTab) requireSoldAlone(challenge, keepsTabs)
    const { url } = asked
    const proposed = { url, host: hostOf(url), network: network.name, ...proposedBy(challenge) }
    await requireRoom(limits, proposed, own)
  })
  const { tab } = challenge
  return {
    ...priced(asked.url, priceOf(challenge), refusal),
    fee: BigInt(fee.maxAmountRequired),
    network: provider.network as NetworkName,
    payTo: provider.payTo,
    description: provider.description,
    mimeType: provider.mimeType,
    seller: 'tollkeeper',
    schemes: tab?.only ? ['tab'] : tab ? ['exact', 'tab'] : ['exact'],
    isOnTab,
  }
}

async function quoteOther(asked: Asked, answer: Answer, context: QuoteContext): Promise<Quote> {
  const { gatewayUrl, network, usdc, limits, paysOthers, own } = context
  if (!usdc) throw new ChallengeRefusedError('a client in mock mode can’t pay other sellers')
  const offer = chooseOffer(asked, answer, { network, usdc })
  const { amount, payTo, description, nonce: requestId } = offer
  const { url } = asked
  const proposed = { url, host: hostOf(url), amount, network: network.name, payTo, description, requestId }
  const refusal = await refusalOf(async () => {
    if (!paysOthers) {
      throw new ChallengeRefusedError(
        `the seller doesn't use the gateway ${gatewayUrl}: set the option \`otherSellers: true\` to pay it`,
      )
    }
    await requireRoom(limitsForOthers(limits), proposed, own)
  })
  return {
    ...priced(url, amount, refusal),
    fee: undefined,
    network: network.name,
    payTo,
    description,
    mimeType: offer.mimeType,
    seller: 'x402',
    schemes: ['exact'],
    isOnTab: false,
  }
}

function priced(
  url: string,
  amount: bigint,
  refusal: Quote['refusal'],
): Pick<Quote, 'url' | 'amount' | 'price' | 'isAllowed' | 'refusal'> {
  return { url, amount, price: formatShortUsdc(amount), isAllowed: refusal === undefined, refusal }
}

async function refusalOf(check: () => Promise<void>): Promise<Quote['refusal']> {
  try {
    await check()
    return undefined
  } catch (error) {
    if (!(error instanceof ChallengeRefusedError)) throw error
    return { code: error.code, message: error.message }
  }
}

async function readChallenge(answer: Answer, gatewayUrl: string): Promise<Challenge | undefined> {
  try {
    return await readChallengeOf(answer, gatewayUrl)
  } catch {
    return undefined
  }
}
