import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { PrivateKeyAccount } from 'viem/accounts'
import { type KeeperStack, platformWallet, signTransfer } from './keeperStack.ts'
import { randomHex, validFor } from './usdc.ts'

export type Pair = [SignedAuthorization, SignedAuthorization]

/**
 * Signs both transfers of a buyer to the registered provider: the provider's share, then the platform's fee.
 */
export async function signPair(
  { payee, served }: KeeperStack,
  buyer: PrivateKeyAccount,
  change: Partial<SignedAuthorization> = {},
): Promise<Pair> {
  const provider = { to: payee, value: 47_500n, ...validFor(3_600), nonce: randomHex(32), ...change }
  const fee = { ...provider, to: platformWallet, value: 2_500n, nonce: randomHex(32) }
  return [await signTransfer(served, buyer, provider), await signTransfer(served, buyer, fee)]
}

/** Returns the number of transactions signed so far. */
export async function countTransactions({ database }: KeeperStack): Promise<number> {
  const [row] = await database<[{ count: number }]>`select count(*)::int as count from transaction`
  return row.count
}
