import { ProtocolError } from './errors.ts'
import { macaroonPattern } from './fields.ts'

/**
 * What an `Authorization` header says about payment (conformance 4.3).
 *
 * - `absent`: there is no header, or one of another scheme.
 * - `mock`: the credentials of mock mode (conformance 4.5).
 * - `payment`: a macaroon and two payloads, the provider's first, or one for both parts. Nothing in them is verified.
 */
export type AuthorizationHeader =
  | { kind: 'absent' }
  | { kind: 'mock' }
  | { kind: 'payment'; macaroon: string; payloads: [both: string] | [provider: string, platform: string] }

/**
 * We send `x402`, and read the service's name and its placeholder "the service" as the same scheme (conformance 4.3-10).
 */
const schemePattern = /^(?:x402|tollkeeper|the service)(?: +|$)/i

/** Node's own limit for all headers together is 16 KiB; two 1 KiB signatures and a macaroon stay below 8 KiB. */
const maxHeaderLength = 8192

/** The header that pays in mock mode (conformance 4.5-3). */
export const mockAuthorizationHeader = 'x402 mock:mock'

/**
 * Writes the `Authorization` header of a payment (conformance 4.3): `x402 <macaroon>:<payload1>:<payload2>`.
 *
 * @param payment the challenge's macaroon, unchanged, and two payloads of {@link encodePayload}: the provider's, then the
 * platform's. Or one payload, for both parts.
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
 * Reads an `Authorization` header (conformance 4.3) into its parts, without reading the parts.
 *
 * A header of another scheme (`Bearer …`) counts as absent, because it is no payment.
 *
 * @param value the header's value; null or undefined where there is none.
 * @throws {ProtocolError} `invalid_authorization_header` where the scheme is `x402` and the rest doesn't have its form, or
 * where the header has over 8,192 characters.
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

/** Whether a value is for somebody else than the gateway, such as `Bearer …`. */
export function isOfAnotherScheme(value: string): boolean {
  return !schemePattern.test(value)
}

function invalid(expected: string): ProtocolError {
  return new ProtocolError('invalid_authorization_header', `Authorization: expected ${expected}`)
}
