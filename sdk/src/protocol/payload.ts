import { type Address, checksumAddress, type Hex } from 'viem'
import { maxAmount } from './amount.ts'
import { ProtocolError } from './errors.ts'
import { normalizeSignature, signatureForms } from './signature.ts'

/** An EIP-3009 `transferWithAuthorization` with the payer's signature. Addresses and hex are lower-case. */
export type SignedAuthorization = {
  from: Address
  to: Address
  /** USDC base units. */
  value: bigint
  /** Unix seconds. The authorization is valid after this second. */
  validAfter: bigint
  /** Unix seconds. The authorization is valid before this second. */
  validBefore: bigint
  /** 32 bytes. */
  nonce: Hex
  /** The signature: 65 bytes (r, s, v) by a private key, or up to 1,024 bytes by a contract wallet (ERC-1271). */
  signature: Hex
  /** Which of EIP-3009's two messages was signed. Default: `TransferWithAuthorization`. */
  primaryType?: 'TransferWithAuthorization' | 'ReceiveWithAuthorization'
}

/** Maximum time. BatchSettlement packs times into 40 bits. */
const maxTime = 2n ** 40n - 1n

/** Maximum length of a signature in bytes. */
export const maxSignatureLength = 1024

/** Maximum length of a payload in characters: all fields at their maximum length, rounded up. */
const maxPayloadLength = 2 * maxSignatureLength + 2 + 400

const addressPattern = /^0x[0-9a-fA-F]{40}$/
const integerPattern = /^(?:0|[1-9][0-9]{0,77})$/
const noncePattern = /^0x[0-9a-fA-F]{64}$/
const signaturePattern = /^0x(?:[0-9a-fA-F]{2}){64,1024}$/

const fields = ['from', 'to', 'value', 'validAfter', 'validBefore', 'nonce', 'signature'] as const
type Field = (typeof fields)[number]

/**
 * Returns a payment payload: `from,to,value,validAfter,validBefore,nonce,signature` (conformance 2.4), in lower-case.
 *
 * @param authorization `value` in USDC base units, times in Unix seconds, a nonce of 32 bytes.
 * @example
 * import { encodePayload } from '@tollkeeper/sdk/protocol'
 *
 * const payload = encodePayload({
 *   from: `0x${'a'.repeat(40)}`,
 *   to: `0x${'b'.repeat(40)}`,
 *   value: 47_500n,
 *   validAfter: 0n,
 *   validBefore: 1_800_093_600n,
 *   nonce: `0x${'0'.repeat(63)}1`,
 *   signature: `0x${'1'.repeat(130)}`,
 * })
 * console.log(payload.split(',').slice(2, 5))
 * // [ '47500', '0', '1800093600' ]
 */
export function encodePayload(authorization: SignedAuthorization): string {
  const { from, to, value, validAfter, validBefore, nonce, signature } = authorization
  return `${from},${to},${value},${validAfter},${validBefore},${nonce},${signature}`.toLowerCase()
}

/**
 * Reads a payment payload (conformance 2.4).
 *
 * Addresses must be lower-case, upper-case or correctly checksummed (EIP-55). Integers must be plain decimals; `value` must be below 2^64, times
 * below 2^40. White space is not removed. The signature is not verified. A private key's signature may also have v 0 or 1, or 64 bytes (EIP-2098).
 *
 * @returns addresses, nonce and signature in lower-case. A plain account's signature is returned with v 27 or 28.
 * @throws {ProtocolError} `invalid_payload`, with `details.field`.
 * @example
 * import { parsePayload } from '@tollkeeper/sdk/protocol'
 *
 * const parts = [`0x${'a'.repeat(40)}`, `0x${'b'.repeat(40)}`, 47500, 0, 1800093600, `0x${'0'.repeat(63)}1`]
 * const { value, validBefore } = parsePayload(`${parts.join(',')},0x${'1'.repeat(130)}`)
 * console.log(value, validBefore)
 * // 47500n 1800093600n
 */
export function parsePayload(text: string): SignedAuthorization {
  if (text.length > maxPayloadLength) {
    throw invalid('signature', `A payload has at most ${maxPayloadLength} characters, got ${text.length}`)
  }
  const parts = text.split(',')
  if (parts.length !== fields.length) {
    throw new ProtocolError(
      'invalid_payload',
      `A payload has 7 comma-separated parts (${fields.join(',')}), got ${parts.length}`,
      { details: { expected: fields.length, parts: parts.length } },
    )
  }
  const [from = '', to = '', value = '', validAfter = '', validBefore = '', nonce = '', signature = ''] =
    parts
  return {
    from: parseAddress('from', from),
    to: parseAddress('to', to),
    value: parseInteger('value', value, maxAmount, '2^64'),
    validAfter: parseInteger('validAfter', validAfter, maxTime, '2^40'),
    validBefore: parseInteger('validBefore', validBefore, maxTime, '2^40'),
    nonce: parseHex('nonce', nonce, noncePattern, '0x and 64 hex digits'),
    signature: parseSignature(signature),
  }
}

/**
 * Reads a signature in any valid form, and returns it in the form that USDC accepts.
 *
 * @throws {ProtocolError} `invalid_payload`
 */
export function parseSignature(text: string): Hex {
  const expected = `0x and hex digits: ${signatureForms}`
  const signature = normalizeSignature(parseHex('signature', text, signaturePattern, expected))
  if (signature.length < 132)
    throw invalid(
      'signature',
      'signature has 64 bytes (EIP-2098), but its r or s is out of the curve’s range',
    )
  return signature
}

/**
 * Reads an integer that JSON contains as a number, or in hex.
 *
 * @returns the decimal form, or the unchanged text. Returns undefined for a number that JSON may have rounded, and for anything else.
 */
export function toDecimal(value: unknown): string | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? String(value) : undefined
  if (typeof value !== 'string') return undefined
  return /^0x[0-9a-fA-F]{1,64}$/.test(value) ? BigInt(value).toString() : value
}

function parseAddress(field: Field, text: string): Address {
  if (!addressPattern.test(text))
    throw invalid(field, `${field} must be 0x and 40 hex digits, got ${quote(text)}`)
  const lower = text.toLowerCase() as Address
  // EIP-55: an address in only one case has no checksum.
  if (text === lower || text.slice(2) === text.slice(2).toUpperCase()) return lower
  if (checksumAddress(lower) !== text) {
    throw invalid(field, `${field} ${text} has a wrong EIP-55 checksum: a digit may be mistyped`)
  }
  return lower
}

function parseInteger(field: Field, text: string, maximum: bigint, bound: string): bigint {
  if (!integerPattern.test(text)) {
    throw invalid(
      field,
      `${field} must be a decimal integer without sign or leading zero, got ${quote(text)}`,
    )
  }
  const value = BigInt(text)
  if (value > maximum) throw invalid(field, `${field} must be below ${bound}, got ${text}`)
  return value
}

function parseHex(field: Field, text: string, pattern: RegExp, expected: string): Hex {
  if (!pattern.test(text)) {
    throw invalid(field, `${field} must be ${expected}, got ${text.length} characters`)
  }
  return text.toLowerCase() as Hex
}

function invalid(field: Field, message: string): ProtocolError {
  return new ProtocolError('invalid_payload', message, { details: { field } })
}

function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
}
