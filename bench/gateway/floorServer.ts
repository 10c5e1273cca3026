/**
 * The floor for verifications, requests on a tab and challenges: a Hono server that only does the unavoidable cryptography of each
 * request, with the same fast libraries as the gateway. A verification needs two native recoveries, the six HMACs of a macaroon with three
 * caveats, and one ES256 signature. A request on a tab needs one recovery and one ES256 signature, but no HMACs, because the gateway
 * caches a macaroon that it has verified. A challenge needs the six HMACs.
 */
import { generateKeyPairSync, sign } from 'node:crypto'
import { serve } from '@hono/node-server'
import { hmacSha256 } from '@tollkeeper/api/http/hmac'
import { Hono } from 'hono'
import secp256k1 from 'secp256k1'

const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const digest = new Uint8Array(32).fill(7)
const { signature, recid } = secp256k1.ecdsaSign(digest, new Uint8Array(32).fill(1))
const key = new Uint8Array(32).fill(2)
const identifier = new Uint8Array(112).fill(3)
const caveat = new Uint8Array(52).fill(4)
const publicKey = new Uint8Array(65)
/** A text with the length of a receipt's header and claims. */
const receipt = 'r'.repeat(1_500)
/** A text with the length of a challenge's body. */
const challenge = 'c'.repeat(Number(process.argv[2] ?? 0))

function chainHmacs(): void {
  let chained = hmacSha256(key, identifier)
  chained = hmacSha256(hmacSha256(key, chained), identifier)
  for (let i = 0; i < 3; i++) chained = hmacSha256(chained, caveat)
}

function signReceipt(): string {
  const jws = sign('sha256', Buffer.from(receipt), privateKey)
  return `${receipt}.${jws.toString('base64url')}`
}

/** Filler for the answer to a request on a tab, as long as all of the answer except the receipt. */
const besideReceipt = 't'.repeat(Number(process.argv[3] ?? 0))

const app = new Hono()
app.post('/verify', async (c) => {
  await c.req.json()
  secp256k1.ecdsaRecover(signature, recid, digest, false, publicKey)
  secp256k1.ecdsaRecover(signature, recid, digest, false, publicKey)
  chainHmacs()
  return c.json({ verified: true, receipt: signReceipt() })
})
app.post('/tab', async (c) => {
  await c.req.json()
  secp256k1.ecdsaRecover(signature, recid, digest, false, publicKey)
  return c.json({ verified: true, receipt: signReceipt(), besideReceipt })
})
app.post('/challenge', async (c) => {
  await c.req.json()
  chainHmacs()
  return c.body(challenge, 200, { 'content-type': 'application/json' })
})
app.get('/healthz', (c) => c.text('ok'))

serve({ fetch: app.fetch, port: Number(process.env.PORT), hostname: '127.0.0.1' })
