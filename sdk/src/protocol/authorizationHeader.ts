import { ProtocolError } from './errors.ts'

/** What an `Authorization` header says about payment. */
export type AuthorizationHeader =
  | { kind: 'absent' }
  | { kind: 'mock' }
  | { kind: 'payment'; macaroon: string; payloads: [string, string] }

/**
 * SPEC 4.3 writes "the service" where the product's name belongs. `x402` is what is sent; the other two are read as
 * the same scheme, here and nowhere else.
 */
const schemePattern = /^(?:x402|tollkeeper|the service)(?: +|$)/i

const base64urlPattern = /^[A-Za-z0-9_-]+$/

/** Node's own limit for all headers together is 16 KiB; two 1 KiB signatures and a macaroon stay below 8 KiB. */
const maxHeaderLength = 8192

/** The mock credentials of SPEC 4.5. */
export const mockAuthorizationHeader = 'x402 mock:mock'

/**
 * Writes `x402 <macaroon>:<payload1>:<payload2>`: the provider's payment first, the platform's second.
 *
 * @example
 * headers.set('authorization', encodeAuthorizationHeader({ macaroon, payloads: [providerPayload, feePayload] }))
 */
export function encodeAuthorizationHeader({
  macaroon,
  payloads,
}: {
  macaroon: string
  payloads: readonly [string, string]
}): string {
  return `x402 ${macaroon}:${payloads[0]}:${payloads[1]}`
}

/**
 * Reads an `Authorization` header. Another scheme (`Bearer …`) counts as absent: it is no payment. The parts are not
 * read further here.
 *
 * @throws {ProtocolError} `invalid_authorization_header` where the scheme is ours and the rest is not of its form.
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
  if (parts.length !== 3 || !macaroon || !first || !second) {
    throw invalid(
      `x402 <macaroon>:<payload1>:<payload2>, got ${parts.length} parts, none of which may be empty`,
    )
  }
  if (!base64urlPattern.test(macaroon)) throw invalid('a base64url macaroon')
  return { kind: 'payment', macaroon, payloads: [first, second] }
}

function invalid(expected: string): ProtocolError {
  return new ProtocolError('invalid_authorization_header', `Authorization: expected ${expected}`)
}
