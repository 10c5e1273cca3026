import type { Address, Hex } from 'viem'
import { decodeBase64, encodeBase64, encodeUtf8 } from './bytes.ts'
import { type Challenge, type ChallengeDiscovery, offerTimeoutSeconds } from './challenge.ts'
import type { Keccak256 } from './eip3009.ts'
import { type ErrorCode, isErrorCode, ProtocolError } from './errors.ts'
import { fieldsOf, macaroonPattern } from './fields.ts'
import { isNetworkName, type NetworkName, networkByName, networks } from './networks.ts'
import type { PassTerms } from './passTerms.ts'
import { toDecimal } from './payload.ts'
import { splitterOf } from './splitter.ts'
import { encodeTabPayload, parseTabPayload, type TabPayload } from './tab.ts'

/*
 * The x402 standard's form of a challenge and of a payment, which other clients use (https://github.com/coinbase/x402, specs/x402-specification-v2.md
 * and specs/transports-v2/http.md). It is base64-encoded JSON in a header.
 */

/** An element of `accepts` in x402 v2: one authorization for the whole price, paid to a splitter. */
export type PaymentRequirementsV2 = {
  scheme: 'exact'
  /** CAIP-2 id. */
  network: `eip155:${number}`
  /** USDC base units, decimal. */
  amount: string
  asset: Address
  /** Address of the splitter that `extra.splitter` describes. */
  payTo: Address
  maxTimeoutSeconds: number
  extra: {
    /** Name and version of `asset`'s EIP-712 domain. */
    name: string
    version: string
    /**
     * The type of the signed message, as EIP-3009 names it. Some clients require this field. Others use it to check that the token supports the
     * message.
     */
    primaryType: 'TransferWithAuthorization'
    /** The challenge's macaroon. A client repeats the accepted offer in its payment, so the macaroon comes back. */
    macaroon: string
    /** The terms from which anyone can compute `payTo`. Shares are decimal. */
    splitter: {
      factory: Address
      provider: Address
      platform: Address
      providerShare: string
      platformShare: string
    }
    /** Set if the payment buys a pass (docs/passes.md). */
    pass?: PassTerms
  }
}

/** An element of `accepts` in x402 v2: the price may be put on a tab (docs/tabs.md). Clients that don't know the scheme ignore it. */
export type TabRequirements = {
  scheme: 'tab'
  /** CAIP-2 id. */
  network: `eip155:${number}`
  /** The price in USDC base units, decimal. */
  amount: string
  asset: Address
  /** Address of the TabSettlement contract. */
  payTo: Address
  /** Validity of a new tab in seconds. */
  maxTimeoutSeconds: number
  extra: {
    /** Name and version of `asset`'s EIP-712 domain. */
    name: string
    version: string
    macaroon: string
    /** The gateway's public URL. The tab's nonce is derived from it. */
    issuer: string
    /** The recipients and their shares: 32 bytes in the packed form of `encodeSplit`. */
    split: Hex
    platform: Address
    /** The reward for settling, in basis points of the platform's part. */
    rewardShare: number
    /** Expiry of the offer in Unix seconds. Until then, the client can use the offer again without another 402. */
    offeredUntil: number
  }
}

/** The header `PAYMENT-REQUIRED` of a 402 (x402 v2). */
export type PaymentRequired = {
  x402Version: 2
  /** Why the response is a 402. If a payment was refused, this is the standard's reason. */
  error?: string
  resource: { url: string; description: string; mimeType: string } & Omit<ChallengeDiscovery, 'bazaar'>
  /** First `exact`, then `tab`. A price below the minimum of a single payment has only `tab`. */
  accepts: [PaymentRequirementsV2, TabRequirements?] | [TabRequirements]
  /** How to call the resource. For catalogs and agents. */
  extensions?: { bazaar: object }
}

/** The header `PAYMENT-RESPONSE` (v1: `X-PAYMENT-RESPONSE`) of a paid response. */
export type PaymentResponse = {
  success: true
  payer: Address
  /** The settlement's transaction hash. Empty while the payment waits for its batch. */
  transaction: string
  network: string
  /** The charge in USDC base units, decimal. Set if it is below the price. */
  amount?: string
  extra: { paymentId: string; tab?: TabResponse }
  extensions: {
    'offer-receipt': { info: { receipt: { format: 'jws'; signature: string } }; schema: object }
  }
}

