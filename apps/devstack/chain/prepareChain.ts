import { nodeInterface } from '@tollkeeper/chain/postingGas'
import { priceFeedOf } from '@tollkeeper/chain/priceFeeds'
import type { Deployment } from '@tollkeeper/sdk/protocol/deployments'
import { type NetworkName, networkByName } from '@tollkeeper/sdk/protocol/networks'
import {
  type Address,
  createPublicClient,
  createTestClient,
  defineChain,
  encodeFunctionData,
  type Hash,
  type Hex,
  maxUint256,
  multicall3Abi,
  pad,
  parseAbi,
  parseEther,
  publicActions,
  type Transport,
  walletActions,
} from 'viem'
import { adminAccountIndex, devAccount } from './accounts.ts'
import { contractAddresses, contracts } from './contracts.ts'
import {
  create2Address,
  create2Data,
  create2Factory,
  create2FactoryDeployer,
  create2FactoryTransaction,
  create2GasLimit,
} from './create2.ts'
import { fiatToken, proxySlots } from './fiatToken.ts'
import { multicall3RuntimeCode, priceFeedRuntimeCode } from './generated/predeploys.ts'

export const multicall3Address: Address = '0xcA11bde05977b3631167028862bE2a173976CA11'

const priceFeedAbi = parseAbi(['function setAnswer(int256 answer)'])

const defaultGas = 500_000n

/**
 * Gas units that a simulated Arbitrum adds for the data of any transaction. The local chain only returns this estimate and doesn't
 * charge the gas.
 */
export const playedPostingGas = 400_000
const word = (value: number) => value.toString(16).padStart(8, '0')
/**
 * Contract code that returns the same values for any call. The values have the form of NodeInterface's `gasEstimateL1Component`: gas
 * units, and the base fees of L2 and L1.
 */
const nodeInterfaceCode: Hex = `0x63${word(playedPostingGas)}60005263${word(10_000_000)}60205263${word(1)}60405260606000f3`

/**
 * Maximum number of mints per transaction. A mint writes two storage slots and two logs; 250 mints stay below a
 * transaction's 2^24 gas.
 */
const mintsPerTransaction = 250

export type LocalDeployments = {
  [network: string]: Deployment
}

export type PrepareOptions = {
  /** Transport to the chain: over HTTP, or to a chain in this process. */
  transport: Transport
  network?: NetworkName
  bare?: boolean | undefined
  withContracts?: boolean | undefined
}

export type PreparedChain = {
  deployments: LocalDeployments
  /** Mints `amount` base units to each address, 250 per transaction; resolves when they are mined. */
  mintUsdc: (addresses: readonly Address[], amount: bigint) => Promise<void>
  /**
   * Time in ms between blocks. 0: each transaction is mined immediately in a separate block. With `atOnce`, transactions don't
   * wait for the next block.
   */
  setMining: (blockTimeMs: number, options?: { atOnce?: boolean }) => Promise<void>
  /** Sets the price of the gas token in USD that the network's price feed reports, if the network has a feed. Initially 3,000. */
  setEthUsd: (usd: number) => Promise<void>
}

/**
 * Deploys the contracts of a real network on an empty development node. Existing contracts stay, so this can run twice. On localhost,
 * USDC gets an address that is the same on every local chain. If the chain simulates another network, USDC gets its address on that network.
 */
