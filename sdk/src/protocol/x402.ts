import type { Address, Hex } from 'viem'
import { decodeBase64, encodeBase64, encodeUtf8 } from './bytes.ts'
import { type Challenge, type ChallengeDiscovery, offerTimeoutSeconds } from './challenge.ts'
import type { Keccak256 } from './eip3009.ts'
import { type ErrorCode, isErrorCode, ProtocolError } from './errors.ts'
import { fieldsOf, macaroonPattern } from './fields.ts'
import { isNetworkName, type NetworkName, networkByName, networks } from './networks.ts'
import { toDecimal } from './payload.ts'
import { splitterOf } from './splitter.ts'
import { encodeTabPayload, parseTabPayload, type TabPayload } from './tab.ts'

/*
 * The x402 standard's own form of a challenge and of a payment (https://github.com/coinbase/x402, specs/x402-specification-v2.md
 * and specs/transports-v2/http.md): JSON as base64 in a header. Other people's clients pay with it.
 */

/** An element of `accepts` of x402 v2: one authorization over the whole price, to a splitter. */
export type PaymentRequirementsV2 = {
  scheme: 'exact'
  /** CAIP-2. */
  network: `eip155:${number}`
  /** USDC base units, decimal. */
  amount: string
  asset: Address
  /** The splitter of `extra.splitter`. */
  payTo: Address
  maxTimeoutSeconds: number
  extra: {
    /** EIP-712 domain name and version of `asset`. */
    name: string
    version: string
    /** The signed message, which is EIP-3009's. Some clients ask for it, and others whether the token has it. */
    primaryType: 'TransferWithAuthorization'
    /** Comes back with the payment, because a client repeats what it accepted. */
    macaroon: string
    /** The terms from which anybody can recompute `payTo`. Shares are decimal. */
    splitter: {
      factory: Address
      provider: Address
      platform: Address
      providerShare: string
      platformShare: string
    }
  }
}

/** An element of `accepts` of x402 v2: the price may be put on a tab (docs/tabs.md). Stock clients skip the scheme. */
export type TabRequirements = {
  scheme: 'tab'
  /** CAIP-2. */
  network: `eip155:${number}`
  /** The price, USDC base units, decimal. */
  amount: string
  asset: Address
  /** The TabSettlement contract. */
  payTo: Address
  /** How long a tab is valid from its opening on. */
  maxTimeoutSeconds: number
  extra: {
    /** EIP-712 domain name and version of `asset`. */
    name: string
    version: string
    macaroon: string
    /** The gateway's public URL, which is in the nonce. */
    issuer: string
    /** Who is paid in which shares: 32 bytes, as `encodeSplit` packs them. */
    split: Hex
    platform: Address
    /** Basis points of the platform's part that go to whoever settles. */
    rewardShare: number
    /** Unix seconds until which the offer buys again, without another 402. */
    offeredUntil: number
  }
}

/** The header `PAYMENT-REQUIRED` of a 402 (x402 v2). */
export type PaymentRequired = {
  x402Version: 2
  /** Why it is a 402; for a refused payment in the standard's words. */
  error?: string
  resource: { url: string; description: string; mimeType: string } & Omit<ChallengeDiscovery, 'bazaar'>
  /** `exact`, then `tab`. A price below the least that settles alone is offered on tabs only. */
  accepts: [PaymentRequirementsV2, TabRequirements?] | [TabRequirements]
  /** How the resource is called, for catalogues and agents. */
  extensions?: { bazaar: object }
}

/** The header `PAYMENT-RESPONSE` (v1: `X-PAYMENT-RESPONSE`) of a paid answer. */
export type PaymentResponse = {
  success: true
  payer: Address
  /** The settlement's hash; empty while the payment waits for its batch. */
  transaction: string
  network: string
  /** The charge, USDC base units, decimal, if it is less than the price. */
  amount?: string
  extra: { paymentId: string; tab?: TabResponse }
  extensions: {
    'offer-receipt': { info: { receipt: { format: 'jws'; signature: string } }; schema: object }
  }
}

/** A paid answer's word on the tab that it was bought on. */
export type TabResponse = {
  id: string
  /** The number of the request. */
  sequence: number
  /** How many of its lines the gateway knows, whose splits needn't be sent again. */
  known: number
  /**
   * The credit that this request's line began with, USDC base units, decimal, because an earlier tab charged the buyer too much. The
   * line's amount may be this much lower.
   */
  credit?: string
  /** It closes soon, or has closed: the next request should be on another tab. */
  closing?: true
}

