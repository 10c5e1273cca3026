import type { Address, Hex } from 'viem'
import { bytesToHex, encodeUtf8, hexToBytes } from './bytes.ts'
import { type Keccak256, portableKeccak256 } from './eip3009.ts'
import { amountPattern, fieldsOf, macaroonPattern, wordPattern } from './fields.ts'
import type { MacaroonTerms } from './macaroon.ts'
import { isNetworkName, type Network, networkByName } from './networks.ts'
import { type PassTerms, parsePassTerms } from './passTerms.ts'
import type { Tier } from './tier.ts'

/** One of the payments that a challenge requests: an element of `accepts` (conformance 2.2), with the additional fields of x402 v1. */
export type PaymentRequirements = {
  scheme: 'exact'
  network: string
  /** USDC base units, decimal. */
  maxAmountRequired: string
  /** Full URL of the protected resource. */
  resource: string
  description: string
  mimeType: string
  outputSchema: null
  payTo: Address
  /** Validity of the signature in seconds. The SDK sets `validBefore` to the current time plus this value. */
  maxTimeoutSeconds: number
  asset: Address
  /** Name and version of `asset`'s EIP-712 domain. */
  extra: { name: string; version: string }
}

/** Body of a 402 and of the response to `/challenge` (conformance 2.1). */
export type Challenge = {
  x402Version: 1
  /** The provider's payment, then the platform's fee. The buyer pays both. */
  accepts: [PaymentRequirements, PaymentRequirements]
  macaroon: string
  providerId: string
  endpointId: string
  requestId: string
  /** The gateway's public URL. A buyer's SDK compares it with its `gatewayUrl` and derives the nonces from it. */
  issuer: string
  /** Asks our SDK to pay both entries of `accepts` with one authorization to a splitter, which divides the amount. */
  signatures?: 'one'
  /** Validity in seconds of the signatures of x402's clients. They pay x402's form of this challenge. Default: {@link offerTimeoutSeconds}. */
  offerTimeoutSeconds?: number
  /** Set if the price may be put on a tab (docs/tabs.md). */
  tab?: TabChallenge
  /** Set if the payment buys a pass (docs/passes.md). The macaroon has the same terms. */
  pass?: PassTerms
  /** The resource's description for catalogs. Only the header of x402 v2 contains it. */
  discovery?: ChallengeDiscovery
  /** The seller, in a form for people. Only the middleware's page shows it. */
  seller?: ChallengeSeller
  /** The reason for the 402, as text for people (x402 v1). */
  error?: string
  /** A stable code for why the presented payment was refused. */
  code?: string
}

/** The fields of a challenge for discovery: the service, and how to call the resource (x402's extension `bazaar`). */
export type ChallengeDiscovery = {
  serviceName?: string
  tags?: readonly string[]
  iconUrl?: string
  bazaar: object
}

/** The seller of a challenge, in a form for people. */
export type ChallengeSeller = {
  name: string
  /** The listing's page on the gateway's market. Undefined if the seller isn't listed. */
  listing?: string
}

/** The offer in a challenge to put the price on a tab. The tab's remaining terms follow from the challenge's two entries. */
export type TabChallenge = {
  /** The recipients of the price on a tab, and their shares: 32 bytes in the packed form of `encodeSplit`. */
  split: Hex
  /** The reward for settling, in basis points of the platform's part. */
  rewardShare: number
  /** Expiry in Unix seconds of the macaroon for tabs. Until then, the buyer can use it any number of times on a tab. */
  offeredUntil: number
  /** Set if the price is too small for a single payment, so that it is accepted only on a tab. */
  only?: true
}

/**
 * Maximum validity of the SDK's signatures in seconds: 26 hours. A payment may wait for up to one hour, and is then retried for up to 24 hours.
 *
 * @example
 * import { maxTimeoutSeconds } from '@tollkeeper/sdk/protocol'
 *
 * console.log(maxTimeoutSeconds / 3600)
 * // 26
 */
export const maxTimeoutSeconds = 93_600

/** Default validity in seconds of the signatures of x402's clients. Some of these clients refuse to sign for more than an hour. */
export const offerTimeoutSeconds = 3_600

/** Maximum length of the requested resource's URL. Servers and proxies accept request lines of 8 KiB. */
export const maxResourceLength = 8_192

const { invalid, object, text, integer } = fieldsOf('invalid_challenge', 'Challenge', /^.{1,8192}$/s)

/** Validity of a signature in seconds if the challenge doesn't state one: an hour, as in conformance 2.4-12. */
const defaultTimeoutSeconds = 3_600

/**
 * A client sends this media type in `Accept` to get a {@link Challenge} from a middleware that otherwise sends the body of x402 v1. If the client
 * sent a custom header instead, browsers would send a preflight request first (CORS).
 */
export const challengeMediaType = 'application/vnd.tollkeeper.challenge+json'

