import {
  compactVerify,
  createLocalJWKSet,
  createRemoteJWKSet,
  errors,
  type JSONWebKeySet,
  type JWTVerifyGetKey,
} from 'jose'
import { ProtocolError } from '../protocol/errors.ts'
import { parseReceiptClaims, type ReceiptClaims } from '../protocol/receipt.ts'

/** The gateway's public keys: a JWKS object, the URL of a JWKS (`/.well-known/jwks.json`), or a key set of jose. */
export type ReceiptKeys = JSONWebKeySet | JWTVerifyGetKey | URL | string

/** The claims of a receipt with a verified signature. */
export type VerifiedReceipt = ReceiptClaims & {
  /** Id of the signing key. */
  kid: string
}

const decoder = new TextDecoder('utf-8', { fatal: true })
const remoteKeys = new Map<string, JWTVerifyGetKey>()
// Each key set caches its imported keys. Reuse it, so that each key is imported once for any number of receipts.
const localKeys = new WeakMap<JSONWebKeySet, JWTVerifyGetKey>()

/**
 * Verifies a receipt's signature (JWS, only ES256; conformance 2.5), and that its claims are consistent.
 *
 * The receipt proves that the gateway accepted the payment, not that USDC moved. `audit` checks the transfers on chain.
 *
 * @param jws the receipt in JWS compact form (RFC 7515).
 * @param keys the gateway's JWKS, or its URL (`/.well-known/jwks.json` at the gateway). The JWKS is fetched once, and again if a receipt names an
 * unknown key.
 * @param options.issuer the gateway's public URL; rejects a receipt with another `iss`.
 * @returns the claims; amounts are decimal strings of USDC base units.
 * @throws {ProtocolError} `invalid_receipt`; `dependency_unavailable` if the keys can't be fetched.
 * @example
 * import { verifyReceipt } from '@tollkeeper/sdk/audit'
 *
 * export async function totalOf(receipt: string): Promise<bigint> {
 *   const { totalUsdc } = await verifyReceipt(receipt, 'https://gateway.example/.well-known/jwks.json')
 *   return BigInt(totalUsdc)
 * }
 */
export async function verifyReceipt(
  jws: string,
  keys: ReceiptKeys,
  options: { issuer?: string } = {},
): Promise<VerifiedReceipt> {
  const { payload, protectedHeader } = await compactVerify(jws, keySet(keys), {
    algorithms: ['ES256'],
  }).catch((error: unknown) => {
    throw translate(error)
  })
  const claims = parseReceiptClaims(parse(payload))
  if (options.issuer !== undefined && claims.iss !== options.issuer) {
    throw new ProtocolError('invalid_receipt', `Receipt: iss must be ${options.issuer}, got ${claims.iss}`)
  }
  if (typeof protectedHeader.kid !== 'string') {
    throw new ProtocolError('invalid_receipt', 'Receipt: the header has no key id (kid)')
  }
  return { ...claims, kid: protectedHeader.kid }
}

/** Returns the key set for the given keys. Each URL and each object has one key set. */
export function keySet(keys: ReceiptKeys): JWTVerifyGetKey {
  if (typeof keys === 'function') return keys
  if (typeof keys !== 'string' && !(keys instanceof URL)) {
    const local = localKeys.get(keys) ?? createLocalJWKSet(keys)
    localKeys.set(keys, local)
    return local
  }
  const url = new URL(keys)
  let remote = remoteKeys.get(url.href)
  if (!remote) {
    // Fetches the JWKS once, and again for an unknown key id, so that a key rotation needs no restart.
    remote = createRemoteJWKSet(url)
    remoteKeys.set(url.href, remote)
  }
  return remote
}

/** Parses the payload of a JWS. */
export function parse(payload: Uint8Array): unknown {
  try {
    return JSON.parse(decoder.decode(payload))
  } catch (error) {
    throw new ProtocolError('invalid_receipt', 'Receipt: the payload is not JSON', { cause: error })
  }
}

/** Converts an error of jose into one of ours. */
export function translate(error: unknown): unknown {
  if (
    error instanceof errors.JWKSTimeout ||
    !(error instanceof errors.JOSEError) ||
    error.code === 'ERR_JOSE_GENERIC'
  ) {
    return new ProtocolError('dependency_unavailable', 'The keys for receipts could not be fetched', {
      cause: error,
    })
  }
  return new ProtocolError('invalid_receipt', `Receipt is not valid: ${error.message}`, { cause: error })
}
