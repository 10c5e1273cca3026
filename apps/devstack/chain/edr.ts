import {
  ContractDecoder,
  EdrContext,
  keccak256,
  L1_CHAIN_TYPE,
  l1GenesisState,
  l1HardforkLatest,
  l1HardforkToString,
  l1ProviderFactory,
  MineOrdering,
  OP_CHAIN_TYPE,
  opGenesisState,
  opHardforkToString,
  opLatestHardfork,
  opProviderFactory,
  secp256k1PublicKeyFromSecretKey,
} from '@nomicfoundation/edr'
import type { Hex } from 'viem'

export type EdrOptions = {
  chainId: number
  /** Whether the simulated network is an OP Stack chain, with predeploys (GasPriceOracle, L1Block) and an L1 fee in receipts. */
  isOpStack: boolean
  /** Private keys of the accounts for which the node signs; each has 10,000 ETH. */
  privateKeys: readonly Hex[]
  /** Base fee of the first block in wei. */
  baseFeePerGas: string
}

export type JsonRpcRequest = { id?: unknown; method: string; params?: unknown }

/** Returns the response's `result` or `error` as JSON text, so that the caller can pass it on without parsing. */
export type Answer = (request: JsonRpcRequest) => Promise<string>

const initialBalance = 10_000n * 10n ** 18n
const blockGasLimit = 60_000_000n
/** EIP-7825's limit on a transaction's gas, which OP Stack chains don't have yet. */
const transactionGasCap = 1n << 24n

/** geth's JSON-RPC error code for a revert. The error's `data` is the data with which the call reverted. */
const revertErrorCode = 3

const layer1 = {
  type: L1_CHAIN_TYPE,
  factory: l1ProviderFactory,
  hardfork: () => l1HardforkToString(l1HardforkLatest()),
  genesisState: () => l1GenesisState(l1HardforkLatest()),
  gasLimit: transactionGasCap,
}
const opStack: typeof layer1 = {
  type: OP_CHAIN_TYPE,
  factory: opProviderFactory,
  hardfork: () => opHardforkToString(opLatestHardfork()),
  genesisState: () => opGenesisState(opLatestHardfork()),
  gasLimit: blockGasLimit,
}

/** Starts a new chain in this process: EDR, the engine of Hardhat's node, with Hardhat's configuration. */
export async function startEdr(options: EdrOptions): Promise<Answer> {
  const chain = options.isOpStack ? opStack : layer1
  const context = new EdrContext()
  await context.registerProviderFactory(chain.type, chain.factory())
  const provider = await context.createProvider(
    chain.type,
    {
      // Permit equal timestamps. Otherwise every automatically mined block advances the clock by a second, and short validity
      // windows expire.
      allowBlocksWithSameTimestamp: true,
      allowUnlimitedContractSize: false,
      bailOnCallFailure: true,
      // As on a real node, mine a transaction that reverts, and let eth_sendRawTransaction succeed.
      bailOnTransactionFailure: false,
      chainId: BigInt(options.chainId),
      coinbase: Buffer.from('c014ba5e'.repeat(5), 'hex'),
      defaultTransactionGasLimit: chain.gasLimit,
      genesisState: [
        ...chain.genesisState(),
        ...options.privateKeys.map((key) => ({ address: addressOf(key), balance: initialBalance })),
      ],
      hardfork: chain.hardfork(),
      initialBaseFeePerGas: BigInt(options.baseFeePerGas),
      minGasPrice: 0n,
      mining: { autoMine: true, blockGasLimit, memPool: { order: MineOrdering.Priority } },
      network: {
        genesisBlockGasLimit: blockGasLimit,
        genesisBlockTime: BigInt(Math.ceil(Date.now() / 1000)),
      },
      networkId: BigInt(options.chainId),
      observability: {},
      ownedAccounts: [...options.privateKeys],
      precompileOverrides: [],
    },
    { enable: false, decodeConsoleLogInputsCallback: () => [], printLineCallback: () => {} },
    { subscriptionCallback: () => {} },
    new ContractDecoder(),
  )
  return async (request) => {
    const { method, params = [] } = request
    const response = await provider.handleRequest(JSON.stringify({ jsonrpc: '2.0', id: 0, method, params }))
    const text = typeof response.data === 'string' ? response.data : JSON.stringify(response.data)
    if (response.stackTrace()?.kind !== 'StackTrace') return text
    const { message, data } = JSON.parse(text).error
    return JSON.stringify({ error: { code: revertErrorCode, message, data: data.data } })
  }
}

function addressOf(privateKey: Hex): Uint8Array {
  const publicKey = secp256k1PublicKeyFromSecretKey(Buffer.from(privateKey.slice(2), 'hex'))
  return keccak256(publicKey.slice(-64)).slice(-20)
}