/** The state of the request's tab, in a paid response. */
export type TabResponse = {
  id: string
  /** The number of the request on the tab. */
  sequence: number
  /** Number of lines that the gateway has confirmed. The client needn't send their splits again. */
  known: number
  /**
   * The credit that this request's line started with, in USDC base units, decimal. An earlier tab overcharged the buyer by this amount, so the line's
   * amount may be lower by this credit.
   */
  credit?: string
  /** Set if the tab closes soon, or has closed. The next request should use another tab. */
  closing?: true
}

/**
 * Reads the state of a tab from the header `PAYMENT-RESPONSE` of a paid response. The provider writes this header, not the gateway.
 *
 * @param response the header, or its decoded value.
 * @returns undefined if the header doesn't mention a tab, or can't be read.
 * @example
 * import { encodePaymentHeader, readTabResponse } from '@tollkeeper/sdk/protocol'
 *
 * const tab = { id: `tab_${'0'.repeat(32)}`, sequence: 3, known: 2 }
 * console.log(readTabResponse(encodePaymentHeader({ success: true, extra: { paymentId: 'pay_1', tab } }))?.known)
 * // 2
 */
export function readTabResponse(response: string | object | null): TabResponse | undefined {
  if (response === null) return undefined
  try {
    const { extra } = object(typeof response === 'string' ? decodePaymentHeader(response) : response, '')
    const { id, sequence, known, credit, closing } = object(object(extra, '').tab, '')
    if (typeof id !== 'string' || !isCount(sequence) || !isCount(known)) return undefined
    const isCredit = typeof credit === 'string' && /^[1-9]\d{0,14}$/.test(credit)
    return { id, sequence, known, ...(isCredit && { credit }), ...(closing === true && { closing }) }
  } catch {
    return undefined
  }
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

/** A payment in the header `PAYMENT-SIGNATURE` or `X-PAYMENT`. Its contents are unverified. */
export type X402Payment = {
  x402Version: 1 | 2
  network: NetworkName
  /** The macaroon of the accepted challenge. Undefined in v1, and if a client doesn't return it. */
  macaroon: string | undefined
} & (
  | {
      scheme: 'exact'
      /** The authorization, in the form that {@link parsePayload} reads. */
      payload: string
    }
  /** The payment on a tab. {@link parseTabPayload} has checked its form. */
  | { scheme: 'tab'; tab: TabPayload }
)

/** Maximum length of the header. It is below Node's limit of 16 KiB for all headers, and has room for the longest macaroon and signature. */
const maxHeaderLength = 12_288
const base64Pattern = /^[A-Za-z0-9+/]+={0,2}$/

const { invalid, object } = fieldsOf('invalid_payload', 'Payment')

const authorizationFields = ['from', 'to', 'value', 'validAfter', 'validBefore', 'nonce'] as const
const integerFields: ReadonlySet<string> = new Set(['value', 'validAfter', 'validBefore'])

/**
 * Converts a challenge to an offer for clients of x402 v2. A client can pay the whole price to a splitter with one authorization or, if the challenge
 * allows it, on a tab.
 *
 * @param factory the `SplitterFactory` from the caller's own table. It determines the splitter's address.
 * @param keccak a faster keccak256 than the portable one.
 * @param tabSettlement the `TabSettlement` from the caller's own table. Default: tabs aren't offered.
 * @returns undefined for a network that isn't in the table, and for a price that no splitter can divide exactly.
 * @example
 * import { encodePaymentHeader, parseChallenge, toPaymentRequired } from '@tollkeeper/sdk/protocol'
 *
 * export function paymentRequiredHeader(body: unknown, factory: `0x${string}`): string | undefined {
 *   const required = toPaymentRequired(parseChallenge(body), factory)
 *   return required && encodePaymentHeader(required)
 * }
 */
export function toPaymentRequired(
  {
    accepts: [provider, fee],
    offerTimeoutSeconds: timeout = offerTimeoutSeconds,
    macaroon,
    issuer,
    tab,
    pass,
    discovery,
  }: Challenge,
  factory: Address,
  keccak?: Keccak256,
  tabSettlement?: Address,
): PaymentRequired | undefined {
  const amount = BigInt(provider.maxAmountRequired)
  const feeAmount = BigInt(fee.maxAmountRequired)
  if (!isNetworkName(provider.network)) return undefined
  const { caip2: network } = networkByName(provider.network)
  const { resource: url, description, mimeType, asset, maxTimeoutSeconds } = provider
  const { bazaar, ...service } = discovery ?? {}
  const head = {
    x402Version: 2 as const,
    resource: { url, description, mimeType, ...service },
    ...(bazaar && { extensions: { bazaar } }),
  }
  const price = (amount + feeAmount).toString()
  const onTab: TabRequirements | undefined = tab &&
    tabSettlement && {
      scheme: 'tab',
      network,
      amount: price,
      asset,
      payTo: tabSettlement,
      maxTimeoutSeconds,
      extra: {
        ...provider.extra,
        macaroon,
        issuer,
        platform: fee.payTo,
        split: tab.split,
        rewardShare: tab.rewardShare,
        offeredUntil: tab.offeredUntil,
      },
    }
  if (tab?.only) return onTab && { ...head, accepts: [onTab] }
  const splitter = splitterOf(
    { payTo: provider.payTo, feePayTo: fee.payTo, amount, feeAmount },
    factory,
    keccak,
  )
  if (!splitter) return undefined
  const exact: PaymentRequirementsV2 = {
    scheme: 'exact',
    network,
    amount: price,
    asset,
    payTo: splitter.address,
    // Don't ask for more than our own client's maximum, because the client would refuse to sign for longer.
    maxTimeoutSeconds: Math.min(timeout, maxTimeoutSeconds),
    extra: {
      ...provider.extra,
      primaryType: 'TransferWithAuthorization',
      macaroon,
      splitter: {
        factory,
        provider: splitter.provider,
        platform: splitter.platform,
        providerShare: splitter.providerShare.toString(),
        platformShare: splitter.platformShare.toString(),
      },
      ...(pass && { pass }),
    },
  }
  return { ...head, accepts: onTab ? [exact, onTab] : [exact] }
}

const valueMismatch = 'invalid_exact_evm_payload_authorization_value_mismatch'
const validBefore = 'invalid_exact_evm_payload_authorization_valid_before'
const reasons: Partial<Record<ErrorCode, string>> = {
  authorization_used: 'invalid_transaction_state',
  payer_blocked: 'invalid_transaction_state',
  token_paused: 'invalid_transaction_state',
  insufficient_balance: 'insufficient_funds',
  invalid_signature: 'invalid_exact_evm_payload_signature',
  payees_mismatch: 'invalid_exact_evm_payload_recipient_mismatch',
  authorization_not_yet_valid: 'invalid_exact_evm_payload_authorization_valid_after',
  authorization_expired: validBefore,
  authorization_expires_too_soon: validBefore,
  amount_mismatch: valueMismatch,
  amount_too_low: valueMismatch,
  amount_too_high: valueMismatch,
  challenge_network_mismatch: 'invalid_network',
  challenge_price_too_low: 'invalid_payment_requirements',
  macaroon_invalid: 'invalid_payment_requirements',
  macaroon_expired: 'invalid_payment_requirements',
  caveat_mismatch: 'invalid_payment_requirements',
  unknown_caveat: 'invalid_payment_requirements',
  authorization_cancelled: 'invalid_transaction_state',
  payer_blacklisted: 'invalid_transaction_state',
  payer_in_debt: 'invalid_transaction_state',
  payer_limit_exceeded: 'invalid_transaction_state',
}

/** Returns x402's reason (x402-specification-v2.md section 9) for one of our codes. Returns undefined if x402 has none. */
export function findReason(code: string): string | undefined {
  return isErrorCode(code) ? reasons[code] : undefined
}

/** Returns x402's reason why a payment was refused (x402-specification-v2.md section 9). */
export function reasonOf(code: ErrorCode, x402Version: 1 | 2): string {
  // A client with a tab needs the exact reason. The standard has no term for it, so return our own code.
  if (/^tabs?_/.test(code)) return code
  const reason = reasons[code] ?? 'invalid_payload'
  return x402Version === 1 && reason === valueMismatch ? reason.replace('_mismatch', '') : reason
}

/**
 * Encodes JSON as the value of an x402 header: base64 (RFC 4648 section 4) of UTF-8.
 *
 * @example
 * import { encodePaymentHeader } from '@tollkeeper/sdk/protocol'
 *
 * console.log(encodePaymentHeader({ x402Version: 2 }))
 * // eyJ4NDAyVmVyc2lvbiI6Mn0=
 */
export function encodePaymentHeader(value: object): string {
  return encodeBase64(encodeUtf8(JSON.stringify(value)))
}

/**
 * Reads the header `PAYMENT-SIGNATURE` (x402 v2) or `X-PAYMENT` (v1). The payment's scheme is `exact` with EIP-3009, or `tab` (only v2).
 *
 * Returns only what is needed to verify the payment: the authorization, its network, and the challenge's macaroon. The payment may repeat other parts
 * of the challenge. They are ignored, because they are only the client's claims.
 *
 * @throws {ProtocolError} `invalid_payload`, `unknown_network`
 * @example
 * import { encodePaymentHeader, parsePaymentHeader } from '@tollkeeper/sdk/protocol'
 *
 * const from = `0x${'a'.repeat(40)}`
 * const to = `0x${'b'.repeat(40)}`
 * const authorization = { from, to, value: '50000', validAfter: '0', validBefore: '1800093600', nonce: `0x${'0'.repeat(64)}` }
 * const payload = { authorization, signature: `0x${'1'.repeat(130)}` }
 * const header = encodePaymentHeader({ x402Version: 1, scheme: 'exact', network: 'base', payload })
 * const payment = parsePaymentHeader(header)
 * if (payment.scheme === 'exact') console.log(payment.payload.split(',')[2])
 * // 50000
 */
export function parsePaymentHeader(header: string): X402Payment {
  const payment = object(decodePaymentHeader(header), 'payment')
  const { x402Version } = payment
  if (x402Version !== 1 && x402Version !== 2) throw invalid('x402Version', '1 or 2')
  const terms = x402Version === 2 ? object(payment.accepted, 'accepted') : payment
  const { scheme } = terms
  if (scheme !== 'exact' && !(scheme === 'tab' && x402Version === 2))
    throw invalid('scheme', '"exact" or "tab"')
  const network = text(terms.network, 'network')
  if (scheme === 'tab') {
    const tab = encodeTabPayload(parseTabPayload(payment.payload))
    return {
      x402Version,
      scheme,
      tab,
      network: nameOfCaip2(network),
      macaroon: readMacaroon(terms.extra),
    }
  }
  const { signature, authorization } = object(payment.payload, 'payload')
  const signed = object(authorization, 'payload.authorization')
  const parts = authorizationFields.map((field) => {
    const value = integerFields.has(field) ? toDecimal(signed[field]) : signed[field]
    return text(value, `payload.authorization.${field}`)
  })
  return {
    x402Version,
    scheme,
    network: x402Version === 2 ? nameOfCaip2(network) : networkByName(network).name,
    macaroon: x402Version === 2 ? readMacaroon(terms.extra) : undefined,
    payload: [...parts, text(signature, 'payload.signature')].join(','),
  }
}

function nameOfCaip2(caip2: string): NetworkName {
  const network = Object.values(networks).find((one) => one.caip2 === caip2)
  if (network) return network.name
  throw new ProtocolError('unknown_network', `No network has the CAIP-2 id "${caip2.slice(0, 80)}"`)
}

function readMacaroon(extra: unknown): string | undefined {
  if (extra === undefined || extra === null) return undefined
  const { macaroon } = object(extra, 'accepted.extra')
  if (macaroon === undefined) return undefined
  if (typeof macaroon !== 'string' || !macaroonPattern.test(macaroon)) {
    throw invalid('accepted.extra.macaroon', 'the macaroon of the challenge, unchanged')
  }
  return macaroon
}

/**
 * Decodes a header of {@link encodePaymentHeader}.
 *
 * @throws {ProtocolError} `invalid_payload`
 */
export function decodePaymentHeader(header: string): unknown {
  if (header.length > maxHeaderLength) throw invalid('header', `at most ${maxHeaderLength} characters`)
  try {
    if (!base64Pattern.test(header)) throw new TypeError('not base64')
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(decodeBase64(header)))
  } catch (cause) {
    throw invalid('header', 'JSON in base64, sent only once', cause)
  }
}

function text(value: unknown, path: string): string {
  // Reject a comma: the payload separates its parts with commas, so the text after the comma would count as the next part.
  if (typeof value !== 'string' || value === '' || value.includes(',')) throw invalid(path, 'a string')
  return value
}
