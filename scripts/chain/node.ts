/**
 * A real Hardhat node in a process of its own. Started by startLocalChain.ts through fork(): it sends its port over
 * that channel and ends when the channel closes, so that it never outlives its parent.
 */
import { createHardhatRuntimeEnvironment } from 'hardhat/hre'
import { devMnemonic } from './accounts.ts'
import { keepSideBlocks } from './sideBlocks.ts'

export type NodeOptions = {
  port: number
  chainId: number
  isOpStack: boolean
  accounts: number
  baseFeePerGas: string
}

const options: NodeOptions = JSON.parse(process.argv[2] ?? '{}')

const hre = await createHardhatRuntimeEnvironment({
  plugins: [keepSideBlocks()],
  networks: {
    chain: {
      type: 'edr-simulated',
      // An OP Stack chain has the predeploys (GasPriceOracle, L1Block) and the receipts' L1 fee.
      chainType: options.isOpStack ? 'op' : 'l1',
      chainId: options.chainId,
      initialBaseFeePerGas: BigInt(options.baseFeePerGas),
      accounts: { mnemonic: devMnemonic, count: options.accounts },
      // Otherwise every automined block moves the clock by a second, and short windows expire.
      allowBlocksWithSameTimestamp: true,
      // As on a real node, a transaction that reverts is mined; eth_sendRawTransaction doesn't fail.
      throwOnTransactionFailures: false,
    },
  },
})

const server = await hre.network.createServer('chain', '127.0.0.1', options.port)

// Ctrl-C reaches the whole process group; the parent decides when the chain stops.
process.on('SIGINT', () => {})
process.on('SIGTERM', () => process.exit(0))
process.on('disconnect', () => process.exit(0))

try {
  const { port } = await server.listen()
  process.send?.({ port })
} catch (error) {
  process.send?.({ error: error instanceof Error ? error.message : String(error) })
  process.exitCode = 1
  process.disconnect()
}
