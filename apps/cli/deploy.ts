/**
 * Runs `tollkeeper deploy`: the same as `npm run deploy`, but without Hardhat, which isn't part of the
 * package.
 */
import { createPublicClient, createWalletClient, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { runDeployProgram } from '../devstack/deploy/deployProgram.ts'
import { exitStatus } from './terminal/cliError.ts'

await runDeployProgram(async ({ url, privateKey }) => {
  const transport = http(url)
  const publicClient = createPublicClient({ transport })
  await publicClient.getChainId()
  const walletClient = createWalletClient({ account: privateKeyToAccount(privateKey), transport })
  return { publicClient, walletClient, close: async () => {} }
})

// The deploy program exits with 1 for every failure. `tollkeeper` reports a failed command with `exitStatus.failed`.
if (process.exitCode === 1) process.exitCode = exitStatus.failed
