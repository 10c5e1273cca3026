import type { Presented } from '@tollkeeper/ledger/acceptance/door'
import { derivedId } from '@tollkeeper/ledger/store/identifiers'
import {
  type Caveats,
  type MacaroonSecret,
  parseMacaroon,
  verifyMacaroon,
} from '@tollkeeper/sdk/protocol/macaroon'
import type { PassTerms } from '@tollkeeper/sdk/protocol/passTerms'
import { type FeeSchedule, splitPrice } from '@tollkeeper/sdk/protocol/tier'
import type { Address } from 'viem'
import { hmacSha256 } from '../../http/hmac.ts'
import { Refusal } from '../../http/refusal.ts'
import type { GatewaySettings } from '../../http/settings.ts'
import type { GatewayNetwork } from '../../registry/networks.ts'
import type { Offers } from '../../registry/offers.ts'
import { choosePrice, minimumPriceOn } from '../../registry/price.ts'
import type { PaymentTerms } from './checkPayment.ts'
import type { SettleBeforeServe } from './settleBeforeServe.ts'

export type VerifyNetwork = GatewayNetwork

export type TermsOptions = {
  networks: ReadonlyMap<number, VerifyNetwork>
  macaroonSecrets: readonly MacaroonSecret[]
  /** Unix seconds: macaroons minted earlier are refused. */
  macaroonNotBefore: number
  feeSchedule: FeeSchedule
  offers: Offers
  settleBeforeServe: SettleBeforeServe
} & Pick<GatewaySettings, 'platformWallet' | 'minimumPrices'>

/** The part of a request that determines its terms. */
export type TermsRequest = {
  /** Undefined: the client uses x402 v1, which has no macaroon. */
  macaroon: string | undefined
  providerId: string
  endpointId: string
  /** The middleware's current price, USDC base units. */
  price: bigint | undefined
  /** The pass that the middleware sells now. */
  pass?: PassTerms | undefined
  /** The chain id of the only network that the provider's middleware accepts, if it names one. */
  network: number | undefined
  /** The provider of the API key that was sent. */
  caller: string | undefined
}

/**
 * The facts of a payment that a macaroon's caveats may restrict: its payer, and the sum of its authorizations in `amount`. `amount` is null on a tab,
 * because a tab's authorization also pays for earlier requests.
 */
type Paid = { payer: Address; amount: bigint | null }

type NetworkTerms = { terms: PaymentTerms; network: VerifyNetwork }

/**
 * Returns the terms in the macaroon. Without a macaroon, returns the registered terms.
 *
 * @param seconds Unix time.
 * @throws {ProtocolError|Refusal} if the macaroon, its network, or the requested price is wrong.
 */
export async function findTerms(
  options: TermsOptions,
  request: TermsRequest,
  presented: Presented,
  seconds: number,
): Promise<NetworkTerms> {
  const { macaroon } = request
  return macaroon === undefined
    ? registeredTerms(options, request, presented, seconds)
    : challengedTerms(options, { ...request, macaroon }, paidBy(presented), seconds)
}

function paidBy([first, second]: Presented): Paid {
  return { payer: first.from, amount: first.value + (second?.value ?? 0n) }
}

/**
 * Reads the terms of a challenge from its macaroon, and verifies the macaroon for the request. It needs neither the database nor the chain.
 *
 * @param seconds Unix time.
 * @throws {ProtocolError|Refusal} if the macaroon isn't ours, has expired or belongs to another request, or its network isn't served.
 */
export function challengedTerms(
  {
    macaroonSecrets,
    macaroonNotBefore,
    networks,
  }: Pick<TermsOptions, 'macaroonSecrets' | 'macaroonNotBefore' | 'networks'>,
  {
    macaroon,
    providerId,
    endpointId,
  }: Pick<TermsRequest, 'providerId' | 'endpointId'> & { macaroon: string },
  { payer, amount }: Paid,
  seconds: number,
): NetworkTerms & { caveats: Caveats } {
  const { terms, caveats } = verifyMacaroon(macaroon, {
    secrets: macaroonSecrets,
    hmac: hmacSha256,
    now: seconds,
    notBefore: macaroonNotBefore,
    request: { providerId, endpointId, payer, amount: amount ?? askedBy(macaroon) },
  })
  const network = networks.get(terms.chainId)
  if (network === undefined || network.served.token !== terms.asset) throw new Refusal('network_not_served')
  return { terms, network, caveats }
}

