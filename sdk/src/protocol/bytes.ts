import type { Hex } from 'viem'

/*
 * Byte codecs for the most frequent steps of a verification. `decodeBase64url` and `decodeEitherBase64` are strict: bytes have exactly one accepted
 * spelling in base64url and one in base64, so that no bit of a signed text can change unnoticed.
 */

const utf8 = new TextEncoder()

const hexPairs = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))

/** Node's codecs, if available. Browsers and workers use slower ones. */
const native = nativeCodecs()

/** Value of an ASCII hex digit by its char code; 255 for anything else. */
const hexDigits = new Uint8Array(128).fill(255)
for (const [value, digit] of [...'0123456789abcdef'].entries()) {
  hexDigits[digit.charCodeAt(0)] = value
  hexDigits[digit.toUpperCase().charCodeAt(0)] = value
}

/** Writes the bytes of a valid 0x-hex string at `offset`. Returns the offset after them. */
export function writeHex(target: Uint8Array, offset: number, hex: string): number {
  let at = offset
  for (let i = 2; i < hex.length; i += 2) {
    target[at++] = (hexDigit(hex, i) << 4) | hexDigit(hex, i + 1)
  }
  return at
}

/** Returns the bytes of a valid 0x-hex string. */
export function hexToBytes(hex: Hex): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array((hex.length - 2) / 2)
  writeHex(bytes, 0, hex)
  return bytes
}

export function bytesToHex(bytes: Uint8Array): Hex {
  let hex = '0x'
  for (const byte of bytes) hex += hexPairs[byte]
  return hex as Hex
}

export function encodeUtf8(text: string): Uint8Array {
  return native ? native.from(text, 'utf8') : utf8.encode(text)
}

/** Writes an unsigned integer in big-endian order, right-aligned in `size` bytes that are already zero. */
export function writeUint(target: Uint8Array, offset: number, size: number, value: bigint): void {
  // The values here fit into 64 bits. Writing two 32-bit halves is faster than a loop over a bigint.
  let low = Number(value & 0xffffffffn)
  let high = Number((value >> 32n) & 0xffffffffn)
  for (let i = offset + size - 1, end = Math.max(offset, offset + size - 4); i >= end; i--) {
    target[i] = low & 0xff
    low >>>= 8
  }
  for (let i = offset + size - 5, end = Math.max(offset, offset + size - 8); i >= end; i--) {
    target[i] = high & 0xff
    high >>>= 8
  }
}

/** Writes an unsigned integer of up to 256 bits as 32 bytes in big-endian order. */
export function writeWord(target: Uint8Array, offset: number, value: bigint): void {
  // Each call writes the lowest 64 bits of its argument.
  const view = new DataView(target.buffer, target.byteOffset + offset, 32)
  view.setBigUint64(0, value >> 192n)
  view.setBigUint64(8, value >> 128n)
  view.setBigUint64(16, value >> 64n)
  view.setBigUint64(24, value)
}

/** Reads a big-endian unsigned integer of at most 8 bytes. */
export function readUint(bytes: Uint8Array, offset: number, size: number): bigint {
  let high = 0
  let low = 0
  for (let i = 0; i < size; i++) {
    const byte = bytes[offset + i] ?? 0
    if (size - i > 4) high = high * 256 + byte
    else low = low * 256 + byte
  }
  return (BigInt(high) << 32n) | BigInt(low)
}

/** Encodes base64 with padding (RFC 4648 section 4). */
export function encodeBase64(bytes: Uint8Array): string {
  if (native) return native.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('base64')
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
}

/** @throws for invalid characters. White space is skipped. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const characters = atob(text)
  const bytes = new Uint8Array(characters.length)
  // `Uint8Array.from` takes 30 times as long.
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i)
  return bytes
}

/** Encodes base64url without padding (RFC 4648 section 5). */
export function encodeBase64url(bytes: Uint8Array): string {
  if (native) return native.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('base64url')
  return encodeBase64(bytes).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')
}

/** Decodes unpadded base64url. Returns undefined for padding, invalid characters, or unused bits that are not zero. */
export function decodeBase64url(text: string): Uint8Array<ArrayBuffer> | undefined {
  let bytes: Uint8Array<ArrayBuffer>
  if (native) bytes = new Uint8Array(native.from(text, 'base64url'))
  else if (text.length % 4 === 1 || !/^[\w-]*$/.test(text)) return undefined
  else bytes = decodeBase64(text.replaceAll('-', '+').replaceAll('_', '/'))
  // The decoder skips some characters, so compare the text with the only valid encoding of the bytes.
  return encodeBase64url(bytes) === text ? bytes : undefined
}

/**
 * Decodes base64 with padding, or base64url without. Returns undefined for any other text, for example one that mixes both, or one whose unused bits
 * are not zero.
 */
export function decodeEitherBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  // Try the gateway's own form first. If a text is valid in both forms, it has the same bytes in both.
  if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return decodeBase64url(text)
  const decoded = native ? new Uint8Array(native.from(text, 'base64')) : decodeBase64(text)
  return encodeBase64(decoded) === text ? decoded : undefined
}

export function concatBytes(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(parts.reduce((length, part) => length + part.length, 0))
  let offset = 0
  for (const part of parts) {
    bytes.set(part, offset)
    offset += part.length
  }
  return bytes
}

/** Compares without stopping at the first difference, so that the time doesn't reveal how much of a forged tag is right. */
export function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false
  let difference = 0
  for (let i = 0; i < a.length; i++) difference |= (a[i] ?? 0) ^ (b[i] ?? 0)
  return difference === 0
}

type NativeBytes = { toString(encoding: 'base64' | 'base64url'): string }
type NativeCodecs = {
  from(buffer: ArrayBufferLike, offset: number, length: number): NativeBytes
  from(text: string, encoding: 'base64' | 'base64url' | 'utf8'): Uint8Array & NativeBytes
}

/** Browser polyfills of Buffer may lack methods that Node's Buffer has. */
function nativeCodecs(): NativeCodecs | undefined {
  const { Buffer } = globalThis as { Buffer?: NativeCodecs & { isEncoding?(encoding: string): boolean } }
  return Buffer?.isEncoding?.('base64url') ? Buffer : undefined
}

function hexDigit(text: string, index: number): number {
  return hexDigits[text.charCodeAt(index)] ?? 255
}
