import type { Address, Hash, Hex } from 'viem'
import { decodeBase64url } from './bytes.ts'
import { addressPattern, amountPattern, fieldsOf, wordPattern } from './fields.ts'
import { isNetworkName, networkByName } from './networks.ts'
import { isPaymentStatus, type PaymentStatus } from './paymentStatus.ts'
import { maxRefunds } from './refund.ts'

/**
 * The `transactionHash` of a receipt whose payment has not settled yet.
 *
 * @example
 * import { decodeReceipt, zeroHash } from '@tollkeeper/sdk/protocol'
 *
 * export const isSettled = (receipt: string) => {
 *   const claims = decodeReceipt(receipt)
 *   return claims !== undefined && claims.transactionHash !== zeroHash
 * }
 */
export const zeroHash: Hash = `0x${'0'.repeat(64)}`

/** One authorization of the payment, with the fields that the buyer signed. */
export type ReceiptAuthorization = {
  to: Address
  /** USDC base units, decimal. */
  value: string
  nonce: Hex
}

/** The provider's authorization and the platform's, or a single authorization that pays both. */
export type ReceiptAuthorizations =
  | [ReceiptAuthorization]
  | [provider: ReceiptAuthorization, platform: ReceiptAuthorization]

/** A refund of a payment. Its authorization transfers USDC from the provider's wallet to the payer. */
export type ReceiptRefund = {
  /** The refund's number within its payment, from 1. The nonce depends on it (see `refundNonce`). */
  number: number
  from: Address
  /** USDC base units, decimal. */
  value: string
  nonce: Hex
  /** Transaction of the refund. {@link zeroHash} until it is confirmed. */
  transactionHash: Hash
}

/**
 * The payload of a receipt's JWS: the ten fields of conformance 2.5, and the data that an auditor needs to find the payment on chain.
 */
export type ReceiptClaims = {
  paymentId: string
  providerId: string
  endpointId: string
  /** The signed amount in USDC base units, decimal: `providerUsdc + platformUsdc`. */
  totalUsdc: string
  providerUsdc: string
  platformUsdc: string
  /** Tier of the price. An overpayment does not change it. */
  tier: string
  /** Fee as a decimal fraction of the price. */
  effectiveRate: string
  /** When the gateway accepted the payment, ISO 8601 UTC. */
  timestamp: string
  /** Transaction of the settlement. {@link zeroHash} until it is confirmed. */
  transactionHash: Hash

  /** The gateway's public URL. */
  iss: string
  /** When this receipt was signed, in Unix seconds. */
  iat: number
  status: PaymentStatus
  network: string
  /** Whether the payment was made in testnet USDC, which has no value. */
  testnet: boolean
  asset: Address
  payer: Address
  resource: string
  /** The earlier `validBefore` of the two authorizations: Unix seconds, decimal. */
  validBefore: string
  /** The provider's authorization, then the platform's if there is one. */
  authorizations: ReceiptAuthorizations
  /** The wallets between which a splitter divides the single authorization. Absent if each part has a separate authorization. */
  split?: { provider: Address; platform: Address }
  /** Block of `transactionHash`. Set after the settlement. */
  blockHash?: Hash
  /** The refunds at the time `iat`, without failed ones. Absent if there are none. */
  refunds?: ReceiptRefund[]
  /** Set for a request on a tab. The `value` of the single authorization is then this request's price. */
  tab?: ReceiptTab
}

/**
 * A request on a tab. The request is settled if and only if the tab settled with a sufficient amount on the line with this split. An amount is
 * sufficient if it is at least `lineTotal`, minus the amounts by which earlier requests' charges were reduced after this receipt was signed.
 */
export type ReceiptTab = {
  id: string
  /** The number of the request on its tab. */
  sequence: number
  /** The recipients and their shares: 32 bytes in the packed form of `encodeSplit`. */
  split: Hex
  /** The reward for settling, in basis points of the platform's part. */
  rewardShare: number
  /** The sum of the line's charges up to and including this request, in USDC base units, decimal, minus the amount that earlier tabs overcharged. */
  lineTotal: string
  /**
   * The amount by which the line's charges up to and including this request were below their prices when `lineTotal` was signed. Absent if 0. The sum
   * of `lineTotal` and this value only increases from one request of a line to the next, so it shows the order of the requests.
   */
  lineReduced?: string
  /** The amount by which this request's charge is below its price. For a `voided` request, this is the whole price. Absent if 0. */
  reduced?: string
}

