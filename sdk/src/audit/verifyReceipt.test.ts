import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, generateKeyPair, type JSONWebKeySet, SignJWT, UnsecuredJWT } from 'jose'
import { expect, onTestFinished, test } from 'vitest'
import vectors from '../../../test/vectors/receipts.json' with { type: 'json' }
import { verifyReceipt } from './verifyReceipt.ts'

const jwks = vectors.jwks as JSONWebKeySet
const accepted = vectors.receipts[0]?.jws ?? ''
const claims = vectors.receipts[0]?.claims as Record<string, unknown>

async function serve(answer: (path: string) => { status: number; body: string } | undefined) {
  const requests: string[] = []
  const server = createServer((request, response) => {
    requests.push(request.url ?? '')
    const { status, body } = answer(request.url ?? '') ?? { status: 404, body: '' }
    response.writeHead(status, { 'content-type': 'application/json' }).end(body)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(async () => {
    await new Promise((resolve) => server.close(resolve))
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/.well-known/jwks.json`, requests }
}

test('default', async () => {
  expect(await verifyReceipt(accepted, jwks)).toEqual({ ...claims, kid: 'vector-1' })
})

test.each(vectors.receipts)('behavior: $name', async ({ jws, claims: expected, valid }) => {
  const verified = verifyReceipt(jws, jwks)
  if (valid) await expect(verified).resolves.toEqual({ ...expected, kid: 'vector-1' })
  else await expect(verified).rejects.toMatchObject({ code: 'invalid_receipt' })
})

test('args: the URL of a JWKS, fetched once', async () => {
  const { url, requests } = await serve(() => ({ status: 200, body: JSON.stringify(jwks) }))
  await verifyReceipt(accepted, url)
  await verifyReceipt(accepted, new URL(url))
  expect(requests).toEqual(['/.well-known/jwks.json'])
})

test('args: issuer', async () => {
  await verifyReceipt(accepted, jwks, { issuer: 'https://gateway.example' })
  await expect(verifyReceipt(accepted, jwks, { issuer: 'https://other.example' })).rejects.toMatchObject({
    code: 'invalid_receipt',
  })
})

test('error: a changed claim', async () => {
  const [header, payload = '', signature] = accepted.split('.')
  const changed = Buffer.from(payload, 'base64url').toString().replace('"50000"', '"90000"')
  const forged = [header, Buffer.from(changed).toString('base64url'), signature].join('.')
  await expect(verifyReceipt(forged, jwks)).rejects.toMatchObject({ code: 'invalid_receipt' })
})

test('error: somebody else’s key under the same key id', async () => {
  const { privateKey } = await generateKeyPair('ES256')
  const forged = await new SignJWT(claims)
    .setProtectedHeader({ alg: 'ES256', kid: 'vector-1' })
    .sign(privateKey)
  await expect(verifyReceipt(forged, jwks)).rejects.toMatchObject({ code: 'invalid_receipt' })
})

test('error: another algorithm, even by a key that is published', async () => {
  const { privateKey, publicKey } = await generateKeyPair('ES384', { extractable: true })
  const keys = { keys: [{ ...(await exportJWK(publicKey)), kid: 'k', alg: 'ES384' }] }
  const jws = await new SignJWT(claims).setProtectedHeader({ alg: 'ES384', kid: 'k' }).sign(privateKey)
  await expect(verifyReceipt(jws, keys)).rejects.toMatchObject({ code: 'invalid_receipt' })
})

test('error: unsigned', async () => {
  await expect(verifyReceipt(new UnsecuredJWT(claims).encode(), jwks)).rejects.toMatchObject({
    code: 'invalid_receipt',
  })
})

test.each(['', 'a.b', 'a.b.c', '..', accepted.slice(0, -1), `${accepted}.x`])(
  'error: %.20j is no JWS',
  async (jws) => {
    await expect(verifyReceipt(jws, jwks)).rejects.toMatchObject({ code: 'invalid_receipt' })
  },
)

test('error: the keys can’t be fetched', async () => {
  const { url } = await serve(() => ({ status: 500, body: '' }))
  await expect(verifyReceipt(accepted, url)).rejects.toMatchObject({
    code: 'dependency_unavailable',
    retryable: true,
  })
})
