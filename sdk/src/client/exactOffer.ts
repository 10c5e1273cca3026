import type { Address, Hex } from 'viem'
import { maxTimeoutSeconds as longest } from '../protocol/challenge.ts'
import type { Authorization } from '../protocol/eip3009.ts'

/** The offer of a seller of another gateway: one authorization in USDC (x402's `exact`, MPP's `charge`). */
export type ExactOffer = {
  /** USDC base units. */
  amount: bigint
  payTo: Address
  maxTimeoutSeconds: number
  /** Unix seconds; overrides the time limit. */
  validBefore?: number
  /** Random, or bound to the seller's challenge. */
  nonce: Hex
  /** In the seller's words. */
  description: string
}

/** @param now Unix seconds. */
export function authorizationOf(
  { amount, payTo, maxTimeoutSeconds, validBefore, nonce }: ExactOffer,
  from: Address,
  now: number,
): Authorization {
  const until = Math.min(validBefore ?? now + maxTimeoutSeconds, now + longest)
  return { from, to: payTo, value: amount, validAfter: 0n, validBefore: BigInt(Math.floor(until)), nonce }
}