/**
 * Reads a tab's state from the header `PAYMENT-RESPONSE` of a paid answer. It is the provider's word, not the gateway's.
 *
 * @param response the header, or its decoded value.
 * @returns undefined if it says nothing of a tab, or can't be read.
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

/** A payment as the headers `PAYMENT-SIGNATURE` and `X-PAYMENT` carry it. Nothing in it is verified. */
export type X402Payment = {
  x402Version: 1 | 2
  network: NetworkName
  /** From the accepted challenge; undefined in v1, and if a client doesn't repeat it. */
  macaroon: string | undefined
} & (
  | {
      scheme: 'exact'
      /** The authorization, as {@link parsePayload} reads it. */
      payload: string
    }
  /** Its form was checked by {@link parseTabPayload}. */
  | { scheme: 'tab'; tab: TabPayload }
)

/** Below Node's limit of 16 KiB for all headers; the longest macaroon and signature fit into it. */
const maxHeaderLength = 12_288
const base64Pattern = /^[A-Za-z0-9+/]+={0,2}$/

const { invalid, object } = fieldsOf('invalid_payload', 'Payment')

const authorizationFields = ['from', 'to', 'value', 'validAfter', 'validBefore', 'nonce'] as const
const integerFields: ReadonlySet<string> = new Set(['value', 'validAfter', 'validBefore'])

/**
 * Offers a challenge to clients of x402 v2: the whole price in one authorization, paid to the splitter of both parts; and on a
 * tab, if the challenge allows it.
 *
 * @param factory the `SplitterFactory` of one's own table, whose splitters are paid.
 * @param keccak a faster keccak256 than the portable one.
 * @param tabSettlement the `TabSettlement` of one's own table. Default: nothing is offered on tabs.
 * @returns undefined for a network that isn't in the table, and for a price that no splitter divides exactly.
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
    discovery,
  }: Challenge,
  factory: Address,
  keccak?: Keccak256,
  tabSettlement?: Address,
): PaymentRequired | undefined {
  const amount = BigInt(provider.maxAmountRequired)
  const feeAmount = BigInt(fee.maxAmountRequired)
  if (!isNetworkName(provider.network)) return undefined
  const { caip2: network } = networks[provider.network]
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
    // No longer than our own client is asked to sign for.
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
    },
  }
  return { ...head, accepts: onTab ? [exact, onTab] : [exact] }
}

const valueMismatch = 'invalid_exact_evm_payload_authorization_value_mismatch'
const validBefore = 'invalid_exact_evm_payload_authorization_valid_before'
const reasons: Partial<Record<ErrorCode, string>> = {
  authorization_used: 'invalid_transaction_state',
  payer_quarantined: 'invalid_transaction_state',
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

/** The word of x402 (x402-specification-v2.md section 9) for one of our codes; undefined if it has none. */
export function findReason(code: string): string | undefined {
  return isErrorCode(code) ? reasons[code] : undefined
}

/** x402's word for why a payment was refused (x402-specification-v2.md section 9). */
export function reasonOf(code: ErrorCode, x402Version: 1 | 2): string {
  // A client that keeps a tab needs the very reason, for which the standard has no words.
  if (/^tabs?_/.test(code)) return code
  const reason = reasons[code] ?? 'invalid_payload'
  return x402Version === 1 && reason === valueMismatch ? reason.replace('_mismatch', '') : reason
}

/**
 * Writes JSON in the form of x402's headers: base64 (RFC 4648 section 4) of UTF-8.
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
 * Reads the header `PAYMENT-SIGNATURE` (x402 v2) or `X-PAYMENT` (v1) of a payment by scheme `exact` and EIP-3009, or by a `tab` (v2).
 *
 * Takes only what a payment is verified by: the authorization, its network, and the macaroon of the challenge. Anything else that a
 * client repeats of the challenge is its own claim, and is dropped.
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
  throw new ProtocolError('unknown_network', `No network is called "${caip2.slice(0, 80)}" by CAIP-2`)
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
 * Reads what {@link encodePaymentHeader} wrote.
 *
 * @throws {ProtocolError} `invalid_payload`
 */
export function decodePaymentHeader(header: string): unknown {
  if (header.length > maxHeaderLength) throw invalid('header', `at most ${maxHeaderLength} characters`)
  try {
    if (!base64Pattern.test(header)) throw new TypeError('not base64')
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(decodeBase64(header)))
  } catch (cause) {
    throw invalid('header', 'JSON in base64, and only once', cause)
  }
}

function text(value: unknown, path: string): string {
  // A comma would move what follows into the next part.
  if (typeof value !== 'string' || value === '' || value.includes(',')) throw invalid(path, 'a string')
  return value
}
