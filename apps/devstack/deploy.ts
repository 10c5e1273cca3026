/**
 * `npm run deploy -- --network <name>`: deploys our contracts to a network with Hardhat, and records the addresses in the
 * repository.
 */
import hardhatViem from '@nomicfoundation/hardhat-viem'
import { createHardhatRuntimeEnvironment } from 'hardhat/hre'
import type { PublicClient } from 'viem'
import { runDeployProgram } from './deploy/deployProgram.ts'

await runDeployProgram(async ({ network, url, privateKey }) => {
  const hre = await createHardhatRuntimeEnvironment({
    plugins: [hardhatViem],
    networks: {
      target: {
        type: 'http',
        chainType: network.gasModel === 'op-stack' ? 'op' : 'l1',
        url,
        accounts: [privateKey],
      },
    },
  })
  const connection = await hre.network.create('target')
  const publicClient = (await connection.viem.getPublicClient()) as PublicClient
  const [walletClient] = await connection.viem.getWalletClients()
  if (walletClient === undefined) throw new Error('DEPLOYER_PRIVATE_KEY gave no account')
  return { publicClient, walletClient, close: () => connection.close() }
})
