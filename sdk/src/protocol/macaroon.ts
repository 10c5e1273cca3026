import type { Address, Hex } from 'viem'
import {
  bytesToHex,
  decodeEitherBase64,
  encodeBase64,
  encodeUtf8,
  equalBytes,
  readUint,
  writeHex,
  writeUint,
} from './bytes.ts'
import { ProtocolError } from './errors.ts'
import { addressPattern, amountPattern } from './fields.ts'
import { type PassTerms, parsePassTerms } from './passTerms.ts'
import { isoTime } from './time.ts'

/*
 * Macaroons in the V2 binary format of libmacaroons (https://github.com/rescrv/libmacaroons/blob/master/doc/format.txt), with only first-party
 * caveats and without location fields. They are encoded as standard base64 with padding, which every decoder reads. Base64url without padding, the
 * form of libmacaroons, is also accepted. All other spellings are rejected, so that no byte of a macaroon can change unnoticed.
 */

/**
 * HMAC-SHA-256. The caller provides it, because the fastest implementation depends on the platform. In Node 24, two one-shot `crypto.hash` calls over
 * the padded keys take 1.9 µs, pure JavaScript (`@noble/hashes`) takes 3.3 µs, and `createHmac` takes 9.7 µs.
 */
export type Hmac = (key: Uint8Array, data: Uint8Array) => Uint8Array

/** A secret with which a gateway mints macaroons. */
export type MacaroonSecret = {
  /** Key id: 1 to 32 characters of `[A-Za-z0-9._-]`. The macaroon contains it. */
  kid: string
  /** At least 32 bytes. */
  key: Uint8Array
}

/** The price terms of a challenge. They are the macaroon's identifier, so the signature covers them. */
export type MacaroonTerms = {
  /** 2 if and only if the challenge sells a pass. */
  version: 1 | 2
  kid: string
  /** Unix seconds. */
  mintedAt: number
  requestId: string
  chainId: number
  asset: Address
  payTo: Address
  feePayTo: Address
  /** Base units for the provider. */
  amount: bigint
  /** Base units for the platform. */
  feeAmount: bigint
  /**
   * The pass that the payment buys. The pass is one of the terms, not a caveat: any holder can add a caveat, and a caveat can only restrict, but a
   * pass grants something.
   */
  pass?: PassTerms
}

/** The three caveats that a gateway mints (conformance 2.3-1). */
export type MintedCaveats = {
  providerId: string
  endpointId: string
  /** Whole Unix seconds. */
  expiry: number
}

/** The caveats that a holder may add. */
export type HolderCaveats = {
  /** Whole Unix seconds. Has no effect if it is later than the macaroon's own expiry. */
  expiry?: number
  /** The only payer that may use the macaroon. */
  payer?: Address
  /** Maximum sum of the provider's amount and the fee, in USDC base units. */
  maxAmount?: bigint
}

/** The combination of all caveats of a macaroon: the most restrictive value of each. */
export type Caveats = MintedCaveats & HolderCaveats

/** The request that presents a macaroon. Each caveat is checked against it. */
export type MacaroonRequest = {
  providerId: string
  endpointId: string
  payer: Address
  /** The sum of the signed values, in USDC base units. */
  amount: bigint
}

/** The parts of a macaroon. They are unverified. */
export type ParsedMacaroon = {
  terms: MacaroonTerms
  /** The caveats' text, in order. */
  caveats: string[]
  identifier: Uint8Array
  caveatBytes: Uint8Array[]
  signature: Uint8Array
}

const formatVersion = 2
const endOfSection = 0
const locationField = 1
const identifierField = 2
const signatureField = 6
const signatureLength = 32
const maxCaveats = 32
const maxTextLength = 4096

const termsVersion = 1
/**
 * In version 2, the terms of a pass follow at the end: 1 byte for who may use it (1: payer, 2: bearer), 4 bytes for its validity in seconds, and 4
 * bytes for its number of requests (0: unlimited).
 */
const passTermsVersion = 2
const passLength = 9
const boundNames = [undefined, 'payer', 'bearer'] as const
/** Length in bytes: mintedAt 5, requestId 16, chainId 8, three addresses, and two amounts of 8. */
const fixedTermsLength = 5 + 16 + 8 + 3 * 20 + 2 * 8

const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
/** libmacaroons uses this key to derive the HMAC key from a root key. */
const keyGenerator = encodeUtf8('macaroons-key-generator')

