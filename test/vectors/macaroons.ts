import { createHmac } from 'node:crypto'
import { type Macaroon, newMacaroon } from 'macaroon'

// Minted with npm `macaroon`, an implementation that shares nothing with sdk/src/protocol/macaroon.ts.

const secret = { kid: 'k1', key: '11'.repeat(32) }
const otherSecret = { kid: 'k1', key: '22'.repeat(32) }
const unknownKid = { kid: 'k9', key: '11'.repeat(32) }

const mintedAt = 1_800_000_000
const expiry = mintedAt + 300
const providerId = `prov_${'1'.repeat(32)}`
const endpointId = `ep_${'2'.repeat(32)}`
const payer = `0x${'a'.repeat(40)}`

const terms = {
  mintedAt,
  requestId: 'req_000102030405060708090a0b0c0d0e0f',
  chainId: 8453,
  asset: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913',
  payTo: `0x${'b'.repeat(40)}`,
  feePayTo: `0x${'c'.repeat(40)}`,
  amount: '47500',
  feeAmount: '2500',
}

const request = { providerId, endpointId, payer, amount: '50000' }
const iso = (seconds: number) => new Date(seconds * 1000).toISOString()
const minted = [`provider-id = ${providerId}`, `endpoint-id = ${endpointId}`, `expiry = ${iso(expiry)}`]

function identifier(kid: string): Buffer {
  const uint = (value: bigint, size: number) => Buffer.from(value.toString(16).padStart(size * 2, '0'), 'hex')
  return Buffer.concat([
    Buffer.from([1, kid.length]),
    Buffer.from(kid),
    uint(BigInt(terms.mintedAt), 5),
    Buffer.from(terms.requestId.slice(4), 'hex'),
    uint(BigInt(terms.chainId), 8),
    Buffer.from(terms.asset.slice(2) + terms.payTo.slice(2) + terms.feePayTo.slice(2), 'hex'),
    uint(BigInt(terms.amount), 8),
    uint(BigInt(terms.feeAmount), 8),
  ])
}

function mint({ kid, key } = secret, id = identifier(kid)): Macaroon {
  const rootKey = createHmac('sha256', Buffer.from(key, 'hex')).update(id).digest()
  return newMacaroon({ identifier: id, rootKey, version: 2 })
}

function withCaveats(macaroon: Macaroon, ...caveats: string[]): Macaroon {
  for (const caveat of caveats) macaroon.addFirstPartyCaveat(caveat)
  return macaroon
}

type Parts = Pick<Macaroon, 'location' | 'identifier' | 'caveats' | 'signature'>

/**
 * Encodes a macaroon. The package's own exportBinary doubles its buffer with every byte and runs out of
 * memory.
 */
function binary({ location, identifier: id, caveats, signature }: Parts): Buffer {
  const field = (type: number, data: Uint8Array | string | undefined) => {
    if (data === undefined || data === '') return Buffer.alloc(0)
    const bytes = Buffer.from(data)
    const length = bytes.length < 0x80 ? [bytes.length] : [(bytes.length & 0x7f) | 0x80, bytes.length >> 7]
    return Buffer.concat([Buffer.from([type, ...length]), bytes])
  }
  const end = Buffer.from([0])
  return Buffer.concat([
    Buffer.from([2]),
    field(1, location),
    field(2, id),
    end,
    ...caveats.flatMap((caveat) => [
      field(1, caveat.location),
      field(2, caveat.identifier),
      field(4, caveat.vid),
      end,
    ]),
    end,
    field(6, signature),
  ])
}

const text = (macaroon: Macaroon) => binary(macaroon).toString('base64')
const full = (...further: string[]) => withCaveats(mint(), ...minted, ...further)

type Vector = {
  name: string
  macaroon: string
  /** `valid`, or the error's code. */
  result: string
  now?: number
  notBefore?: number
  request?: Partial<typeof request>
  /** The narrowest value of each caveat, if it differs from the minted one. */
  caveats?: Record<string, unknown>
}

