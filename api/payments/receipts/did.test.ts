import { expect, test } from 'vitest'
import { didDocument, didOf, didPathOf } from './did.ts'
import { rotateReceiptKeys, toReceiptKeys } from './keys.ts'

test.each([
  ['https://gateway.example', 'did:web:gateway.example', '/.well-known/did.json'],
  ['http://127.0.0.1:4020', 'did:web:127.0.0.1%3A4020', '/.well-known/did.json'],
  ['https://example.com/pay/v1', 'did:web:example.com:pay:v1', '/did.json'],
])('default: the DID of %s is %s', (issuer, did, path) => {
  expect([didOf(issuer), didPathOf(issuer)]).toEqual([did, path])
})

test('behavior: the document has every key of the JWK set, including retired keys, without private parts', () => {
  const { jwks } = toReceiptKeys(rotateReceiptKeys(rotateReceiptKeys(undefined)))
  const { id, verificationMethod, assertionMethod } = didDocument('https://gateway.example', jwks.keys)
  expect(jwks.keys).toHaveLength(2)
  expect(assertionMethod).toEqual(jwks.keys.map(({ kid }) => `did:web:gateway.example#${kid}`))
  expect(verificationMethod).toEqual(
    jwks.keys.map(({ kid, kty, crv, x, y }) => ({
      id: `${id}#${kid}`,
      type: 'JsonWebKey2020',
      controller: id,
      publicKeyJwk: { kid, kty, crv, x, y },
    })),
  )
})
