import { exportJWK, generateKeyPair, type JSONWebKeySet, SignJWT, UnsecuredJWT } from 'jose'
import { expect, test } from 'vitest'
import vectors from '../../../test/vectors/receipts.json' with { type: 'json' }
import { serve } from '../../test/serve.ts'
import { verifyReceipt } from './verifyReceipt.ts'

const jwks = vectors.jwks as JSONWebKeySet
const accepted = vectors.receipts[0]?.jws ?? ''
const claims = vectors.receipts[0]?.claims as Record<string, unknown>

/** Serves the given response as a gateway's keys, and records the requested paths. */
async function serveKeys(status: number, body: string) {
  const requests: (string | undefined)[] = []
  const gateway = await serve((request, response) => {
    requests.push(request.url)
    response.writeHead(status, { 'content-type': 'application/json' }).end(body)
  })
  return { url: `${gateway}/.well-known/jwks.json`, requests }
}

test('default: returns the claims and the key id of a valid receipt', async () => {
  expect(await verifyReceipt(accepted, jwks)).toEqual({ ...claims, kid: 'vector-1' })
})

test.each(vectors.receipts)(
  'behavior: accepts or rejects the receipt of test vector “$name” as the vector states',
  async ({ jws, claims: expected, valid }) => {
    const verified = verifyReceipt(jws, jwks)
    if (valid) await expect(verified).resolves.toEqual({ ...expected, kid: 'vector-1' })
    else await expect(verified).rejects.toMatchObject({ code: 'invalid_receipt' })
  },
)

test('args: fetches the keys at a JWKS URL only once', async () => {
  const { url, requests } = await serveKeys(200, JSON.stringify(jwks))
  await verifyReceipt(accepted, url)
  await verifyReceipt(accepted, new URL(url))
  expect(requests).toEqual(['/.well-known/jwks.json'])
})

test('args: rejects a receipt whose issuer is not the gateway in the option `issuer`', async () => {
  await verifyReceipt(accepted, jwks, { issuer: 'https://gateway.example' })
  await expect(verifyReceipt(accepted, jwks, { issuer: 'https://other.example' })).rejects.toMatchObject({
    code: 'invalid_receipt',
  })
})

test('error: rejects a receipt with a changed claim', async () => {
  const [header, payload = '', signature] = accepted.split('.')
  const changed = Buffer.from(payload, 'base64url').toString().replace('"50000"', '"90000"')
  const forged = [header, Buffer.from(changed).toString('base64url'), signature].join('.')
  await expect(verifyReceipt(forged, jwks)).rejects.toMatchObject({ code: 'invalid_receipt' })
})

test('error: rejects a signature by another key with the same key id', async () => {
  const { privateKey } = await generateKeyPair('ES256')
  const forged = await new SignJWT(claims)
    .setProtectedHeader({ alg: 'ES256', kid: 'vector-1' })
    .sign(privateKey)
  await expect(verifyReceipt(forged, jwks)).rejects.toMatchObject({ code: 'invalid_receipt' })
})

test('error: rejects a signature by another algorithm, even if the key is published', async () => {
  const { privateKey, publicKey } = await generateKeyPair('ES384', { extractable: true })
  const keys = { keys: [{ ...(await exportJWK(publicKey)), kid: 'k', alg: 'ES384' }] }
  const jws = await new SignJWT(claims).setProtectedHeader({ alg: 'ES384', kid: 'k' }).sign(privateKey)
  await expect(verifyReceipt(jws, keys)).rejects.toMatchObject({ code: 'invalid_receipt' })
})

test('error: rejects an unsigned receipt', async () => {
  await expect(verifyReceipt(new UnsecuredJWT(claims).encode(), jwks)).rejects.toMatchObject({
    code: 'invalid_receipt',
  })
})

test.each(['', 'a.b', 'a.b.c', '..', accepted.slice(0, -1), `${accepted}.x`])(
  'error: rejects %.20j, which is not a JWS',
  async (jws) => {
    await expect(verifyReceipt(jws, jwks)).rejects.toMatchObject({ code: 'invalid_receipt' })
  },
)

test('error: reports keys that can’t be fetched', async () => {
  const { url } = await serveKeys(500, '')
  await expect(verifyReceipt(accepted, url)).rejects.toMatchObject({
    code: 'dependency_unavailable',
    retryable: true,
  })
})