const kidPattern = /^[A-Za-z0-9._-]{1,32}$/
const requestIdPattern = /^req_[0-9a-f]{32}$/
const idPattern = /^[A-Za-z0-9_-]{1,64}$/
const isoTimePattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,3})?Z$/

/**
 * Mints the macaroon of one challenge (conformance 2.3), in the V2 binary format of libmacaroons as base64 with padding.
 *
 * Times are Unix seconds, amounts USDC base units below 2^64.
 *
 * @throws {TypeError} for a malformed `kid` or `requestId`.
 * @throws {ProtocolError} `macaroon_invalid` if the macaroon would have more than 4,096 characters.
 * @example
 * import { createHmac } from 'node:crypto'
 * import { type Hmac, mintMacaroon, parseMacaroon } from '@tollkeeper/sdk/protocol'
 *
 * const hmac: Hmac = (key, data) => createHmac('sha256', key).update(data).digest()
 * const secret = { kid: '2027-01', key: new Uint8Array(32).fill(7) }
 * const macaroon = mintMacaroon({
 *   secret,
 *   hmac,
 *   terms: {
 *     mintedAt: 1_800_000_000,
 *     requestId: `req_${'0'.repeat(32)}`,
 *     chainId: 8453,
 *     asset: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913',
 *     payTo: `0x${'b'.repeat(40)}`,
 *     feePayTo: `0x${'c'.repeat(40)}`,
 *     amount: 47_500n,
 *     feeAmount: 2_500n,
 *   },
 *   caveats: { providerId: 'prov_1', endpointId: 'ep_1', expiry: 1_800_000_300 },
 * })
 * console.log(parseMacaroon(macaroon).caveats.at(-1))
 * // expiry = 2027-01-15T08:05:00.000Z
 */
export function mintMacaroon({
  secret,
  terms,
  caveats,
  hmac,
}: {
  secret: MacaroonSecret
  terms: Omit<MacaroonTerms, 'version' | 'kid'>
  caveats: MintedCaveats
  hmac: Hmac
}): string {
  const identifier = encodeTerms({
    ...terms,
    version: terms.pass ? passTermsVersion : termsVersion,
    kid: secret.kid,
  })
  const caveatBytes = [
    `provider-id = ${caveats.providerId}`,
    `endpoint-id = ${caveats.endpointId}`,
    `expiry = ${isoTime(caveats.expiry)}`,
  ].map((caveat) => encodeUtf8(caveat))
  const signature = signChain(rootSignature(secret, identifier, hmac), caveatBytes, hmac)
  return encodeMacaroon(identifier, caveatBytes, signature)
}

/**
 * Adds caveats to a macaroon. This needs no secret: any holder can add caveats, but can't remove any.
 *
 * @param text the macaroon.
 * @param caveats `expiry` in Unix seconds, `payer`, and `maxAmount` in USDC base units for the provider's amount and the fee together.
 * @returns the restricted macaroon.
 * @throws {ProtocolError} `macaroon_invalid`, `unknown_caveat`
 * @example
 * import { createHmac } from 'node:crypto'
 * import { attenuateMacaroon, type Hmac } from '@tollkeeper/sdk/protocol'
 *
 * const hmac: Hmac = (key, data) => createHmac('sha256', key).update(data).digest()
 *
 * // For a helper that may spend at most 0.05 USDC of this payer.
 * export const narrow = (macaroon: string, payer: `0x${string}`) =>
 *   attenuateMacaroon(macaroon, { payer, maxAmount: 50_000n }, hmac)
 */
export function attenuateMacaroon(text: string, caveats: HolderCaveats, hmac: Hmac): string {
  const { identifier, caveatBytes, signature } = parseMacaroon(text)
  const added: string[] = []
  if (caveats.expiry !== undefined) added.push(`expiry = ${isoTime(caveats.expiry)}`)
  if (caveats.payer !== undefined) added.push(`payer = ${caveats.payer.toLowerCase()}`)
  if (caveats.maxAmount !== undefined) added.push(`max-amount = ${caveats.maxAmount}`)
  const addedBytes = added.map((caveat) => encodeUtf8(caveat))
  return encodeMacaroon(identifier, [...caveatBytes, ...addedBytes], signChain(signature, addedBytes, hmac))
}