function askedBy(macaroon: string): bigint {
  const { amount, feeAmount } = parseMacaroon(macaroon).terms
  return amount + feeAmount
}

/** Maximum number of offers whose macaroons are cached, about 1 KB each. */
const maxRemembered = 5_000

/**
 * Creates the function that finds the terms of purchases on tabs in their macaroons. A macaroon can be used many times until it expires, so a
 * verified macaroon is cached by its text until then.
 *
 * @returns a function of the request, the tab's payer, and the Unix time in seconds; it throws like {@link findTerms}.
 */
export function createFindTabTerms(
  options: TermsOptions,
): (request: TermsRequest, payer: Address, seconds: number) => NetworkTerms {
  const verified = new Map<string, NetworkTerms & { caveats: Caveats }>()

  return (request, payer, seconds) => {
    const { macaroon, providerId, endpointId } = request
    if (macaroon === undefined)
      throw new Refusal('macaroon_invalid', 'A payment on a tab must include the macaroon of its offer')
    const known = verified.get(macaroon)
    if (known !== undefined) {
      const { caveats } = known
      if (seconds >= caveats.expiry) verified.delete(macaroon)
      else if (
        caveats.providerId === providerId &&
        caveats.endpointId === endpointId &&
        (caveats.payer ?? payer) === payer
      )
        return known
    }
    const found = challengedTerms(options, { ...request, macaroon }, { payer, amount: null }, seconds)
    if (verified.size >= maxRemembered) verified.delete(verified.keys().next().value as string)
    verified.set(macaroon, found)
    return found
  }
}

/**
 * Returns the terms of a payment without a macaroon: the endpoint's current price. The payer's signature shows that the payer agreed to it.
 */
async function registeredTerms(
  { networks, offers, macaroonNotBefore, settleBeforeServe, ...settings }: TermsOptions,
  { providerId, endpointId, price: asked, pass, network: chainId, caller }: TermsRequest,
  [{ from, nonce, validAfter }]: Presented,
  seconds: number,
): Promise<NetworkTerms> {
  // Nothing that the buyer signed shows that the buyer wanted a pass with these terms.
  if (pass)
    throw new Refusal('macaroon_invalid', 'A payment for a pass must include the macaroon of its challenge')
  // A payment that was already valid before a restore of the database may have been accepted then, and lost by the restore.
  if (validAfter < macaroonNotBefore) {
    throw new Refusal(
      'macaroon_invalid',
      'Without a macaroon, validAfter must be after the last restore of the database',
      {
        details: { notBefore: macaroonNotBefore },
      },
    )
  }
  const offer = await offers.ofEndpoint(endpointId)
  if (offer?.providerId !== providerId) throw new Refusal('unknown_endpoint')
  if (offer.disabled !== null) throw new Refusal(offer.disabled)
  const payee = offer.payees.find((one) => chainId === undefined || one.chainId === chainId)
  if (payee === undefined) throw new Refusal('challenge_network_mismatch')
  const network = networks.get(payee.chainId)
  if (network === undefined) throw new Refusal('network_not_served')
  const price = choosePrice({
    asked,
    registered: offer.price,
    minimum: minimumPriceOn(settings, network.served.network),
    isProvider: caller === providerId,
  })
  // A caller that presents a pending payment again takes over its answer. Everything except the macaroon is public in the settlement, so without a
  // macaroon, anyone could take it over.
  if (settleBeforeServe.appliesTo(price)) {
    throw new Refusal(
      'macaroon_invalid',
      'A payment of this amount must include the macaroon of its challenge',
    )
  }
  const { providerAmount, feeAmount } = splitPrice(price, settings.feeSchedule)
  return {
    network,
    terms: {
      requestId: requestIdOf(payee.chainId, network.served.token, from, nonce),
      mintedAt: seconds,
      chainId: payee.chainId,
      asset: network.served.token,
      payTo: payee.payTo,
      feePayTo: settings.platformWallet,
      amount: providerAmount,
      feeAmount,
    },
  }
}

/** Returns an id that replaces a challenge's id: one authorization buys once, for any endpoint that it is presented for. */
function requestIdOf(chainId: number, token: Address, payer: Address, nonce: string): string {
  return derivedId('req', `x402:${chainId}:${token}:${payer}:${nonce}`)
}
