import type { Address, Hex } from 'viem'
import { maxAmount } from '../protocol/amount.ts'
import { bytesToHex } from '../protocol/bytes.ts'
import { isRecord, textOf } from '../protocol/fields.ts'
import type { Network } from '../protocol/networks.ts'
import type { SignedAuthorization } from '../protocol/payload.ts'
import { decodePaymentHeader, encodePaymentHeader } from '../protocol/x402.ts'
import type { PaymentHeader } from './signedPayment.ts'
import type { Answer } from './transport.ts'

/** The token that a client pays in. */
export type Asset = { network: Network; usdc: Address }

/** An offer of a seller that doesn't use Tollkeeper. The client pays it with one authorization in USDC (x402's `exact`, MPP's `charge`). */
export type ExactOffer = {
  /** USDC base units. */
  amount: bigint
  payTo: Address
  /** Validity of the authorization in seconds, as requested by the seller. */
  maxTimeoutSeconds: number
  /** Expiry in Unix seconds. If set, `maxTimeoutSeconds` is ignored. */
  validBefore?: number
  /** A random nonce, or one bound to the seller's challenge. */
  nonce: Hex
  /** The seller's description. */
  description: string
  /** Media type of the purchased content, if the seller names it. */
  mimeType?: string | undefined
  /** Returns the header that pays the offer. */
  present: (signed: SignedAuthorization) => PaymentHeader
}

/** x402's PaymentRequired, version 2 or 1, with unchecked contents. */
export type PaymentRequired = Readonly<Record<string, unknown>>

/** Returns whether a value has the outer form of x402's PaymentRequired. Returns false for our own challenge, which has a macaroon. */
export function isPaymentRequired(value: unknown): value is PaymentRequired {
  if (!isRecord(value) || (value.x402Version !== 1 && value.x402Version !== 2)) return false
  return Array.isArray(value.accepts) && value.accepts.length > 0 && value.macaroon === undefined
}

/** Reads the PaymentRequired of a 402. Version 2 puts it into a header, version 1 into the body. */
export function readPaymentRequired({ headers, body }: Pick<Answer, 'headers' | 'body'>) {
  const required = readHeader(headers.get('payment-required'), body)
  return isPaymentRequired(required) ? required : undefined
}

/**
 * Decodes a header of x402.
 *
 * @returns undefined if the header can't be read; `absent` if there is no header.
 */
export function readHeader(header: string | null, absent?: unknown): unknown {
  if (header === null) return absent
  try {
    return decodePaymentHeader(header)
  } catch {
    return undefined
  }
}

/** Returns the offers of a PaymentRequired that accept USDC on this network with scheme `exact` and EIP-3009, in the seller's order. */
export function readExactOffers(required: PaymentRequired, asset: Asset): ExactOffer[] {
  const accepts = required.accepts as unknown[]
  return accepts.flatMap((accepted) => readExactOffer(required, accepted, asset) ?? [])
}

function readExactOffer(
  required: PaymentRequired,
  accepted: unknown,
  { network, usdc }: Asset,
): ExactOffer | undefined {
  if (!isRecord(accepted) || accepted.scheme !== 'exact') return undefined
  const isV1 = required.x402Version === 1
  if (accepted.network !== (isV1 ? network.name : network.caip2)) return undefined
  const { asset, extra, maxTimeoutSeconds } = accepted
  const { assetTransferMethod = 'eip3009' } = isRecord(extra) ? extra : {}
  if (assetTransferMethod !== 'eip3009' || textOf(asset).toLowerCase() !== usdc) return undefined
  const amount = parseAmount(isV1 ? accepted.maxAmountRequired : accepted.amount)
  const payTo = parsePayee(accepted.payTo)
  if (amount === undefined || payTo === undefined) return undefined
  if (typeof maxTimeoutSeconds !== 'number' || !(maxTimeoutSeconds >= 1)) return undefined
  if (!isWritable([accepted, required.resource, required.extensions])) return undefined
  return {
    amount,
    payTo,
    maxTimeoutSeconds,
    nonce: bytesToHex(crypto.getRandomValues(new Uint8Array(32))),
    description: textOf(describer(required, accepted).description),
    mimeType: textOf(describer(required, accepted).mimeType) || undefined,
    present: (signed) => presentExact(required, accepted, signed),
  }
}

/** Parses an amount of base units. @returns undefined for 0, a fraction, or more than a payment can contain. */
export function parseAmount(amount: unknown): bigint | undefined {
  if (typeof amount !== 'string' || !/^[1-9]\d{0,19}$/.test(amount)) return undefined
  const parsed = BigInt(amount)
  return parsed <= maxAmount ? parsed : undefined
}

/** Parses an address in upper or lower case. */
export function parsePayee(payTo: unknown): Address | undefined {
  const text = textOf(payTo)
  return /^0x[\da-f]{40}$/i.test(text) ? (text.toLowerCase() as Address) : undefined
}

/**
 * Returns whether the seller's data can be copied into a payment. `JSON.parse` accepts values that are nested so deeply that `JSON.stringify`
 * overflows the stack.
 */
export function isWritable(value: unknown): boolean {
  try {
    JSON.stringify(value)
    return true
  } catch {
    return false
  }
}

/** Returns the part of a PaymentRequired that describes the purchase: in version 2 the resource, in version 1 the offer. */
function describer({ resource }: PaymentRequired, accepted: Record<string, unknown>) {
  return isRecord(resource) ? resource : accepted
}

function presentExact(
  { x402Version, resource, extensions }: PaymentRequired,
  accepted: Record<string, unknown>,
  { signature, ...authorization }: SignedAuthorization,
): PaymentHeader {
  const payload = { signature, authorization: toTexts(authorization) }
  if (x402Version === 1) {
    const { scheme, network } = accepted
    return { name: 'x-payment', value: encodePaymentHeader({ x402Version, scheme, network, payload }) }
  }
  const payment = {
    x402Version,
    accepted,
    payload,
    ...(resource !== undefined && { resource }),
    ...(extensions !== undefined && { extensions }),
  }
  return { name: 'payment-signature', value: encodePaymentHeader(payment) }
}

/** Returns an authorization in its JSON form, with numbers as decimal strings. */
export function toTexts(authorization: Partial<SignedAuthorization>): Record<string, string> {
  return Object.fromEntries(Object.entries(authorization).map(([name, value]) => [name, String(value)]))
}