/**
 * Splits a macaroon into its parts. Doesn't verify it.
 *
 * @throws {ProtocolError} `macaroon_invalid` if the text isn't in the strict form; `unknown_caveat` for a third-party caveat.
 * @example
 * import { parseMacaroon } from '@tollkeeper/sdk/protocol'
 *
 * // Returns the times until which a challenge can be paid, from its macaroon.
 * export const expiriesOf = (macaroon: string) =>
 *   parseMacaroon(macaroon).caveats.filter((caveat) => caveat.startsWith('expiry = '))
 */
export function parseMacaroon(text: string): ParsedMacaroon {
  if (text.length > maxTextLength) throw invalid(`it has over ${maxTextLength} characters`)
  const bytes = decodeEitherBase64(text)
  if (!bytes) throw invalid('it is neither base64 with padding nor base64url without')
  const reader = new Reader(bytes)
  if (reader.byte() !== formatVersion) throw invalid('it is not of libmacaroons format V2')
  const identifier = reader.field(identifierField)
  reader.expect(endOfSection)
  const caveatBytes: Uint8Array[] = []
  while (reader.peek() !== endOfSection) {
    if (caveatBytes.length === maxCaveats) throw invalid(`it has over ${maxCaveats} caveats`)
    if (reader.peek() === locationField) throw thirdParty()
    caveatBytes.push(reader.field(identifierField))
    if (reader.byte() !== endOfSection) throw thirdParty()
  }
  reader.expect(endOfSection)
  const signature = reader.field(signatureField)
  if (signature.length !== signatureLength || !reader.atEnd())
    throw invalid('its signature is not the last 32 bytes')
  return {
    terms: decodeTerms(identifier),
    caveats: caveatBytes.map(decodeText),
    identifier,
    caveatBytes,
    signature,
  }
}

/**
 * Verifies a macaroon's signature and checks every caveat against the request (conformance 4.4-1).
 *
 * @param options.secrets the current secret, and older ones that are still accepted.
 * @param options.now Unix seconds.
 * @param options.notBefore Unix seconds. Rejects macaroons that were minted earlier, which is needed after a database was restored.
 * @param options.request the request that presents the macaroon. Its `amount` is the provider's amount plus the fee, in USDC base units.
 * @returns the terms, which determine the price, and the most restrictive value of each caveat.
 * @throws {ProtocolError} `macaroon_invalid`, `macaroon_expired`, `caveat_mismatch`, `unknown_caveat`
 * @example
 * import { createHmac } from 'node:crypto'
 * import { type Hmac, type MacaroonSecret, verifyMacaroon } from '@tollkeeper/sdk/protocol'
 *
 * const hmac: Hmac = (key, data) => createHmac('sha256', key).update(data).digest()
 *
 * export function amountOf(macaroon: string, secrets: MacaroonSecret[], payer: `0x${string}`): bigint {
 *   const request = { providerId: 'prov_1', endpointId: 'ep_1', payer, amount: 50_000n }
 *   return verifyMacaroon(macaroon, { secrets, hmac, now: Date.now() / 1000, request }).terms.amount
 * }
 */
export function verifyMacaroon(
  text: string,
  options: {
    secrets: readonly MacaroonSecret[]
    hmac: Hmac
    now: number
    notBefore?: number
    request: MacaroonRequest
  },
): { terms: MacaroonTerms; caveats: Caveats } {
  const { secrets, hmac, now, notBefore = 0, request } = options
  const macaroon = parseMacaroon(text)
  const { terms } = macaroon
  const secret = secrets.find(({ kid }) => kid === terms.kid)
  if (!secret) throw invalid('it was not minted with a secret of this gateway')
  const signature = signChain(rootSignature(secret, macaroon.identifier, hmac), macaroon.caveatBytes, hmac)
  if (!equalBytes(signature, macaroon.signature)) throw invalid('its signature does not match')
  if (terms.mintedAt < notBefore) throw invalid('it was minted before this gateway was restored')
  const caveats = checkCaveats(macaroon.caveats, request)
  if (now >= caveats.expiry) {
    const expiry = isoTime(caveats.expiry)
    const message = `Macaroon expired at ${expiry}, and the gateway's clock says ${isoTime(now)}`
    throw new ProtocolError('macaroon_expired', message, { details: { expiry } })
  }
  return { terms, caveats }
}

