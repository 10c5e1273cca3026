/** `tollkeeper deploy`: as `npm run deploy`, without Hardhat, which isn't part of the package. */
import { createPublicClient, createWalletClient, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { runDeployProgram } from '../devstack/deploy/deployProgram.ts'

await runDeployProgram(async ({ url, privateKey }) => {
  const transport = http(url)
  const publicClient = createPublicClient({ transport })
  await publicClient.getChainId()
  const walletClient = createWalletClient({ account: privateKeyToAccount(privateKey), transport })
  return { publicClient, walletClient, close: async () => {} }
})
