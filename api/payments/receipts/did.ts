import type { PublicReceiptKey } from './keys.ts'

/*
 * The gateway as a DID with the method did:web (https://w3c-ccg.github.io/did-method-web), with which x402's receipts name the key that
 * signed them.
 */

/** Converts `https://gateway.example:8443/pay` to `did:web:gateway.example%3A8443:pay`. */
export function didOf(issuer: string): string {
  const { host, pathname } = new URL(issuer)
  const path = pathname.split('/').filter((segment) => segment !== '')
  return ['did:web', encodeURIComponent(host), ...path].join(':')
}

/** Returns the document's path by the did:web method, below the issuer's own path. */
export function didPathOf(issuer: string): '/did.json' | '/.well-known/did.json' {
  return new URL(issuer).pathname === '/' ? '/.well-known/did.json' : '/did.json'
}

/** Builds the DID document: future, current and retired receipt keys. */
export function didDocument(issuer: string, keys: readonly PublicReceiptKey[]) {
  const did = didOf(issuer)
  const verificationMethod = keys.map(({ kid, kty, crv, x, y }) => ({
    id: `${did}#${kid}`,
    type: 'JsonWebKey2020' as const,
    controller: did,
    publicKeyJwk: { kty, crv, x, y, kid },
  }))
  return {
    '@context': ['https://www.w3.org/ns/did/v1', 'https://w3id.org/security/suites/jws-2020/v1'],
    id: did,
    verificationMethod,
    assertionMethod: verificationMethod.map(({ id }) => id),
  }
}
