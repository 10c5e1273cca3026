import type { Hex } from 'viem'
import { hexToBytes } from './bytes.ts'

/** Order of secp256k1, and half of that order. A signature whose s exceeds half the order is malleable (EIP-2). */
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
 * Returns whether a private key's signature has the only form that USDC's ECRecover accepts: 65 bytes, s in the lower half of the curve's order, v 27
 * or 28.
 *
 * @param signature lower-case.
 */
export function isCanonicalSignature(signature: Hex): boolean {
  if (signature.length !== 132) return false
  const { r, s, v } = splitSignature(signature)
  if (v !== 27 && v !== 28) return false
  // Hex texts of equal length and case sort like the numbers that they represent.
  return r > zeroWord && r < curveOrder && s > zeroWord && s <= halfCurveOrder
}

/**
 * Shortens a signature to 64 bytes (EIP-2098): r, then s with the parity of v in the top bit.
 *
 * @returns undefined if {@link expandSignature} could not restore the signature: it isn't 65 bytes long, its v isn't 27 or 28, or its s is zero or at
 * least 2^255. Such a signature can only come from a contract wallet, and is sent unchanged.
 */
export function compactSignature(signature: Hex): { r: Hex; vs: Hex } | undefined {
  if (signature.length !== 132) return undefined
  const { r, s, v } = splitSignature(signature)
  if (v !== 27 && v !== 28) return undefined
  const top = Number.parseInt(s.charAt(2), 16)
  if (top >= 8 || /^0x0{64}$/.test(s)) return undefined
  return v === 27 ? { r, vs: s } : { r, vs: `0x${(top + 8).toString(16)}${s.slice(3)}` }
}

/** Restores the 65 bytes of a signature that {@link compactSignature} shortened. */
export function expandSignature({ r, vs }: { r: Hex; vs: Hex }): Hex {
  const top = Number.parseInt(vs.charAt(2), 16)
  const v = top >= 8 ? '1c' : '1b'
  return `${r}${(top % 8).toString(16)}${vs.slice(3)}${v}`
}

/** Splits a canonical signature into r ‖ s and the recovery bit, the form of native secp256k1 libraries. */
export function recoverableSignature(signature: Hex): { rs: Uint8Array; recovery: 0 | 1 } {
  const bytes = hexToBytes(signature)
  return { rs: bytes.subarray(0, 64), recovery: bytes[64] === 28 ? 1 : 0 }
}

/**
 * Converts every valid form of a private key's signature to the form that USDC accepts: 65 bytes with v 27 or 28. The other valid forms are 65 bytes
 * with v 0 or 1, and 64 bytes (EIP-2098). Any other signature stays unchanged, because it may come from a contract wallet.
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

/** The accepted forms of a signature, as text for messages. */
export const signatureForms =
  '65 bytes (r, s, v), 64 bytes (EIP-2098), or up to 1024 bytes by a contract wallet'

/**
 * Describes what is wrong with the form of a private key's signature, and what is expected.
 *
 * @param signature as {@link normalizeSignature} returns it.
 * @returns undefined if the form is right, or if the signature isn't 65 bytes long.
 */
export function faultOfForm(signature: Hex): string | undefined {
  if (signature.length !== 132 || isCanonicalSignature(signature)) return undefined
  const { r, s, v } = splitSignature(signature)
  if (v !== 27 && v !== 28 && v !== 0 && v !== 1) return `its v is ${v}, expected 27 or 28 (or 0 or 1)`
  if (s > halfCurveOrder && s < curveOrder)
    return 'its s is in the upper half of the curve’s order, expected the low s (EIP-2) with the opposite v'
  return `its ${r > zeroWord && r < curveOrder ? 's' : 'r'} is not a number between 0 and the curve’s order`
}
