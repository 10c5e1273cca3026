import { checkChallenge, isIssuedBy } from '@tollkeeper/sdk/client/checkChallenge'
import { readExactOffers, readPaymentRequired } from '@tollkeeper/sdk/client/exactOffers'
import { readChallengeOf } from '@tollkeeper/sdk/client/headerChallenge'
import type { Answer } from '@tollkeeper/sdk/client/transport'
import type { Challenge } from '@tollkeeper/sdk/protocol/challenge'
import {
  isNetworkName,
  type NetworkName,
  networkByName,
  networkNames,
} from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'

export type PricedAnswer = Pick<Answer, 'url' | 'headers' | 'body'>

/** One accepted payment: USDC on a network. */
export type PriceOffer = { network: NetworkName; testnet: boolean; amount: bigint; payTo: Address }

/** The price in a 402. */
export type Price = {
  /** `tollkeeper`: sold through a gateway, so the gateway's terms are also known. `x402`: any other seller. */
  seller: 'tollkeeper' | 'x402'
  /** The seller's own description. */
  description: string
  /** Empty if the seller accepts no USDC by EIP-3009 on a known network. */
  offers: PriceOffer[]
  /** The gateway's fee, which is a part of the amount; null if unknown. */
  fee: bigint | null
  gatewayUrl: string | null
  providerId: string | null
  endpointId: string | null
  tab: { isOnly: boolean; offeredUntil: number } | null
}

/**
 * Reads the price in a 402.
 *
 * @param usdcOnLocalhost address of USDC on the development chain, for which no address is built in.
 * @returns undefined if the 402 contains no price in the form of x402 or Tollkeeper.
 */
export async function readPrice(
  answer: PricedAnswer,
  { gatewayUrl, usdcOnLocalhost }: { gatewayUrl: string; usdcOnLocalhost: Address | null },
): Promise<Price | undefined> {
  const challenge = await readChallenge(answer, gatewayUrl)
  if (challenge === undefined) {
    if (readPaymentRequired(answer) === undefined) return undefined
    const { offers, description } = readOffers(answer, usdcOnLocalhost)
    const none = { fee: null, gatewayUrl: null, providerId: null, endpointId: null, tab: null }
    return { seller: 'x402', description, offers, ...none }
  }
  const { issuer, providerId, endpointId, tab } = challenge
  const [provider, fee] = challenge.accepts
  const feeAmount = BigInt(fee.maxAmountRequired)
  const amount = BigInt(provider.maxAmountRequired) + feeAmount
  const { network, payTo, description } = provider
  return {
    seller: 'tollkeeper',
    description,
    offers: isNetworkName(network) ? [{ ...networkOf(network), amount, payTo }] : [],
    fee: feeAmount,
    gatewayUrl: issuer,
    providerId,
    endpointId,
    tab: tab ? { isOnly: tab.only === true, offeredUntil: tab.offeredUntil } : null,
  }
}

async function readChallenge(answer: PricedAnswer, gatewayUrl: string): Promise<Challenge | undefined> {
  try {
    return await readChallengeOf(answer, gatewayUrl)
  } catch {
    return undefined
  }
}

function readOffers(answer: PricedAnswer, usdcOnLocalhost: Address | null) {
  const required = readPaymentRequired(answer)
  let description = ''
  const offers: PriceOffer[] = []
  for (const name of required === undefined ? [] : networkNames) {
    const usdc = networkByName(name).usdc ?? usdcOnLocalhost
    if (required === undefined || usdc === null) continue
    const [first] = readExactOffers(required, { network: networkByName(name), usdc })
    if (first === undefined) continue
    description ||= first.description
    offers.push({ ...networkOf(name), amount: first.amount, payTo: first.payTo })
  }
  return { offers, description }
}

function networkOf(network: NetworkName) {
  return { network, testnet: networkByName(network).testnet }
}

/** The settings with which `buy` pays. */
export type BuyPolicy = {
  url: string
  network: NetworkName
  usdcOnLocalhost: Address | null
  gatewayUrl: string
  /** Maximum price in base units. */
  limit: bigint
}

/** Returns the reason why `tollkeeper buy` would not pay a price, according to the client's own checks; null if it would pay. */
export async function refusalOf(
  answer: PricedAnswer,
  price: Price,
  policy: BuyPolicy,
): Promise<string | null> {
  const { url, network: name, usdcOnLocalhost, gatewayUrl, limit } = policy
  const network = networkByName(name)
  const usdc = network.usdc ?? usdcOnLocalhost
  const { origin } = new URL(url)
  if (new URL(answer.url).origin !== origin)
    return `${origin} redirected to ${answer.url}, which requests the payment`
  if (price.offers.length === 0) return "it doesn't accept USDC by EIP-3009 on a network that buy knows"
  const offer = price.offers.find((one) => one.network === name)
  if (offer === undefined) return `it isn't paid on ${name}. Set NETWORK=${price.offers[0]?.network}`
  if (usdc === null) return `USDC_ADDRESS isn't set, and ${name} has no fixed USDC address`
  if (price.tab?.isOnly) return 'it is sold on a tab only, and buy pays single requests'
  if (offer.amount > limit) return 'it costs more than --max'
  const challenge = await readChallenge(answer, gatewayUrl)
  const isOwn = challenge !== undefined && (await isIssuedBy(gatewayUrl, { ...answer, status: 402 }))
  if (!isOwn) {
    // The challenge isn't from GATEWAY_URL, so `buy` pays only if the rules of plain x402 allow it.
    const isPayable = readOffers(answer, usdcOnLocalhost).offers.some((one) => one.network === name)
    return isPayable ? null : `it is sold by another gateway. Set GATEWAY_URL=${price.gatewayUrl}`
  }
  try {
    checkChallenge(challenge, { url, answeredBy: answer.url, gatewayUrl, network, usdc })
    return null
  } catch (error) {
    return (error as Error).message
  }
}
