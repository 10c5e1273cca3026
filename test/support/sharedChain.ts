import { createTestClient, http, parseEther, publicActions } from 'viem'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'

/** The chain of this worker's files that only need one. Its process ends with the worker. */
let shared: Promise<LocalChain> | undefined

/** A local chain with all that other files have left on it, but what {@link resetChain} undoes. */
export async function shareChain(): Promise<LocalChain> {
  const before = await shared
  if (before !== undefined) {
    if (await resetChain(before)) return before
    await before.close()
  }
  shared = startLocalChain({ network: 'localhost', blockTimeMs: 0 })
  return shared
}

/**
 * Fills the wallets, has gas at its first price, and each transaction mined at once.
 *
 * @returns false if a test put the chain's clock forward.
 */
export async function resetChain({ url, setMining }: LocalChain): Promise<boolean> {
  await setMining(0)
  const node = createTestClient({ mode: 'hardhat', transport: http(url) }).extend(publicActions)
  for (let index = 1; index < 20; index++)
    await node.setBalance({ address: devAccount(index).address, value: parseEther('10000') })
  await node.setNextBlockBaseFeePerGas({ baseFeePerGas: 1_000_000n })
  await node.mine({ blocks: 1 })
  const { timestamp } = await node.getBlock()
  return Number(timestamp) <= Date.now() / 1_000 + 5
}