/** Checks every caveat against the request. Rejects a caveat that it can't read, instead of ignoring it. */
function checkCaveats(texts: readonly string[], request: MacaroonRequest): Caveats {
  const caveats: Partial<Caveats> = {}
  for (const text of texts) {
    const separator = text.indexOf(' = ')
    const name = text.slice(0, separator)
    const value = text.slice(separator + 3)
    if (name === 'provider-id' && idPattern.test(value)) {
      if (value !== request.providerId) throw mismatch(name)
      caveats.providerId = value
    } else if (name === 'endpoint-id' && idPattern.test(value)) {
      if (value !== request.endpointId) throw mismatch(name)
      caveats.endpointId = value
    } else if (name === 'expiry' && isoTimePattern.test(value)) {
      const expiry = Date.parse(value) / 1000
      if (Number.isNaN(expiry)) throw unknownCaveat(text)
      caveats.expiry = Math.min(caveats.expiry ?? Number.POSITIVE_INFINITY, expiry)
    } else if (name === 'payer' && addressPattern.test(value)) {
      if (value !== request.payer.toLowerCase()) throw mismatch(name)
      caveats.payer = value as Address
    } else if (name === 'max-amount' && amountPattern.test(value)) {
      const maximum = BigInt(value)
      if (request.amount > maximum) throw mismatch(name)
      if (caveats.maxAmount === undefined || maximum < caveats.maxAmount) caveats.maxAmount = maximum
    } else {
      throw unknownCaveat(text)
    }
  }
  const { providerId, endpointId, expiry } = caveats
  if (providerId === undefined || endpointId === undefined || expiry === undefined) {
    throw invalid('it lacks one of the caveats provider-id, endpoint-id and expiry')
  }
  return { ...caveats, providerId, endpointId, expiry }
}

function rootSignature(secret: MacaroonSecret, identifier: Uint8Array, hmac: Hmac): Uint8Array {
  const rootKey = hmac(secret.key, identifier)
  return hmac(hmac(keyGenerator, rootKey), identifier)
}

function signChain(start: Uint8Array, caveats: readonly Uint8Array[], hmac: Hmac): Uint8Array {
  let signature = start
  for (const caveat of caveats) signature = hmac(signature, caveat)
  return signature
}

function encodeMacaroon(
  identifier: Uint8Array,
  caveats: readonly Uint8Array[],
  signature: Uint8Array,
): string {
  const fields = [identifier, ...caveats, signature]
  // Each field has at most three bytes of header and one end marker. Two more bytes are the format's version and a final end marker.
  const bytes = new Uint8Array(fields.reduce((length, { length: own }) => length + own + 4, 2))
  bytes[0] = formatVersion
  let at = 1
  for (const field of fields.slice(0, -1)) {
    at = writeField(bytes, at, identifierField, field)
    bytes[at++] = endOfSection
  }
  bytes[at++] = endOfSection
  at = writeField(bytes, at, signatureField, signature)
  const text = encodeBase64(bytes.subarray(0, at))
  if (text.length > maxTextLength) throw invalid(`it would have over ${maxTextLength} characters`)
  return text
}

/** @returns the offset after the field. */
function writeField(target: Uint8Array, offset: number, type: number, data: Uint8Array): number {
  let at = offset
  target[at++] = type
  // A varint of two bytes can express 16,383, which is more than the maximum length of a macaroon.
  if (data.length >= 0x80) target[at++] = (data.length & 0x7f) | 0x80
  target[at++] = data.length < 0x80 ? data.length : data.length >> 7
  target.set(data, at)
  return at + data.length
}

function encodeTerms(terms: MacaroonTerms): Uint8Array {
  if (!kidPattern.test(terms.kid)) throw new TypeError(`kid must be like ${kidPattern}`)
  if (!requestIdPattern.test(terms.requestId))
    throw new TypeError(`requestId must be like ${requestIdPattern}`)
  const { pass } = terms
  const bytes = new Uint8Array(2 + terms.kid.length + fixedTermsLength + (pass ? passLength : 0))
  bytes[0] = terms.version
  bytes[1] = terms.kid.length
  bytes.set(encodeUtf8(terms.kid), 2)
  let at = 2 + terms.kid.length
  writeUint(bytes, at, 5, BigInt(terms.mintedAt))
  at = writeHex(bytes, at + 5, `0x${terms.requestId.slice(4)}`)
  writeUint(bytes, at, 8, BigInt(terms.chainId))
  at = writeHex(bytes, at + 8, terms.asset)
  at = writeHex(bytes, at, terms.payTo)
  at = writeHex(bytes, at, terms.feePayTo)
  writeUint(bytes, at, 8, terms.amount)
  writeUint(bytes, at + 8, 8, terms.feeAmount)
  if (pass) {
    bytes[at + 16] = boundNames.indexOf(pass.boundTo)
    writeUint(bytes, at + 17, 4, BigInt(pass.seconds))
    writeUint(bytes, at + 21, 4, BigInt(pass.requests ?? 0))
  }
  return bytes
}

