import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { eip712Domain, receiveWithAuthorizationTypes } from '#protocol/eip3009'
import type { ServedNetwork } from './servedNetworks.ts'
import { diagnose } from './simulate.ts'

/**
 * Builds a question to a network's USDC: does it still take what tabs sign? It could blacklist the TabSettlement contract, or bound
 * `validBefore` in an upgrade. It is asked to move nothing, for an account that exists nowhere else, by an authorization with the
 * greatest `validBefore` that there is.
 *
 * @returns a function; it says true of a paused token, which takes nothing else either.
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
