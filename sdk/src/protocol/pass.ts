import type { Address, Hex } from 'viem'
import { decodeBase64url } from './bytes.ts'
import { ProtocolError } from './errors.ts'
import { addressPattern, fieldsOf } from './fields.ts'
import { maxPassRequests, type PassTerms } from './passTerms.ts'

/** The `typ` in the JWS header of a pass. It distinguishes a pass from a receipt. */
export const passType = 'x402-pass+jwt'

/** Request header with which a buyer presents a pass, and response header with which the buyer receives it. */
export const passHeader = 'Service-Pass'

/** Maximum validity of a payer's proof, in seconds. */
export const passProofSeconds = 600

/** The payload of a pass's JWS. */
export type PassClaims = {
  /** The gateway's public URL. */
  iss: string
  /** Id of the payment that bought the pass. One payment buys one pass. */
  jti: string
  /** The origin of the endpoint's registered URL. */
  aud: string
  /** When the payment was accepted, in Unix seconds. */
  iat: number
  /** When the pass expires, in Unix seconds. */
  exp: number
  providerId: string
  /** The only endpoint that accepts the pass. */
  endpointId: string
  boundTo: PassTerms['boundTo']
  /** The wallet that paid. Set if and only if the pass is bound to this wallet. */
  payer?: Address
  /** Number of requests that the pass covers. The gateway counts them. */
  requests?: number | undefined
}

const claim = fieldsOf('pass_invalid', 'Pass', /^.{1,4096}$/s)

/**
 * Reads the claims of a pass whose signature was verified. `createPassGate` of `@tollkeeper/sdk/pass` verifies signatures.
 *
 * Ignores unknown claims.
 *
 * @param payload the JWS's payload as parsed JSON.
 * @throws {ProtocolError} `pass_invalid`, with `details.field`.
 */
export function parsePassClaims(payload: unknown): PassClaims {
  const claims = claim.object(payload, 'pass')
  const { boundTo, requests } = claims
  if (boundTo !== 'payer' && boundTo !== 'bearer') throw claim.invalid('boundTo', '"payer" or "bearer"')
  if ((claims.payer !== undefined) !== (boundTo === 'payer'))
    throw claim.invalid('payer', 'set if and only if the pass is bound to its payer')
  const time = (name: 'iat' | 'exp') => claim.integer(claims[name], name, [0, 2 ** 40], 'Unix seconds')
  return {
    iss: claim.text(claims, 'iss'),
    jti: claim.text(claims, 'jti', /^pay_[0-9a-f]{32}$/),
    aud: claim.text(claims, 'aud'),
    iat: time('iat'),
    exp: time('exp'),
    providerId: claim.text(claims, 'providerId'),
    endpointId: claim.text(claims, 'endpointId'),
    boundTo,
    ...(boundTo === 'payer' && { payer: claim.text(claims, 'payer', addressPattern) as Address }),
    ...(requests !== undefined && { requests: claim.integer(requests, 'requests', [1, maxPassRequests]) }),
  }
}

/**
 * Reads the claims of a pass WITHOUT verifying its signature. For buyers.
 *
 * @param jws the pass in JWS compact form (RFC 7515), from a response's header `Service-Pass`.
 * @returns undefined for anything that is not a pass.
 * @example
 * import { decodePass } from '@tollkeeper/sdk/protocol'
 *
 * // Returns the time until which the pass of a paid response is valid.
 * export const validUntil = (response: Response) =>
 *   new Date((decodePass(response.headers.get('service-pass') ?? '')?.exp ?? 0) * 1000)
 */
export function decodePass(jws: string): PassClaims | undefined {
  try {
    const [header = '', payload = ''] = jws.split('.')
    const { typ } = readPart(header) as { typ?: unknown }
    return typ === passType ? parsePassClaims(readPart(payload)) : undefined
  } catch {
    return undefined
  }
}