export type ChallengeTerms = Pick<
  Challenge,
  | 'macaroon'
  | 'providerId'
  | 'endpointId'
  | 'requestId'
  | 'issuer'
  | 'offerTimeoutSeconds'
  | 'discovery'
  | 'seller'
> &
  Pick<MacaroonTerms, 'asset' | 'payTo' | 'feePayTo' | 'amount' | 'feeAmount' | 'pass'> & {
    network: Pick<Network, 'name' | 'eip712'>
    resource: string
    description: string
    mimeType?: string
    tier: Tier
    tab?: TabChallenge | undefined
  }

/** The description to use if an endpoint has none. */
export const noDescription = 'Provider payment'

/** Creates a challenge. Only its macaroon is signed. The other fields repeat the macaroon's terms, so that the buyer can read them. */
export function createChallenge(terms: ChallengeTerms): Challenge {
  const { network, asset, resource, mimeType = 'application/json' } = terms
  const requirements = (payTo: Address, amount: bigint, description: string): PaymentRequirements => ({
    scheme: 'exact',
    network: network.name,
    maxAmountRequired: amount.toString(),
    resource,
    description,
    mimeType,
    outputSchema: null,
    payTo,
    maxTimeoutSeconds,
    asset,
    extra: { name: network.eip712.name, version: network.eip712.version },
  })
  return {
    x402Version: 1,
    accepts: [
      requirements(terms.payTo, terms.amount, terms.description || noDescription),
      requirements(terms.feePayTo, terms.feeAmount, `Platform fee (${terms.tier})`),
    ],
    macaroon: terms.macaroon,
    providerId: terms.providerId,
    endpointId: terms.endpointId,
    requestId: terms.requestId,
    issuer: terms.issuer,
    ...(terms.offerTimeoutSeconds !== undefined && { offerTimeoutSeconds: terms.offerTimeoutSeconds }),
    ...(terms.tab && { tab: terms.tab }),
    ...(terms.pass && { pass: terms.pass }),
    ...(terms.discovery && { discovery: terms.discovery }),
    ...(terms.seller && { seller: terms.seller }),
  }
}

/**
 * Derives the nonce of the provider's authorization from a challenge: keccak256 of UTF-8 `x402:{issuer}:{requestId}`.
 *
 * The same challenge always gives the same nonce, so a buyer who signs for it twice can't be charged twice. A challenge of another gateway gives
 * another nonce.
 *
 * @param issuer the challenge's `issuer`.
 * @param requestId the challenge's `requestId`.
 * @param keccak a faster keccak256 than the portable one.
 * @returns 32 bytes.
 * @example
 * import { boundNonce } from '@tollkeeper/sdk/protocol'
 *
 * console.log(boundNonce('https://gateway.example', `req_${'0'.repeat(32)}`))
 * // 0xbc1f99bbea4be0c62b22d696c15a1a40ce28e2ef668b5e83d5a02d956c1d5072
 */
export function boundNonce(issuer: string, requestId: string, keccak: Keccak256 = portableKeccak256): Hex {
  return bytesToHex(keccak(encodeUtf8(`x402:${issuer}:${requestId}`)))
}

/**
 * Derives the nonce of the fee's authorization: the keccak256 of the provider's nonce. BatchSettlement derives it the same way.
 *
 * @param nonce 32 bytes, as {@link boundNonce} returns them.
 * @param keccak a faster keccak256 than the portable one.
 * @returns 32 bytes.
 * @example
 * import { boundNonce, feeNonce } from '@tollkeeper/sdk/protocol'
 *
 * console.log(feeNonce(boundNonce('https://gateway.example', `req_${'0'.repeat(32)}`)))
 * // 0x4b416a41f61b49b9500d015bd99627f8a5029ff1941b63754bd5d65561e5f419
 */
export function feeNonce(nonce: Hex, keccak: Keccak256 = portableKeccak256): Hex {
  return bytesToHex(keccak(hexToBytes(nonce)))
}

/**
 * Reads a challenge (conformance 2.1) from parsed JSON, such as the body of a 402.
 *
 * Checks only the form: exactly two entries with the same network, asset and resource. The caller must check whether the price, network and gateway
 * are acceptable, as `createClient` does.
 *
 * A challenge of another implementation may have only the fields of conformance 2.1 and 2.2. In that case, `maxTimeoutSeconds` is an hour
 * (conformance 2.4-12), and `extra` comes from the table of networks.
 *
 * @param issuer the gateway to assume if a challenge has no `issuer`. Default: `issuer` is required.
 * @returns addresses in lower-case, and only the fields of {@link Challenge}.
 * @throws {ProtocolError} `invalid_challenge`, with `details.field`.
 * @example
 * import { parseChallenge } from '@tollkeeper/sdk/protocol'
 *
 * export async function priceOf(url: string): Promise<bigint> {
 *   const response = await fetch(url)
 *   const { accepts } = parseChallenge(await response.json())
 *   return BigInt(accepts[0].maxAmountRequired) + BigInt(accepts[1].maxAmountRequired)
 * }
 */
