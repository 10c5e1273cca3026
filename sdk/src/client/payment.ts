import type { Address, Hex } from 'viem'
import { boundNonce, type Challenge, feeNonce, maxTimeoutSeconds } from '../protocol/challenge.ts'
import { splitterFactory } from '../protocol/deployments.ts'
import type { Authorization } from '../protocol/eip3009.ts'
import type { Network } from '../protocol/networks.ts'
import { encodePayload } from '../protocol/payload.ts'
import { splitterOf } from '../protocol/splitter.ts'
import { requireDeployed, type Signer, signAuthorization } from './payer.ts'
import type { SignedExactPayment } from './signedPayment.ts'

/**
 * How a price is divided between the provider and the platform.
 *
 * - `onchain`: one authorization for the whole price goes to a splitter, which divides it on chain.
 * - `separate`: each part has a separate authorization.
 */
export type PriceSplit = 'onchain' | 'separate'

/** Returns a challenge's price in base units, which is the sum of both parts. */
export function priceOf({ accepts: [provider, fee] }: Challenge): bigint {
  return BigInt(provider.maxAmountRequired) + BigInt(fee.maxAmountRequired)
}

export type SignOptions = {
  payer: Signer
  network: Network
  usdc: Address
  /** Unix seconds. */
  now: number
  /** Once this signal has fired, the payer isn't asked for further signatures. */
  signal?: AbortSignal
  /** `onchain`: one authorization for the whole price, paid to a splitter that divides it. Default `separate`. */
  split?: PriceSplit
  /** Maximum validity of the signatures in seconds. Default: 26 hours. */
  maxValiditySeconds?: number | undefined
}

/**
 * Signs the payment for a checked challenge. If each part has a separate authorization, signs the provider's first.
 *
 * The nonces are derived from the challenge, so if the client signs a challenge twice, only one payment can be charged. The client computes the
 * splitter's address itself and doesn't trust the seller or gateway for it.
 */
export async function signPayment(
  challenge: Challenge,
  { payer, network, usdc, now, signal, split, maxValiditySeconds = maxTimeoutSeconds }: SignOptions,
): Promise<SignedExactPayment> {
  const nonce = boundNonce(challenge.issuer, challenge.requestId)
  const sign = async (to: Address, value: bigint, authorizationNonce: Hex): Promise<string> => {
    const authorization: Authorization = {
      from: payer.address,
      to,
      value,
      validAfter: 0n,
      validBefore: BigInt(Math.floor(now) + validity),
      nonce: authorizationNonce,
    }
    signal?.throwIfAborted()
    const signature = await signAuthorization(payer, network, usdc, authorization)
    return encodePayload({ ...authorization, signature })
  }
  await requireDeployed(payer)
  const [provider, fee] = challenge.accepts
  const validity = Math.floor(Math.min(provider.maxTimeoutSeconds, maxTimeoutSeconds, maxValiditySeconds))
  const amount = BigInt(provider.maxAmountRequired)
  const feeAmount = BigInt(fee.maxAmountRequired)
  const parts = { payTo: provider.payTo, feePayTo: fee.payTo, amount, feeAmount }
  const splitter = split === 'onchain' ? splitterOf(parts, splitterFactory) : undefined
  const payloads: SignedExactPayment['payloads'] = splitter
    ? [await sign(splitter.address, amount + feeAmount, nonce)]
    : [await sign(provider.payTo, amount, nonce), await sign(fee.payTo, feeAmount, feeNonce(nonce))]
  return {
    requestId: challenge.requestId,
    network: network.name,
    macaroon: challenge.macaroon,
    payloads,
    amount: priceOf(challenge),
  }
}
