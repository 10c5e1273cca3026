import type { Hex } from 'viem'
import { bytesToHex, encodeUtf8 } from './bytes.ts'
import { type Keccak256, portableKeccak256 } from './eip3009.ts'

/**
 * How many refunds a payment can have. Each has a number, from 1.
 *
 * @example
 * import { maxRefunds, refundNonce } from '@tollkeeper/sdk/protocol'
 *
 * // The nonces of a payment's refunds, to find these on chain.
 * export const noncesOf = (issuer: string, paymentId: string) =>
 *   Array.from({ length: maxRefunds }, (_, index) => refundNonce(issuer, paymentId, index + 1))
 */
export const maxRefunds = 3

/**
 * Derives the nonce of a refund's authorization: keccak256 of UTF-8 `x402-refund:{issuer}:{paymentId}:{number}`.
 *
 * A wallet can use it only once, so a refund that is requested twice moves once. Whoever has the payment's receipt finds its
 * refunds on chain by computing their nonces.
 *
 * @param issuer the gateway's public URL, the receipt's `iss`.
 * @param paymentId the payment that is refunded.
 * @param number of this refund among the payment's: 1 to 3.
 * @param keccak a faster keccak256 than the portable one.
 * @returns 32 bytes.
 * @example
 * import { refundNonce } from '@tollkeeper/sdk/protocol'
 *
 * console.log(refundNonce('https://gateway.example', `pay_${'0'.repeat(32)}`, 1))
 * // 0x284b296d9062adb73f5270e1497715eca8fef6e5cb74a577853f22451ddf41d6
 */
export function refundNonce(
  issuer: string,
  paymentId: string,
  number: number,
  keccak: Keccak256 = portableKeccak256,
): Hex {
  return bytesToHex(keccak(encodeUtf8(`x402-refund:${issuer}:${paymentId}:${number}`)))
}
