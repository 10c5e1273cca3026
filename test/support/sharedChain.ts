import { createTestClient, http, parseEther, publicActions } from 'viem'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'

/** The chain that this worker's files share if they need only a chain. The chain's process stops with the worker. */
let shared: Promise<LocalChain> | undefined

/**
 * Returns a local chain. The chain keeps everything that other files did on it, except what {@link resetChain}
 * resets.
 */
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
 * Refills the wallets, resets the gas price, and mines each transaction at once.
 *
 * @returns false if a test moved the chain's clock ahead.
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