function readPart(part: string): unknown {
  return JSON.parse(new TextDecoder().decode(decodeBase64url(part)))
}

/**
 * A payer's signature for a request with a pass. It proves that the payer itself presents the pass, and is valid at one origin for at most ten
 * minutes.
 */
export type PassProof = {
  /** Unix seconds. */
  expiresAt: number
  signature: Hex
}

/** EIP-712 domain of a {@link PassProof}. It has no chain id, because a proof is never sent to a chain. */
export const passProofDomain = { name: 'x402 pass', version: '1' } as const

/** EIP-712 types of a {@link PassProof}. */
export const passProofTypes = {
  PassProof: [
    { name: 'origin', type: 'string' },
    { name: 'pass', type: 'string' },
    { name: 'expiresAt', type: 'uint48' },
  ],
} as const

/** The type of the domain. `eth_signTypedData_v4` requires it in addition to the type of the message. */
const domainType = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
]

/**
 * Returns the typed data that a payer signs to present its pass.
 *
 * @param proven `origin`: where the pass is presented. `pass`: the pass's `jti`. `expiresAt`: Unix seconds, at most ten minutes in the future.
 * @returns EIP-712 typed data. `JSON.stringify` writes it in the form of `eth_signTypedData_v4`.
 * @example
 * import { passProofData } from '@tollkeeper/sdk/protocol'
 *
 * const proven = { origin: 'https://api.example', pass: `pay_${'0'.repeat(32)}`, expiresAt: 1_800_000_600 }
 * console.log(passProofData(proven).primaryType)
 * // PassProof
 */
export function passProofData(proven: { origin: string; pass: string; expiresAt: number }) {
  const types = { ...passProofTypes }
  // Make `toJSON` non-enumerable: structured clone then skips it. It can't clone functions, so otherwise the typed data couldn't be sent to a worker.
  Object.defineProperty(types, 'toJSON', { value: () => ({ EIP712Domain: domainType, ...passProofTypes }) })
  return { domain: passProofDomain, types, primaryType: 'PassProof' as const, message: proven }
}

const headerPattern =
  /^([A-Za-z0-9_-]{1,512}\.[A-Za-z0-9_-]{1,4096}\.[A-Za-z0-9_-]{86})(?:; *proof=(\d{1,12})\.(0x[0-9a-f]{130}))?$/

/**
 * Returns the value of the request header `Service-Pass`.
 *
 * @param jws the pass.
 * @param proof the payer's proof, if the pass is bound to the payer.
 * @example
 * import { decodePass, encodePassHeader, passProofData } from '@tollkeeper/sdk/protocol'
 * import type { LocalAccount } from 'viem'
 *
 * // Returns the header for a pass that is bound to this account, valid for ten minutes.
 * export async function present(jws: string, account: LocalAccount, origin: string): Promise<string> {
 *   const expiresAt = Math.floor(Date.now() / 1000) + 600
 *   const proven = passProofData({ origin, pass: decodePass(jws)?.jti ?? '', expiresAt })
 *   return encodePassHeader(jws, { expiresAt, signature: await account.signTypedData(proven) })
 * }
 */
export function encodePassHeader(jws: string, proof?: PassProof): string {
  return proof ? `${jws}; proof=${proof.expiresAt}.${proof.signature}` : jws
}

/**
 * Reads a request's header `Service-Pass`. The result is unverified.
 *
 * @throws {ProtocolError} `pass_invalid`
 */
export function parsePassHeader(header: string): { jws: string; proof?: PassProof } {
  const [, jws, expiresAt, signature] = headerPattern.exec(header.trim()) ?? []
  if (jws === undefined)
    throw new ProtocolError(
      'pass_invalid',
      'Service-Pass must be a JWS, with `; proof=<time>.<signature>` after it',
    )
  if (expiresAt === undefined) return { jws }
  return { jws, proof: { expiresAt: Number(expiresAt), signature: signature as Hex } }
}