function withoutCaveat(): Buffer {
  // The last caveat is cut out of the bytes and the signature stays, which an attacker can do without the
  // secret.
  const whole = binary(full())
  const shorter = binary(withCaveats(mint(), ...minted.slice(0, 2)))
  return Buffer.concat([shorter.subarray(0, -32), whole.subarray(-32)])
}

/**
 * Adds the caveat by hand, because the package encrypts with a random nonce. Verification rejects this caveat before
 * it checks any signature.
 */
function thirdParty(): Buffer {
  const { identifier: id, caveats, signature } = full()
  const caveat = {
    identifier: Buffer.from('ask them'),
    location: 'https://elsewhere.example',
    vid: Buffer.alloc(48, 7),
  }
  return binary({ location: undefined, identifier: id, caveats: [...caveats, caveat], signature })
}

function vectors(): Vector[] {
  const whole = binary(full())
  const changed = (change: (bytes: Buffer) => void) => {
    const bytes = Buffer.from(whole)
    change(bytes)
    return bytes.toString('base64url')
  }
  const rootKey = createHmac('sha256', Buffer.from(secret.key, 'hex')).update(identifier('k1')).digest()
  const located = newMacaroon({
    identifier: identifier('k1'),
    location: 'https://x.example',
    rootKey,
    version: 2,
  })
  return [
    { name: 'as minted', macaroon: text(full()), result: 'valid' },
    { name: 'in the last second', macaroon: text(full()), now: expiry - 1, result: 'valid' },
    { name: 'at its expiry', macaroon: text(full()), now: expiry, result: 'macaroon_expired' },
    {
      name: 'sooner expiry',
      macaroon: text(full(`expiry = ${iso(mintedAt + 60)}`)),
      result: 'valid',
      caveats: { expiry: mintedAt + 60 },
    },
    {
      name: 'sooner expiry, passed',
      macaroon: text(full(`expiry = ${iso(mintedAt + 60)}`)),
      now: mintedAt + 60,
      result: 'macaroon_expired',
    },
    {
      name: 'later expiry does not extend',
      macaroon: text(full(`expiry = ${iso(expiry + 3600)}`)),
      now: expiry,
      result: 'macaroon_expired',
    },
    {
      name: 'expiry without milliseconds',
      macaroon: text(full(`expiry = ${iso(mintedAt + 60).replace('.000', '')}`)),
      result: 'valid',
      caveats: { expiry: mintedAt + 60 },
    },
    { name: 'payer', macaroon: text(full(`payer = ${payer}`)), result: 'valid', caveats: { payer } },
    { name: 'another payer', macaroon: text(full(`payer = 0x${'d'.repeat(40)}`)), result: 'caveat_mismatch' },
    {
      name: 'max-amount',
      macaroon: text(full('max-amount = 60000', 'max-amount = 50000')),
      result: 'valid',
      caveats: { maxAmount: '50000' },
    },
    { name: 'max-amount, one below', macaroon: text(full('max-amount = 49999')), result: 'caveat_mismatch' },
    {
      name: 'another provider',
      macaroon: text(full()),
      request: { providerId: `prov_${'9'.repeat(32)}` },
      result: 'caveat_mismatch',
    },
    {
      name: 'another endpoint',
      macaroon: text(full()),
      request: { endpointId: `ep_${'9'.repeat(32)}` },
      result: 'caveat_mismatch',
    },
    {
      name: 'a second provider added',
      macaroon: text(full(`provider-id = prov_${'9'.repeat(32)}`)),
      result: 'caveat_mismatch',
    },
    { name: 'unknown caveat', macaroon: text(full('method = GET')), result: 'unknown_caveat' },
    { name: 'caveat without a value', macaroon: text(full('payer')), result: 'unknown_caveat' },
    { name: 'caveat with other spacing', macaroon: text(full(`payer=${payer}`)), result: 'unknown_caveat' },
    { name: 'empty caveat', macaroon: text(full('')), result: 'unknown_caveat' },
    {
      name: 'expiry that is not a time',
      macaroon: text(full('expiry = tomorrow')),
      result: 'unknown_caveat',
    },
    {
      name: 'expiry in month 13',
      macaroon: text(full('expiry = 2027-13-01T00:00:00Z')),
      result: 'unknown_caveat',
    },
    {
      name: 'max-amount that is negative',
      macaroon: text(full('max-amount = -1')),
      result: 'unknown_caveat',
    },
    { name: 'third-party caveat', macaroon: thirdParty().toString('base64url'), result: 'unknown_caveat' },
    {
      name: 'no expiry',
      macaroon: text(withCaveats(mint(), ...minted.slice(0, 2))),
      result: 'macaroon_invalid',
    },
    { name: 'no caveats', macaroon: text(mint()), result: 'macaroon_invalid' },
    { name: 'a caveat cut out', macaroon: withoutCaveat().toString('base64url'), result: 'macaroon_invalid' },
    {
      name: 'minted before the restore',
      macaroon: text(full()),
      notBefore: mintedAt + 1,
      result: 'macaroon_invalid',
    },
    {
      name: 'another gateway, same key id',
      macaroon: text(withCaveats(mint(otherSecret), ...minted)),
      result: 'macaroon_invalid',
    },
    {
      name: 'unknown key id',
      macaroon: text(withCaveats(mint(unknownKid), ...minted)),
      result: 'macaroon_invalid',
    },
    {
      name: 'identifier of another version',
      macaroon: text(
        withCaveats(mint(secret, Buffer.concat([Buffer.from([2]), identifier('k1').subarray(1)])), ...minted),
      ),
      result: 'macaroon_invalid',
    },
    { name: 'location', macaroon: text(withCaveats(located, ...minted)), result: 'macaroon_invalid' },
    {
      name: 'a length in a longer form',
      macaroon: Buffer.concat([
        whole.subarray(0, 2),
        Buffer.from([whole.readUInt8(2) | 0x80, 0]),
        whole.subarray(3),
      ]).toString('base64url'),
      result: 'macaroon_invalid',
    },
    { name: 'format V1', macaroon: changed((bytes) => bytes.writeUInt8(1, 0)), result: 'macaroon_invalid' },
    {
      name: 'trailing byte',
      macaroon: Buffer.concat([whole, Buffer.from([0])]).toString('base64url'),
      result: 'macaroon_invalid',
    },
    { name: 'cut short', macaroon: whole.subarray(0, -1).toString('base64url'), result: 'macaroon_invalid' },
    { name: 'base64url without padding', macaroon: whole.toString('base64url'), result: 'valid' },
    {
      name: 'base64url with padding',
      macaroon: whole.toString('base64').replaceAll('+', '-').replaceAll('/', '_'),
      result: 'macaroon_invalid',
    },
    {
      name: 'base64 without padding',
      macaroon: whole.toString('base64').replaceAll('=', ''),
      result: 'macaroon_invalid',
    },
    {
      name: 'both alphabets mixed',
      macaroon: whole.toString('base64').replace('+', '-'),
      result: 'macaroon_invalid',
    },
    { name: 'empty', macaroon: '', result: 'macaroon_invalid' },
    {
      name: 'not base64',
      macaroon: `${whole.toString('base64').slice(0, -1)}!`,
      result: 'macaroon_invalid',
    },
    { name: 'over 4,096 characters', macaroon: 'A'.repeat(4100), result: 'macaroon_invalid' },
  ]
}

/** Returns the content of `test/vectors/macaroons.json`. */
export function generateMacaroons() {
  return {
    about:
      'Macaroons made with npm `macaroon`. Root key = HMAC-SHA-256(secret, identifier). `now`, `notBefore` and `request` apply unless a vector has its own; times are Unix seconds.',
    secret,
    now: mintedAt + 10,
    notBefore: 0,
    request,
    terms,
    caveats: { providerId, endpointId, expiry },
    macaroons: vectors(),
  }
}
