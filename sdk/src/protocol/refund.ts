import type { Hex } from 'viem'
import { bytesToHex, encodeUtf8 } from './bytes.ts'
import { type Keccak256, portableKeccak256 } from './eip3009.ts'

/**
 * Maximum number of refunds of a payment. They are numbered from 1.
 *
 * @example
 * import { maxRefunds, refundNonce } from '@tollkeeper/sdk/protocol'
 *
 * // Returns the nonces of a payment's refunds, to find the refunds on chain.
 * export const noncesOf = (issuer: string, paymentId: string) =>
 *   Array.from({ length: maxRefunds }, (_, index) => refundNonce(issuer, paymentId, index + 1))
 */
export const maxRefunds = 3

/**
 * Derives the nonce of a refund's authorization: keccak256 of UTF-8 `x402-refund:{issuer}:{paymentId}:{number}`.
 *
 * A wallet can use the nonce only once, so a refund that is requested twice is paid only once. Anyone who has the payment's receipt can compute the
 * nonces and find the refunds on chain.
 *
 * @param issuer the gateway's public URL, which is the receipt's `iss`.
 * @param paymentId id of the refunded payment.
 * @param number the refund's number within the payment, 1 to 3.
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
