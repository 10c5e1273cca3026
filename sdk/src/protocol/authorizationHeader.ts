import { ProtocolError } from './errors.ts'
import { macaroonPattern } from './fields.ts'

/**
 * The contents of an `Authorization` header (conformance 4.3):
 *
 * - `absent`: there is no header, or it has another scheme.
 * - `mock`: the credentials of mock mode (conformance 4.5).
 * - `payment`: a macaroon, and either two payloads (the provider's, then the platform's) or one payload that pays both. The contents are unverified.
 */
export type AuthorizationHeader =
  | { kind: 'absent' }
  | { kind: 'mock' }
  | { kind: 'payment'; macaroon: string; payloads: [both: string] | [provider: string, platform: string] }

/**
 * We send the scheme `x402`. We also accept our name, and the placeholder "the service" that the specification uses for it (conformance 4.3-10).
 */
const schemePattern = /^(?:x402|tollkeeper|the service)(?: +|$)/i

/** Node limits all headers together to 16 KiB. Two signatures of 1 KiB and a macaroon need less than 8 KiB. */
const maxHeaderLength = 8192

/** The header that pays in mock mode (conformance 4.5-3). */
export const mockAuthorizationHeader = 'x402 mock:mock'

/**
 * Returns the `Authorization` header of a payment (conformance 4.3): `x402 <macaroon>:<payload1>:<payload2>`.
 *
 * @param payment the challenge's unchanged macaroon, and the results of {@link encodePayload}: first the provider's payload, then the platform's, or
 * one payload that pays both.
 * @example
 * import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol'
 *
 * const [macaroon, providerPayload, feePayload] = ['AgJ', '0xa,0xb', '0xa,0xc']
 * console.log(encodeAuthorizationHeader({ macaroon, payloads: [providerPayload, feePayload] }))
 * // x402 AgJ:0xa,0xb:0xa,0xc
 */
export function encodeAuthorizationHeader({
  macaroon,
  payloads,
}: {
  macaroon: string
  payloads: readonly [string, string?]
}): string {
  return `x402 ${[macaroon, ...payloads].join(':')}`
}

/**
 * Splits an `Authorization` header (conformance 4.3) into its parts. It doesn't parse the parts.
 *
 * A header with another scheme (`Bearer …`) counts as absent, because it is not a payment.
 *
 * @param value the header's value. Null or undefined if there is no header.
 * @throws {ProtocolError} `invalid_authorization_header` if the scheme is `x402` but the rest is malformed, or if the
 * header has more than 8,192 characters.
 * @example
 * import { parseAuthorizationHeader } from '@tollkeeper/sdk/protocol'
 *
 * console.log(parseAuthorizationHeader('x402 AgJ:0xa,0xb:0xa,0xc'))
 * // { kind: 'payment', macaroon: 'AgJ', payloads: [ '0xa,0xb', '0xa,0xc' ] }
 */
export function parseAuthorizationHeader(value: string | null | undefined): AuthorizationHeader {
  if (value === null || value === undefined) return { kind: 'absent' }
  const scheme = schemePattern.exec(value)
  if (!scheme) return { kind: 'absent' }
  if (value.length > maxHeaderLength)
    throw invalid(`at most ${maxHeaderLength} characters, got ${value.length}`)
  const credentials = value.slice(scheme[0].length)
  if (credentials === 'mock:mock') return { kind: 'mock' }
  const parts = credentials.split(':')
  const [macaroon, first, second] = parts
  if (parts.length > 3 || !macaroon || !first || second === '') {
    throw invalid(
      `x402 <macaroon>:<payload1>[:<payload2>], got ${parts.length} parts, none of which may be empty`,
    )
  }
  if (!macaroonPattern.test(macaroon)) throw invalid('a macaroon in base64 or base64url')
  return { kind: 'payment', macaroon, payloads: second === undefined ? [first] : [first, second] }
}

/** Returns whether a value has another scheme than the gateway's, such as `Bearer …`. */
export function isOfAnotherScheme(value: string): boolean {
  return !schemePattern.test(value)
}

function invalid(expected: string): ProtocolError {
  return new ProtocolError('invalid_authorization_header', `Authorization: expected ${expected}`)
}
