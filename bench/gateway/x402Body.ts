import type { Address } from 'viem'
import { networks } from '#protocol/networks'
import type { SignedAuthorization } from '#protocol/payload'

/** What a seller's middleware sends to its facilitator, in version 2 of x402. */
export function createX402Body(
  usdc: Address,
  url: string,
  { signature, ...authorization }: SignedAuthorization,
) {
  const { caip2, eip712 } = networks.localhost
  const requirements = {
    scheme: 'exact',
    network: caip2,
    amount: authorization.value.toString(),
    asset: usdc,
    payTo: authorization.to,
    maxTimeoutSeconds: 3_600,
    extra: eip712,
  }
  const { from, to, value, validAfter, validBefore, nonce } = authorization
  return {
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      resource: { url },
      accepted: requirements,
      payload: {
        signature,
        authorization: {
          from,
          to,
          value: value.toString(),
          validAfter: validAfter.toString(),
          validBefore: validBefore.toString(),
          nonce,
        },
      },
    },
    paymentRequirements: requirements,
  }
}
