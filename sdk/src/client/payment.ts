import type { Address, Hex, TypedDataDefinition } from 'viem'
import { boundNonce, type Challenge, feeNonce, maxTimeoutSeconds } from '../protocol/challenge.ts'
import { type Authorization, eip712Domain, transferWithAuthorizationTypes } from '../protocol/eip3009.ts'
import type { Network } from '../protocol/networks.ts'
import { encodePayload } from '../protocol/payload.ts'

/** Whatever signs EIP-712 typed data for its address: viem's local accounts, smart accounts, a wallet's wrapper. */
export type Payer = {
  address: Address
  signTypedData(typedData: TransferTypedData): Promise<Hex>
}

type TransferTypedData = TypedDataDefinition<
  typeof transferWithAuthorizationTypes,
  'TransferWithAuthorization'
>

/** A challenge that was signed: enough to present it again or to have it settled at once. It holds no secret. */
export type SignedPayment = {
  requestId: string
  network: string
  macaroon: string
  /** Provider's payload, then the platform's. */
  payloads: [string, string]
  /** Base units, both together. */
  amount: bigint
}

/**
 * Signs both payments of a challenge that was checked, the provider's first.
 *
 * The nonces follow from the challenge, so signing it again can never make a second chargeable authorization.
 *
 * @param options.now Unix seconds.
 * @param options.signal once it has fired, the payer is asked for no further signature.
 */
export async function signPayment(
  challenge: Challenge,
  {
    payer,
    network,
    usdc,
    now,
    signal,
  }: { payer: Payer; network: Network; usdc: Address; now: number; signal?: AbortSignal },
): Promise<SignedPayment> {
  const domain = eip712Domain(network, usdc)
  const nonce = boundNonce(challenge.issuer, challenge.requestId)
  const sign = async (index: 0 | 1, authorizationNonce: Hex): Promise<string> => {
    const { payTo, maxAmountRequired, maxTimeoutSeconds: asked } = challenge.accepts[index]
    const authorization: Authorization = {
      from: payer.address,
      to: payTo,
      value: BigInt(maxAmountRequired),
      validAfter: 0n,
      validBefore: BigInt(Math.floor(now) + Math.min(asked, maxTimeoutSeconds)),
      nonce: authorizationNonce,
    }
    signal?.throwIfAborted()
    const signature = await payer.signTypedData({
      domain,
      types: transferWithAuthorizationTypes,
      primaryType: 'TransferWithAuthorization',
      message: authorization,
    })
    return encodePayload({ ...authorization, signature: normalizeRecovery(signature) })
  }
  const payloads: [string, string] = [await sign(0, nonce), await sign(1, feeNonce(nonce))]
  const [provider, fee] = challenge.accepts
  return {
    requestId: challenge.requestId,
    network: network.name,
    macaroon: challenge.macaroon,
    payloads,
    amount: BigInt(provider.maxAmountRequired) + BigInt(fee.maxAmountRequired),
  }
}

/** Some wallets write v as 0 or 1; USDC takes 27 or 28 only. */
function normalizeRecovery(signature: Hex): Hex {
  if (signature.length !== 132) return signature
  const v = Number.parseInt(signature.slice(130), 16)
  return v < 2 ? `0x${signature.slice(2, 130)}${(v + 27).toString(16)}` : signature
}