const timePattern = /^(?:0|[1-9]\d{0,12})$/
const isoTimePattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z$/
const ratePattern = /^\d(?:\.\d{1,6})?$/

const { invalid, object, text, integer } = fieldsOf('invalid_receipt', 'Receipt', /^.{1,4096}$/s)

/**
 * Reads the claims of a receipt whose signature was verified, and checks that the claims are consistent (conformance 2.5).
 *
 * Ignores unknown claims. `verifyReceipt` of `@tollkeeper/sdk/audit` also verifies the signature.
 *
 * @param payload the JWS's payload as parsed JSON.
 * @throws {ProtocolError} `invalid_receipt`, with `details.field`.
 * @example
 * import { parseReceiptClaims } from '@tollkeeper/sdk/protocol'
 * import { compactVerify, type CryptoKey } from 'jose'
 *
 * export async function readReceipt(jws: string, key: CryptoKey) {
 *   const { payload } = await compactVerify(jws, key, { algorithms: ['ES256'] })
 *   return parseReceiptClaims(JSON.parse(new TextDecoder().decode(payload)))
 * }
 */
export function parseReceiptClaims(payload: unknown): ReceiptClaims {
  const claims = object(payload, 'receipt')
  const iat = integer(claims.iat, 'iat', [0, Number.MAX_SAFE_INTEGER], 'Unix seconds')
  const { status, testnet, blockHash } = claims
  if (!isPaymentStatus(status)) throw invalid('status', 'a payment status')
  if (typeof testnet !== 'boolean') throw invalid('testnet', 'true or false')
  const receipt: ReceiptClaims = {
    paymentId: text(claims, 'paymentId'),
    providerId: text(claims, 'providerId'),
    endpointId: text(claims, 'endpointId'),
    totalUsdc: text(claims, 'totalUsdc', amountPattern),
    providerUsdc: text(claims, 'providerUsdc', amountPattern),
    platformUsdc: text(claims, 'platformUsdc', amountPattern),
    tier: text(claims, 'tier'),
    effectiveRate: text(claims, 'effectiveRate', ratePattern),
    timestamp: text(claims, 'timestamp', isoTimePattern),
    transactionHash: text(claims, 'transactionHash', wordPattern) as Hash,
    iss: text(claims, 'iss'),
    iat,
    status,
    network: text(claims, 'network'),
    testnet,
    asset: text(claims, 'asset', addressPattern) as Address,
    payer: text(claims, 'payer', addressPattern) as Address,
    resource: text(claims, 'resource'),
    validBefore: text(claims, 'validBefore', timePattern),
    authorizations: parseAuthorizations(claims.authorizations),
    ...(claims.split !== undefined && { split: parseSplit(claims.split) }),
    ...(blockHash !== undefined && { blockHash: text(claims, 'blockHash', wordPattern) as Hash }),
    ...(claims.refunds !== undefined && { refunds: parseRefunds(claims.refunds) }),
    ...(claims.tab !== undefined && { tab: parseTab(claims.tab) }),
  }
  if (BigInt(receipt.providerUsdc) + BigInt(receipt.platformUsdc) !== BigInt(receipt.totalUsdc)) {
    throw invalid('totalUsdc', 'providerUsdc + platformUsdc')
  }
  if (isNetworkName(receipt.network) && networkByName(receipt.network).testnet !== testnet) {
    throw invalid('testnet', `that of ${receipt.network}`)
  }
  const refunded = (receipt.refunds ?? []).reduce((sum, { value }) => sum + BigInt(value), 0n)
  if (refunded > BigInt(receipt.totalUsdc)) throw invalid('refunds', 'at most totalUsdc together')
  const [provider, platform] = receipt.authorizations
  if (platform === undefined) requireOne(receipt, provider)
  else {
    if (receipt.split !== undefined) throw invalid('split', 'absent with two authorizations')
    if (receipt.tab !== undefined) throw invalid('tab', 'absent with two authorizations')
    if (provider.value !== receipt.providerUsdc) throw invalid('authorizations[0].value', 'providerUsdc')
    if (platform.value !== receipt.platformUsdc) throw invalid('authorizations[1].value', 'platformUsdc')
  }
  return receipt
}

