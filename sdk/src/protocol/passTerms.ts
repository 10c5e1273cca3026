import { fieldsOf } from './fields.ts'

/** Minimum and maximum validity of a pass in seconds: a minute, and 366 days. */
export const passSeconds = { least: 60, most: 366 * 86_400 } as const
/** Maximum number of requests of a pass. */
export const maxPassRequests = 1_000_000
/** The terms of the pass that a payment buys. A challenge contains them, and its macaroon signs them. */
export type PassTerms = {
  /** Validity in seconds, which starts with the payment. */
  seconds: number
  /** Number of requests that the pass covers, including the one that pays for it. Undefined: unlimited until it expires. */
  requests?: number | undefined
  /**
   * Determines who may use the pass: only the wallet that paid for it, which proves its identity with a signature, or anyone who has the pass.
   */
  boundTo: 'payer' | 'bearer'
}

const terms = fieldsOf('invalid_challenge', 'Pass')

/**
 * Reads the terms of a pass from parsed JSON.
 *
 * @throws {ProtocolError} `invalid_challenge`, with `details.field`.
 */
export function parsePassTerms(json: unknown): PassTerms {
  const { seconds, requests, boundTo } = terms.object(json, 'pass')
  if (boundTo !== 'payer' && boundTo !== 'bearer') throw terms.invalid('pass.boundTo', '"payer" or "bearer"')
  return {
    seconds: terms.integer(seconds, 'pass.seconds', [passSeconds.least, passSeconds.most]),
    ...(requests !== undefined && {
      requests: terms.integer(requests, 'pass.requests', [1, maxPassRequests]),
    }),
    boundTo,
  }
}

/** Returns whether two challenges sell passes with the same terms, or both sell no pass. */
export function isSamePass(one: PassTerms | undefined, other: PassTerms | undefined): boolean {
  if (one === undefined || other === undefined) return one === other
  return one.seconds === other.seconds && one.requests === other.requests && one.boundTo === other.boundTo
}
