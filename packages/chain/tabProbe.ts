import { eip712Domain, receiveWithAuthorizationTypes } from '@tollkeeper/sdk/protocol/eip3009'
import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import type { ServedNetwork } from './servedNetworks.ts'
import { diagnose } from './simulate.ts'

/**
 * Builds a question to a network's USDC: does it still take what tabs sign? It could blacklist the TabSettlement contract, or bound
 * `validBefore` by an upgrade. The probe is an authorization over nothing, from an account that is used nowhere else, with the
 * greatest possible `validBefore`.
 *
 * @returns a function; for a paused token, which takes nothing at all, it says true.
 */
export function createTabProbe({
  client,
  network,
  token,
  deployment,
}: Pick<ServedNetwork, 'client' | 'network' | 'token' | 'deployment'>): () => Promise<boolean> {
  const nobody = privateKeyToAccount(generatePrivateKey())
  const message = {
    from: nobody.address.toLowerCase() as Address,
    to: deployment.tabSettlement,
    value: 0n,
    validAfter: 0n,
    validBefore: 2n ** 256n - 1n,
    nonce: `0x${'0'.repeat(64)}` as Hex,
  }
  const primaryType = 'ReceiveWithAuthorization'
  let signature: Promise<Hex> | undefined

  return async () => {
    const domain = eip712Domain(network, token)
    signature ??= nobody.signTypedData({ domain, types: receiveWithAuthorizationTypes, primaryType, message })
    const signed = { ...message, primaryType, signature: await signature } as const
    const failure = await diagnose(client, token, deployment.tabSettlement, signed)
    return failure === null || failure.code === 'token_paused'
  }
}
