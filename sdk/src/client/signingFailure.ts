import type { Network } from '../protocol/networks.ts'
import { ChallengeRefusedError } from './errors.ts'

/** Explains why a payer did not sign: its owner declined, its wallet is on another chain, or the wallet failed. */
export async function explain(
  cause: unknown,
  signer: { address: string; getChainId?: (() => Promise<number>) | undefined },
  network: Network,
): Promise<ChallengeRefusedError> {
  if (isRejection(cause)) {
    return new ChallengeRefusedError('the wallet’s owner declined', { code: 'payment_declined', cause })
  }
  // Wallets such as MetaMask sign only for the chain that they are connected to. Other wallets sign for any chain.
  const chainId = await signer.getChainId?.().catch(() => undefined)
  if (chainId !== undefined && chainId !== network.chainId) {
    return new ChallengeRefusedError(
      `the wallet is on chain ${chainId} and did not sign for ${network.name} (${network.chainId}): switch it with walletClient.switchChain({ id: ${network.chainId} })`,
      { code: 'wallet_on_another_chain', cause },
    )
  }
  const { shortMessage, message } = cause as { shortMessage?: unknown; message?: unknown }
  return new ChallengeRefusedError(`${signer.address} could not sign: ${shortMessage ?? message}`, {
    code: 'signing_failed',
    cause,
  })
}

/** Returns whether a person declined. This is code 4001 of EIP-1193, which viem wraps. */
function isRejection(error: unknown): boolean {
  for (let at = error; typeof at === 'object' && at !== null; ) {
    const { code, cause } = at as { code?: unknown; cause?: unknown }
    if (code === 4001) return true
    at = cause
  }
  return false
}