export async function prepareChain(options: PrepareOptions): Promise<PreparedChain> {
  const name = options.network ?? 'localhost'
  const network = networkByName(name)
  const priceFeed = priceFeedOf(network)
  const client = await createClient(options.transport)
  const admin = devAccount(adminAccountIndex).address
  const token = fiatToken()
  const usdc = network.usdc ?? token.address

  const hasCode = async (address: Address) => (await client.getCode({ address })) !== undefined
  // Let the node sign and fill in the missing fields: a viem account would need five more requests.
  const submit = (to: Address, data: Hex, gas = defaultGas) =>
    client.sendTransaction({ account: admin, chain: null, to, data, gas })
  const waitFor = async (hash: Hash) => {
    const { status, to } = await client
      .getTransactionReceipt({ hash })
      .catch(() => client.waitForTransactionReceipt({ hash, pollingInterval: 20 }))
    if (status !== 'success') throw new Error(`a set-up transaction to ${to} reverted: ${hash}`)
  }
  const send = async (to: Address, data: Hex, gas?: bigint) => waitFor(await submit(to, data, gas))
  const deploy = async (code: Hex) => {
    if (await hasCode(create2Address(code))) return
    await send(create2Factory, create2Data(code), create2GasLimit(code))
  }

  const setMining: PreparedChain['setMining'] = async (blockTimeMs, { atOnce = blockTimeMs === 0 } = {}) => {
    await client.setAutomine(atOnce)
    await client.request({ method: 'evm_setIntervalMining', params: [blockTimeMs] } as never)
  }

  const setEthUsd = async (usd: number) => {
    if (priceFeed === undefined) return
    const answer = BigInt(Math.round(usd * 1e8))
    const data = encodeFunctionData({ abi: priceFeedAbi, functionName: 'setAnswer', args: [answer] })
    await send(priceFeed, data)
  }

  const mintUsdc = async (addresses: readonly Address[], amount: bigint) => {
    const hashes: Hash[] = []
    for (let start = 0; start < addresses.length; start += mintsPerTransaction) {
      const calls = addresses.slice(start, start + mintsPerTransaction).map((address) => ({
        target: usdc,
        allowFailure: false,
        callData: encodeFunctionData({ abi: token.abi, functionName: 'mint', args: [address, amount] }),
      }))
      const data = encodeFunctionData({ abi: multicall3Abi, functionName: 'aggregate3', args: [calls] })
      const gas = 100_000n + 64_000n * BigInt(calls.length)
      hashes.push(await submit(multicall3Address, data, gas))
    }
    for (const hash of hashes) await waitFor(hash)
  }

  const deployUsdc = async () => {
    if (await hasCode(usdc)) return
    for (const code of token.creationCodes) await deploy(code)
    if (usdc !== token.address) {
      const code = await client.getCode({ address: token.address })
      await client.setCode({ address: usdc, bytecode: code ?? '0x' })
      for (const index of [proxySlots.implementation, proxySlots.admin]) {
        const value = await client.getStorageAt({ address: token.address, slot: index })
        await client.setStorageAt({ address: usdc, index, value: value ?? pad('0x') })
      }
    }
    const call = (functionName: string, args: unknown[]) =>
      send(usdc, encodeFunctionData({ abi: token.abi, functionName, args }))
    // Configures the token as Circle did on Base, except that the admin has every role (masterMinter, pauser, blacklister,
    // owner).
    await call('initialize', [network.eip712.name, 'USDC', 'USD', 6, admin, admin, admin, admin])
    await call('initializeV2', [network.eip712.name])
    await call('initializeV2_1', [admin])
    await call('initializeV2_2', [[], 'USDC'])
    // Multicall3 may mint, so that one transaction can fund many buyers.
    await call('configureMinter', [multicall3Address, maxUint256])
  }

  if (!options.bare) {
    if (!(await hasCode(create2Factory))) {
      await client.setBalance({ address: create2FactoryDeployer, value: parseEther('0.01') })
      await client.sendRawTransaction({ serializedTransaction: create2FactoryTransaction })
    }
    if (!(await hasCode(multicall3Address))) {
      await client.setCode({ address: multicall3Address, bytecode: multicall3RuntimeCode })
    }
    if (network.gasModel === 'arbitrum')
      await client.setCode({ address: nodeInterface, bytecode: nodeInterfaceCode })
    await deployUsdc()
    if (options.withContracts !== false) {
      for (const { creationCode } of Object.values(contracts)) await deploy(creationCode)
    }
    if (priceFeed !== undefined) {
      await client.setCode({ address: priceFeed, bytecode: priceFeedRuntimeCode })
      await setEthUsd(3000)
    }
  }
  return {
    deployments: {
      [name]: {
        ...contractAddresses,
        usdc: usdc.toLowerCase() as Address,
        startBlock: 0,
      },
    },
    mintUsdc,
    setMining,
    setEthUsd,
  }
}

async function createClient(transport: Transport) {
  const chain = defineChain({
    id: await createPublicClient({ transport }).getChainId(),
    name: 'local chain',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: { default: { http: [] } },
  })
  return createTestClient({ mode: 'hardhat', chain, transport }).extend(publicActions).extend(walletActions)
}
