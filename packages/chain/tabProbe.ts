import { eip712Domain, receiveWithAuthorizationTypes } from '@tollkeeper/sdk/protocol/eip3009'
import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import type { ServedNetwork } from './servedNetworks.ts'
import { diagnose } from './simulate.ts'

/**
 * Creates a function that tests whether a network's USDC still accepts signatures of tabs. USDC could blacklist the TabSettlement
 * contract, or an upgrade could limit `validBefore`. The test is an authorization for the amount 0, from an account that isn't
 * used elsewhere, with the greatest possible `validBefore`.
 *
 * @returns a function, which also returns true while the token is paused: then the token accepts no transfer at all, so nothing
 * can be said about tabs.
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