/**
 * Reads a receipt's claims WITHOUT verifying its signature, for display. If you rely on a receipt, use `verifyReceipt` of `@tollkeeper/sdk/audit`.
 *
 * @param jws the receipt in JWS compact form (RFC 7515).
 * @returns undefined for anything that is not a receipt.
 * @example
 * import { decodeReceipt } from '@tollkeeper/sdk/protocol'
 *
 * console.log(decodeReceipt('not.a.receipt'))
 * // undefined
 */
export function decodeReceipt(jws: string): ReceiptClaims | undefined {
  const payload = decodeBase64url(jws.split('.')[1] ?? '')
  if (!payload) return undefined
  try {
    return parseReceiptClaims(JSON.parse(new TextDecoder().decode(payload)))
  } catch {
    return undefined
  }
}

/** Requires that the single authorization pays the whole price. If there is a fee, it must pay a splitter. */
function requireOne(
  { totalUsdc, platformUsdc, split, tab }: ReceiptClaims,
  { value }: ReceiptAuthorization,
): void {
  if (value !== totalUsdc) throw invalid('authorizations[0].value', 'totalUsdc')
  // A request on a tab always has a split, even if the fee of its small price is rounded down to 0.
  if (tab ? split === undefined : (split === undefined) !== (platformUsdc === '0')) {
    throw invalid(
      'split',
      'set for a request on a tab or a single authorization with a fee, and absent otherwise',
    )
  }
}

function parseTab(json: unknown): ReceiptTab {
  const entry = object(json, 'tab')
  return {
    id: text(entry, 'id', /^tab_[0-9a-f]{32}$/, 'tab'),
    sequence: integer(entry.sequence, 'tab.sequence', [1, Number.MAX_SAFE_INTEGER], 'an integer from 1'),
    split: text(entry, 'split', wordPattern, 'tab') as Hex,
    rewardShare: integer(entry.rewardShare, 'tab.rewardShare', [0, 10_000], 'basis points, 0 to 10000'),
    lineTotal: text(entry, 'lineTotal', amountPattern, 'tab'),
    ...optionalAmount(entry, 'lineReduced'),
    ...optionalAmount(entry, 'reduced'),
  }
}

function optionalAmount<Name extends string>(entry: Record<string, unknown>, name: Name) {
  if (entry[name] === undefined) return {}
  return { [name]: text(entry, name, amountPattern, 'tab') } as Record<Name, string>
}

function parseAuthorizations(json: unknown): ReceiptAuthorizations {
  const [first, second, ...others] = Array.isArray(json) ? json : []
  if (first === undefined || others.length > 0) throw invalid('authorizations', 'one entry or two')
  const one = parseAuthorization(first, 0)
  return second === undefined ? [one] : [one, parseAuthorization(second, 1)]
}

function parseRefunds(json: unknown): ReceiptRefund[] {
  if (!Array.isArray(json) || json.length > maxRefunds)
    throw invalid('refunds', `at most ${maxRefunds} entries`)
  const refunds = json.map((entry, index) => parseRefund(entry, `refunds[${index}]`))
  if (new Set(refunds.map(({ number }) => number)).size < refunds.length)
    throw invalid('refunds', 'entries with different numbers')
  return refunds
}

function parseRefund(json: unknown, path: string): ReceiptRefund {
  const entry = object(json, path)
  return {
    number: integer(entry.number, `${path}.number`, [1, maxRefunds], `1 to ${maxRefunds}`),
    from: text(entry, 'from', addressPattern, path) as Address,
    value: text(entry, 'value', amountPattern, path),
    nonce: text(entry, 'nonce', wordPattern, path) as Hex,
    transactionHash: text(entry, 'transactionHash', wordPattern, path) as Hash,
  }
}

function parseSplit(json: unknown): { provider: Address; platform: Address } {
  const entry = object(json, 'split')
  return {
    provider: text(entry, 'provider', addressPattern, 'split') as Address,
    platform: text(entry, 'platform', addressPattern, 'split') as Address,
  }
}

function parseAuthorization(json: unknown, index: number): ReceiptAuthorization {
  const path = `authorizations[${index}]`
  const entry = object(json, path)
  return {
    to: text(entry, 'to', addressPattern, path) as Address,
    value: text(entry, 'value', amountPattern, path),
    nonce: text(entry, 'nonce', wordPattern, path) as Hex,
  }
}
