import type { Hex } from 'viem'
import { hexToBytes } from './bytes.ts'

/** Order of secp256k1, and its half, above which a signature's s is the malleable twin (EIP-2). */
const curveOrder: Hex = '0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141'
const halfCurveOrder: Hex = '0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0'
export const zeroWord: Hex = `0x${'0'.repeat(64)}`

/** Splits a 65-byte signature into r, s and v. @throws {TypeError} for another length. */
export function splitSignature(signature: Hex): { r: Hex; s: Hex; v: number } {
  if (signature.length !== 132)
    throw new TypeError(`A signature of 65 bytes was expected, got ${(signature.length - 2) / 2}`)
  return {
    r: `0x${signature.slice(2, 66)}`,
    s: `0x${signature.slice(66, 130)}`,
    v: Number.parseInt(signature.slice(130), 16),
  }
}

/**
 * Tells whether a signature has the only form that USDC's ECRecover accepts for a private key: 65 bytes, s in the lower
 * half of the curve's order, v 27 or 28.
 *
 * @param signature lower-case.
 */
export function isCanonicalSignature(signature: Hex): boolean {
  if (signature.length !== 132) return false
  const { r, s, v } = splitSignature(signature)
  if (v !== 27 && v !== 28) return false
  // Hex of one length and case sorts as its numbers do.
  return r > zeroWord && r < curveOrder && s > zeroWord && s <= halfCurveOrder
}

/**
 * Shortens a signature to 64 bytes (EIP-2098): r, and s with the parity of v in its top bit.
 *
 * @returns undefined for a signature that {@link expandSignature} could not restore: one that isn't 65 bytes, whose v isn't
 * 27 or 28, or whose s is zero or not below 2^255. Only a contract wallet makes such signatures; they are sent unchanged.
 */
export function compactSignature(signature: Hex): { r: Hex; vs: Hex } | undefined {
  if (signature.length !== 132) return undefined
  const { r, s, v } = splitSignature(signature)
  if (v !== 27 && v !== 28) return undefined
  const top = Number.parseInt(s.charAt(2), 16)
  if (top >= 8 || /^0x0{64}$/.test(s)) return undefined
  return v === 27 ? { r, vs: s } : { r, vs: `0x${(top + 8).toString(16)}${s.slice(3)}` }
}

/** Restores the 65 bytes that {@link compactSignature} shortened. */
export function expandSignature({ r, vs }: { r: Hex; vs: Hex }): Hex {
  const top = Number.parseInt(vs.charAt(2), 16)
  const v = top >= 8 ? '1c' : '1b'
  return `${r}${(top % 8).toString(16)}${vs.slice(3)}${v}`
}

/** Splits a canonical signature into r ‖ s and the recovery bit, as native secp256k1 libraries take them. */
export function recoverableSignature(signature: Hex): { rs: Uint8Array; recovery: 0 | 1 } {
  const bytes = hexToBytes(signature)
  return { rs: bytes.subarray(0, 64), recovery: bytes[64] === 28 ? 1 : 0 }
}

/**
 * Turns every valid form of a private key's signature into the one that USDC takes: 65 bytes with v 27 or 28. Other forms are 65 bytes
 * with v 0 or 1, and 64 bytes (EIP-2098). Any other signature stays as it is: it may be a contract wallet's.
 *
 * @param signature lower-case.
 */
export function normalizeSignature(signature: Hex): Hex {
  const written = toFullForm(signature)
  return written !== undefined && isCanonicalSignature(written) ? written : signature
}

function toFullForm(signature: Hex): Hex | undefined {
  if (signature.length === 130) {
    return expandSignature({ r: `0x${signature.slice(2, 66)}`, vs: `0x${signature.slice(66)}` })
  }
  const recovery = signature.slice(130)
  if (recovery !== '00' && recovery !== '01') return undefined
  return `0x${signature.slice(2, 130)}${recovery === '00' ? '1b' : '1c'}`
}

/** The forms of a signature that are taken, for messages. */
export const signatureForms = '65 bytes (r, s, v), 64 bytes (EIP-2098), or up to 1024 of a contract wallet'

/**
 * Says what is wrong with the form of a private key's signature, and which form is wanted.
 *
 * @param signature as {@link normalizeSignature} returns it.
 * @returns undefined for a signature in the right form, or of another length.
 */
export function faultOfForm(signature: Hex): string | undefined {
  if (signature.length !== 132 || isCanonicalSignature(signature)) return undefined
  const { r, s, v } = splitSignature(signature)
  if (v !== 27 && v !== 28 && v !== 0 && v !== 1) return `its v is ${v}, expected 27 or 28 (or 0 or 1)`
  if (s > halfCurveOrder && s < curveOrder)
    return 'its s is in the upper half of the curve’s order, expected the low s (EIP-2), with the other v'
  return `its ${r > zeroWord && r < curveOrder ? 's' : 'r'} is no number below the curve’s order, and over 0`
}
