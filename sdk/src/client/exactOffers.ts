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

/** An offer of a seller that isn't Tollkeeper's: it is paid by one authorization in USDC (x402's `exact`, MPP's `charge`). */
export type ExactOffer = {
  /** USDC base units. */
  amount: bigint
  payTo: Address
  /** How long the seller asks the authorization to be valid. */
  maxTimeoutSeconds: number
  /** Unix seconds, instead of that. */
  validBefore?: number
  /** Random, or bound to the seller's challenge. */
  nonce: Hex
  /** In the seller's words. */
  description: string
  /** Writes the header that pays it. */
  present: (signed: SignedAuthorization) => PaymentHeader
}

/** x402's PaymentRequired, version 2 or 1. Its contents are unchecked. */
export type PaymentRequired = Readonly<Record<string, unknown>>

/** Checks whether a value has the outer form of x402's PaymentRequired. Our own challenge, which has a macaroon, is none. */
export function isPaymentRequired(value: unknown): value is PaymentRequired {
  if (!isRecord(value) || (value.x402Version !== 1 && value.x402Version !== 2)) return false
  return Array.isArray(value.accepts) && value.accepts.length > 0 && value.macaroon === undefined
}

/** Reads the PaymentRequired of a 402: version 2 has a header, version 1 the body. */
export function readPaymentRequired({ headers, body }: Pick<Answer, 'headers' | 'body'>) {
  const required = readHeader(headers.get('payment-required'), body)
  return isPaymentRequired(required) ? required : undefined
}

/**
 * Decodes a header of x402.
 *
 * @returns undefined if it can't be read, `absent` without a header.
 */
export function readHeader(header: string | null, absent?: unknown): unknown {
  if (header === null) return absent
  try {
    return decodePaymentHeader(header)
  } catch {
    return undefined
  }
}

/** Returns the offers of a PaymentRequired that are USDC on this network, by scheme `exact` and EIP-3009, in the seller's order. */
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
    description: describe(required, accepted),
    present: (signed) => presentExact(required, accepted, signed),
  }
}

/** Parses an amount of base units. @returns undefined for 0, a fraction or more than a payment can carry. */
export function parseAmount(amount: unknown): bigint | undefined {
  if (typeof amount !== 'string' || !/^[1-9]\d{0,19}$/.test(amount)) return undefined
  const parsed = BigInt(amount)
  return parsed <= maxAmount ? parsed : undefined
}

/** Parses an address in any case. */
export function parsePayee(payTo: unknown): Address | undefined {
  const text = textOf(payTo)
  return /^0x[\da-f]{40}$/i.test(text) ? (text.toLowerCase() as Address) : undefined
}

/**
 * Checks whether a payment can repeat what its seller wrote: `JSON.stringify` overflows the stack at nested values that `JSON.parse`
 * reads.
 */
export function isWritable(value: unknown): boolean {
  try {
    JSON.stringify(value)
    return true
  } catch {
    return false
  }
}

function describe({ resource }: PaymentRequired, accepted: Record<string, unknown>): string {
  return textOf((isRecord(resource) ? resource : accepted).description)
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

/** Writes an authorization as JSON has it: numbers as decimal strings. */
export function toTexts(authorization: Partial<SignedAuthorization>): Record<string, string> {
  return Object.fromEntries(Object.entries(authorization).map(([name, value]) => [name, String(value)]))
}
