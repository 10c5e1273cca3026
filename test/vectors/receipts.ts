import { createPrivateKey, createPublicKey, createSign, createVerify, type JsonWebKey } from 'node:crypto'
import { readFile } from 'node:fs/promises'

// A key used only for these vectors.
const jwk = {
  kty: 'EC',
  crv: 'P-256',
  x: 'f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU',
  y: 'x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0',
  d: 'jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI',
} satisfies JsonWebKey
const kid = 'vector-1'

const privateKey = createPrivateKey({ key: jwk, format: 'jwk' })
const publicKey = createPublicKey(privateKey)

const claims = {
  paymentId: `pay_${'3'.repeat(32)}`,
  providerId: `prov_${'1'.repeat(32)}`,
  endpointId: `ep_${'2'.repeat(32)}`,
  totalUsdc: '50000',
  providerUsdc: '47500',
  platformUsdc: '2500',
  tier: 'micropayment',
  effectiveRate: '0.05',
  timestamp: '2027-01-15T08:00:00.000Z',
  transactionHash: `0x${'0'.repeat(64)}`,
  iss: 'https://gateway.example',
  iat: 1_800_000_000,
  status: 'verified',
  network: 'base',
  testnet: false,
  asset: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913',
  payer: `0x${'a'.repeat(40)}`,
  resource: 'https://api.example/weather',
  validBefore: '1800093600',
  authorizations: [
    { to: `0x${'b'.repeat(40)}`, value: '47500', nonce: `0x${'4'.repeat(64)}` },
    { to: `0x${'c'.repeat(40)}`, value: '2500', nonce: `0x${'5'.repeat(64)}` },
  ],
}

const settled = {
  ...claims,
  status: 'settled',
  iat: 1_800_000_600,
  transactionHash: `0x${'6'.repeat(64)}`,
  blockHash: `0x${'7'.repeat(64)}`,
}

const header = { alg: 'ES256', kid, typ: 'JWT' }

type Vector = { name: string; header: object; claims: object; valid: boolean }

const vectors: Vector[] = [
  { name: 'accepted', header, claims, valid: true },
  { name: 'settled', header, claims: settled, valid: true },
  { name: 'unknown key', header: { ...header, kid: 'vector-2' }, claims, valid: false },
  { name: 'sum is wrong', header, claims: { ...claims, totalUsdc: '50001' }, valid: false },
  {
    name: 'authorization differs',
    header,
    claims: { ...claims, providerUsdc: '47499', totalUsdc: '49999' },
    valid: false,
  },
  { name: 'amount is a number', header, claims: { ...claims, totalUsdc: 50000 }, valid: false },
  { name: 'unknown status', header, claims: { ...claims, status: 'done' }, valid: false },
  {
    name: 'test network marked as real money',
    header,
    claims: { ...claims, network: 'base-sepolia' },
    valid: false,
  },
  { name: 'no claims', header, claims: {}, valid: false },
]

const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')

/** Keeps a committed signature that is still valid, because ECDSA signatures differ each time. */
function sign({ header: jwsHeader, claims: jwsClaims }: Vector, kept: readonly string[]): string {
  const input = `${encode(jwsHeader)}.${encode(jwsClaims)}`
  const previous = kept.find((jws) => jws.startsWith(`${input}.`))
  if (previous) {
    const verifier = createVerify('sha256').update(input)
    const signature = Buffer.from(previous.slice(input.length + 1), 'base64url')
    if (verifier.verify({ key: publicKey, dsaEncoding: 'ieee-p1363' }, signature)) return previous
  }
  const signature = createSign('sha256').update(input).sign({ key: privateKey, dsaEncoding: 'ieee-p1363' })
  return `${input}.${signature.toString('base64url')}`
}

/** Returns the content of `test/vectors/receipts.json`. */
export async function generateReceipts() {
  const committed: unknown = await readFile(new URL('receipts.json', import.meta.url), 'utf8').then(
    JSON.parse,
    () => ({ receipts: [] }),
  )
  const kept = (committed as { receipts: { jws: string }[] }).receipts.map(({ jws }) => jws)
  const { d: _, ...publicJwk } = jwk
  return {
    about: 'Receipts signed with node:crypto, and the public key that verifies them.',
    jwks: { keys: [{ ...publicJwk, kid, alg: 'ES256', use: 'sig' }] },
    receipts: vectors.map((vector) => ({
      name: vector.name,
      jws: sign(vector, kept),
      claims: vector.claims,
      valid: vector.valid,
    })),
  }
}
