import { newId } from '@tollkeeper/ledger/store/identifiers'
import { type Challenge, createChallenge, type TabChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { mintMacaroon } from '@tollkeeper/sdk/protocol/macaroon'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import type { PassTerms } from '@tollkeeper/sdk/protocol/passTerms'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { tabSplit, toWord } from '@tollkeeper/sdk/protocol/tab'
import { splitAnyPrice } from '@tollkeeper/sdk/protocol/tier'
import type { Address } from 'viem'
import { hmacSha256 } from '../../http/hmac.ts'
import type { GatewaySettings } from '../../http/settings.ts'
import type { GatewayNetwork } from '../../registry/networks.ts'
import type { Offer } from '../../registry/offers.ts'
import { minimumPriceOn } from '../../registry/price.ts'

/** Five minutes, as conformance 2.3-2 requires. */
const macaroonLifetimeSeconds = 300

export type MintRequest = {
  offer: Offer
  network: GatewayNetwork
  payTo: Address
  /** USDC base units: the provider's part and the fee together. */
  price: bigint
  /** The pass that the payment buys, as the provider requested it. */
  pass?: PassTerms | undefined
  /** The full URL of the request. */
  resource: string
}

export type MintOptions = {
  settings: Pick<
    GatewaySettings,
    | 'issuer'
    | 'platformWallet'
    | 'feeSchedule'
    | 'macaroonSecrets'
    | 'minimumPrices'
    | 'offerTimeoutSeconds'
    | 'tabs'
  >
  now: () => number
}

/** Mints a challenge. Nothing is stored, because a verification finds everything it needs in the macaroon. */
export function mintChallenge(
  { settings, now }: MintOptions,
  { offer, network, payTo, price, pass, resource }: MintRequest,
): Challenge {
  const { issuer, platformWallet, feeSchedule, macaroonSecrets, offerTimeoutSeconds } = settings
  const [secret] = macaroonSecrets
  if (secret === undefined) throw new TypeError('A gateway needs a macaroon secret')
  const { served } = network
  const { providerId, endpointId, description, mimeType, discovery, seller: name, url } = offer
  const { tier, providerAmount, feeAmount } = splitAnyPrice(price, feeSchedule)
  const requestId = newId('req')
  const mintedAt = Math.floor(now() / 1000)
  const terms = {
    requestId,
    payTo,
    feePayTo: platformWallet,
    amount: providerAmount,
    feeAmount,
    asset: served.token,
    ...(pass && { pass }),
  }
  const macaroon = mintMacaroon({
    secret,
    terms: { ...terms, mintedAt, chainId: served.network.chainId },
    caveats: { providerId, endpointId, expiry: mintedAt + macaroonLifetimeSeconds },
    hmac: hmacSha256,
  })
  return createChallenge({
    ...terms,
    issuer,
    providerId,
    endpointId,
    macaroon,
    network: served.network,
    resource,
    description,
    mimeType,
    tier,
    offerTimeoutSeconds,
    ...(discovery && { discovery }),
    seller: { name, ...(discovery && { listing: listingUrl(issuer, payTo, url) }) },
    tab: tabOf(settings, {
      price,
      network: served.network,
      provider: payTo,
      offeredUntil: mintedAt + macaroonLifetimeSeconds,
    }),
  })
}

/** Returns the URL of a listing's page on the market. Like the dashboard's links, it contains the seller's wallet and the registered URL. */
function listingUrl(issuer: string, payTo: Address, url: string): string {
  return `${issuer}/dashboard/#/market/${payTo}/${encodeURIComponent(url)}`
}

/** Returns a challenge's offer of a tab; undefined if this price isn't sold on tabs. */
function tabOf(
  settings: MintOptions['settings'],
  {
    price,
    network,
    provider,
    offeredUntil,
  }: { price: bigint; network: Network; provider: Address; offeredUntil: number },
): TabChallenge | undefined {
  const { tabs, platformWallet: platform, feeSchedule } = settings
  const split = tabSplit({ provider, platform }, price, feeSchedule)
  if (!tabs || !split) return undefined
  return {
    split: toWord(encodeSplit(split)),
    rewardShare: tabs.rewardShare,
    offeredUntil,
    ...(price < minimumPriceOn(settings, network) && { only: true as const }),
  }
}