function decodeTerms(identifier: Uint8Array): MacaroonTerms {
  const [version, kidLength = 0] = identifier
  const hasPass = version === passTermsVersion
  const length = 2 + kidLength + fixedTermsLength + (hasPass ? passLength : 0)
  if ((version !== termsVersion && !hasPass) || identifier.length !== length) {
    throw invalid('its identifier does not have the form that Tollkeeper gateways use')
  }
  const kid = decodeText(identifier.subarray(2, 2 + kidLength))
  if (!kidPattern.test(kid)) throw invalid('its key id is malformed')
  const at = 2 + kidLength
  const hexAt = (offset: number, size: number): Hex =>
    bytesToHex(identifier.subarray(at + offset, at + offset + size))
  return {
    version,
    kid,
    mintedAt: Number(readUint(identifier, at, 5)),
    requestId: `req_${hexAt(5, 16).slice(2)}`,
    chainId: Number(readUint(identifier, at + 21, 8)),
    asset: hexAt(29, 20),
    payTo: hexAt(49, 20),
    feePayTo: hexAt(69, 20),
    amount: readUint(identifier, at + 89, 8),
    feeAmount: readUint(identifier, at + 97, 8),
    ...(hasPass && { pass: decodePassTerms(identifier.subarray(at + fixedTermsLength)) }),
  }
}

function decodePassTerms(bytes: Uint8Array): PassTerms {
  const requests = Number(readUint(bytes, 5, 4))
  try {
    return parsePassTerms({
      boundTo: boundNames[bytes[0] ?? 0],
      seconds: Number(readUint(bytes, 1, 4)),
      ...(requests > 0 && { requests }),
    })
  } catch {
    throw invalid('its identifier does not have the form that Tollkeeper gateways use')
  }
}

function decodeText(bytes: Uint8Array): string {
  try {
    return strictUtf8.decode(bytes)
  } catch {
    throw invalid('it holds bytes that are not UTF-8')
  }
}

function invalid(reason: string): ProtocolError {
  return new ProtocolError('macaroon_invalid', `Macaroon is not valid: ${reason}`)
}

function mismatch(caveat: string): ProtocolError {
  return new ProtocolError('caveat_mismatch', `Macaroon: the caveat ${caveat} is not met by this request`, {
    details: { caveat },
  })
}

function thirdParty(): ProtocolError {
  return new ProtocolError('unknown_caveat', 'Macaroon: third-party caveats are not accepted')
}

function unknownCaveat(text: string): ProtocolError {
  return new ProtocolError('unknown_caveat', `Macaroon: unknown caveat ${JSON.stringify(text.slice(0, 80))}`)
}

/** Reads bytes in order. Rejects a read beyond the end. */
class Reader {
  readonly #bytes: Uint8Array
  #at = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  atEnd(): boolean {
    return this.#at === this.#bytes.length
  }

  peek(): number {
    const byte = this.#bytes[this.#at]
    if (byte === undefined) throw invalid('it is incomplete')
    return byte
  }

  byte(): number {
    const byte = this.peek()
    this.#at++
    return byte
  }

  expect(byte: number): void {
    if (this.byte() !== byte) throw invalid('its sections are not as in format V2')
  }

  field(type: number): Uint8Array {
    this.expect(type)
    const length = this.#length()
    if (length > this.#bytes.length - this.#at) throw invalid('it is incomplete')
    this.#at += length
    return this.#bytes.subarray(this.#at - length, this.#at)
  }

  /** Reads a varint of at most two bytes. Rejects forms that aren't the shortest. */
  #length(): number {
    const low = this.byte()
    if (low < 0x80) return low
    const high = this.byte()
    if (high === 0 || high >= 0x80) throw invalid('a length in it is not in its shortest form')
    return (high << 7) | (low & 0x7f)
  }
}