export function parseChallenge(json: unknown, issuer?: string): Challenge {
  const body = object(json, 'challenge')
  if (body.x402Version !== 1) throw invalid('x402Version', `1, got ${JSON.stringify(body.x402Version)}`)
  const { accepts } = body
  if (!Array.isArray(accepts) || accepts.length !== 2) {
    throw invalid(
      'accepts',
      `exactly two entries, got ${Array.isArray(accepts) ? accepts.length : typeof accepts}`,
    )
  }
  const provider = parseRequirements(accepts[0], 'accepts[0]')
  const fee = parseRequirements(accepts[1], 'accepts[1]')
  for (const field of ['network', 'asset', 'resource'] as const) {
    if (provider[field] !== fee[field])
      throw invalid(`accepts[1].${field}`, `the same as accepts[0].${field}`)
  }
  return {
    x402Version: 1,
    accepts: [provider, fee],
    macaroon: text(body, 'macaroon', macaroonPattern),
    providerId: text(body, 'providerId'),
    endpointId: text(body, 'endpointId'),
    requestId: text(body, 'requestId'),
    issuer: issuer !== undefined && body.issuer === undefined ? issuer : text(body, 'issuer'),
    ...(body.signatures === 'one' && { signatures: body.signatures }),
    ...(body.offerTimeoutSeconds !== undefined && {
      offerTimeoutSeconds: parseTimeout(body.offerTimeoutSeconds, 'offerTimeoutSeconds'),
    }),
    ...(body.tab !== undefined && { tab: parseTab(body.tab) }),
    ...(body.pass !== undefined && { pass: parsePassTerms(body.pass) }),
    ...(body.discovery !== undefined && { discovery: parseDiscovery(body.discovery) }),
    ...(body.seller !== undefined && { seller: parseSeller(body.seller) }),
    ...(typeof body.error === 'string' && { error: body.error }),
    ...(typeof body.code === 'string' && { code: body.code }),
  }
}

function parseTab(json: unknown): TabChallenge {
  const { only, ...tab } = object(json, 'tab')
  const rewardShare = integer(tab.rewardShare, 'tab.rewardShare', [0, 10_000], 'basis points, 0 to 10000')
  const offeredUntil = integer(tab.offeredUntil, 'tab.offeredUntil', [0, 2 ** 40], 'Unix seconds')
  const split = text(tab, 'split', wordPattern, 'tab') as Hex
  return { split, rewardShare, offeredUntil, ...(only === true && { only }) }
}

function parseDiscovery(json: unknown): ChallengeDiscovery {
  const { serviceName, tags, iconUrl, bazaar } = object(json, 'discovery')
  const names = Array.isArray(tags) ? tags.filter((tag) => typeof tag === 'string') : []
  return {
    ...(typeof serviceName === 'string' && { serviceName }),
    ...(names.length > 0 && { tags: names }),
    ...(typeof iconUrl === 'string' && { iconUrl }),
    bazaar: object(bazaar, 'discovery.bazaar'),
  }
}

function parseSeller(json: unknown): ChallengeSeller {
  const { name, listing } = object(json, 'seller')
  return { name: typeof name === 'string' ? name : '', ...(typeof listing === 'string' && { listing }) }
}

function parseTimeout(value: unknown, field: string): number {
  return integer(value, field, [1, 2 ** 31], 'a positive whole number')
}

function parseRequirements(json: unknown, path: string): PaymentRequirements {
  const entry = object(json, path)
  if (entry.scheme !== 'exact') throw invalid(`${path}.scheme`, '"exact"')
  const network = text(entry, 'network', undefined, path)
  const known = isNetworkName(network) ? networkByName(network).eip712 : undefined
  const extra = object(entry.extra ?? known, `${path}.extra`)
  return {
    scheme: 'exact',
    network,
    maxAmountRequired: text(entry, 'maxAmountRequired', amountPattern, path),
    resource: text(entry, 'resource', undefined, path),
    description: typeof entry.description === 'string' ? entry.description : '',
    mimeType: typeof entry.mimeType === 'string' ? entry.mimeType : '',
    outputSchema: null,
    payTo: address(entry, 'payTo', path),
    maxTimeoutSeconds: parseTimeout(
      entry.maxTimeoutSeconds ?? defaultTimeoutSeconds,
      `${path}.maxTimeoutSeconds`,
    ),
    asset: address(entry, 'asset', path),
    extra: {
      name: text(extra, 'name', undefined, `${path}.extra`),
      version: text(extra, 'version', undefined, `${path}.extra`),
    },
  }
}

function address(parent: Record<string, unknown>, field: string, path: string): Address {
  return text(parent, field, /^0x[0-9a-fA-F]{40}$/, path).toLowerCase() as Address
}
