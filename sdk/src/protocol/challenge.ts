import type { Address, Hex } from 'viem'
import { bytesToHex, encodeUtf8, hexToBytes } from './bytes.ts'
import { type Keccak256, portableKeccak256 } from './eip3009.ts'
import { amountPattern, fieldsOf, macaroonPattern, wordPattern } from './fields.ts'
import type { MacaroonTerms } from './macaroon.ts'
import { isNetworkName, type Network, networks } from './networks.ts'
import type { Tier } from './tier.ts'

/** One payment that a challenge asks for: an element of `accepts` (conformance 2.2), with the further fields of x402 v1. */
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
  /** How many seconds the signature is valid: the SDK signs `validBefore` = now + this. */
  maxTimeoutSeconds: number
  asset: Address
  /** EIP-712 domain name and version of `asset`. */
  extra: { name: string; version: string }
}

/** Body of a 402 and of the answer to `/challenge` (conformance 2.1). */
export type Challenge = {
  x402Version: 1
  /** The provider's payment, then the platform's fee. The buyer signs both. */
  accepts: [PaymentRequirements, PaymentRequirements]
  macaroon: string
  providerId: string
  endpointId: string
  requestId: string
  /** The gateway's public URL. A buyer's SDK compares it with its `gatewayUrl` and derives the nonces from it. */
  issuer: string
  /** Asks our SDK to pay both parts by one authorization, to their splitter. */
  signatures?: 'one'
  /** How many seconds x402's clients, which pay by another form of this, are to sign for. Default: {@link offerTimeoutSeconds}. */
  offerTimeoutSeconds?: number
  /** Set if the price may be put on a tab (docs/tabs.md). */
  tab?: TabChallenge
  /** The resource's description for catalogues; only the header of x402 v2 passes it on. */
  discovery?: ChallengeDiscovery
  /** Why the answer is 402, in words for people (x402 v1). */
  error?: string
  /** Why the presented payment was refused: a stable code. */
  code?: string
}

/** A challenge's fields for discovery: its service, and how the resource is called (x402's extension `bazaar`). */
export type ChallengeDiscovery = {
  serviceName?: string
  tags?: readonly string[]
  iconUrl?: string
  bazaar: object
}

/** A challenge's offer to put its price on a tab; the rest of an offer is computed from its two entries. */
export type TabChallenge = {
  /** Who gets the price on a tab, in which shares: 32 bytes, as `encodeSplit` packs them. */
  split: Hex
  /** Basis points of the platform's part that go to whoever settles. */
  rewardShare: number
  /** Unix seconds until which the macaroon buys by a tab, again and again. */
  offeredUntil: number
  /** The price is too small to settle alone, so it is taken only on a tab. */
  only?: true
}

/**
 * Most seconds that a signature of the SDK is valid: 26 hours. A payment waits for up to one hour and is retried for up to 24.
 *
 * @example
 * import { maxTimeoutSeconds } from '@tollkeeper/sdk/protocol'
 *
 * console.log(maxTimeoutSeconds / 3600)
 * // 26
 */
export const maxTimeoutSeconds = 93_600

/** How many seconds x402's clients are asked to sign for by default: some of them refuse more than an hour. */
export const offerTimeoutSeconds = 3_600

/** Maximum length of the URL of a requested resource. Servers and proxies take request lines of 8 KiB. */
export const maxResourceLength = 8_192

const { invalid, object, text, integer } = fieldsOf('invalid_challenge', 'Challenge', /^.{1,8192}$/s)

/** How long a signature is valid if the challenge doesn't say: an hour, as in conformance 2.4-12. */
const defaultTimeoutSeconds = 3_600

/**
 * In `Accept`, asks for this body where a middleware's default is that of x402 v1. For a header of its own, browsers would
 * ask for permission first (CORS).
 */
export const challengeMediaType = 'application/vnd.tollkeeper.challenge+json'

export type ChallengeTerms = Pick<
  Challenge,
  'macaroon' | 'providerId' | 'endpointId' | 'requestId' | 'issuer' | 'offerTimeoutSeconds' | 'discovery'
> &
  Pick<MacaroonTerms, 'asset' | 'payTo' | 'feePayTo' | 'amount' | 'feeAmount'> & {
    network: Pick<Network, 'name' | 'eip712'>
    resource: string
    description: string
    mimeType?: string
    tier: Tier
    tab?: TabChallenge | undefined
  }

/** Builds a challenge. Only its macaroon is signed; the rest repeats the macaroon's terms for the buyer to read. */
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
      requirements(terms.payTo, terms.amount, terms.description || 'Provider payment'),
      requirements(terms.feePayTo, terms.feeAmount, `Platform fee (${terms.tier})`),
    ],
    macaroon: terms.macaroon,
    providerId: terms.providerId,
    endpointId: terms.endpointId,
    requestId: terms.requestId,
    issuer: terms.issuer,
    ...(terms.offerTimeoutSeconds !== undefined && { offerTimeoutSeconds: terms.offerTimeoutSeconds }),
    ...(terms.tab && { tab: terms.tab }),
    ...(terms.discovery && { discovery: terms.discovery }),
  }
}

/**
 * Derives the nonce of the provider's authorization from a challenge: keccak256 of UTF-8 `x402:{issuer}:{requestId}`.
 *
 * Signing the same challenge twice gives the same nonce, so it can't be charged twice. Another gateway's challenge gives
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
 * Derives the nonce of the fee's authorization: keccak256 of the provider's nonce. BatchSettlement derives it the same way.
 *
 * @param nonce 32 bytes, of {@link boundNonce}.
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
 * Checks only its form: exactly two entries with one network, one asset and one resource. Whether its price, network and
 * gateway are acceptable is for the caller to check, as `createClient` does.
 *
 * Another implementation's challenge may have only the fields of conformance 2.1 and 2.2. Then `maxTimeoutSeconds` is an hour
 * (conformance 2.4-12), and `extra` comes from the networks table.
 *
 * @param issuer the assumed gateway of a challenge without an `issuer`. Default: `issuer` is required.
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
    ...(body.discovery !== undefined && { discovery: parseDiscovery(body.discovery) }),
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

function parseTimeout(value: unknown, field: string): number {
  return integer(value, field, [1, 2 ** 31], 'a positive whole number')
}

function parseRequirements(json: unknown, path: string): PaymentRequirements {
  const entry = object(json, path)
  if (entry.scheme !== 'exact') throw invalid(`${path}.scheme`, '"exact"')
  const network = text(entry, 'network', undefined, path)
  const known = isNetworkName(network) ? networks[network].eip712 : undefined
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
