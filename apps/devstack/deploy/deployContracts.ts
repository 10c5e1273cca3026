import { postingGasLimit } from '@tollkeeper/chain/postingGas'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { domainSeparator } from '@tollkeeper/sdk/protocol/eip3009'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import {
  type Account,
  type Address,
  type Chain,
  formatEther,
  type Hex,
  isAddressEqual,
  type PublicClient,
  parseEther,
  type Transport,
  type WalletClient,
} from 'viem'
import { type Contract, contracts } from '../chain/contracts.ts'
import {
  create2Data,
  create2Factory,
  create2FactoryDeployer,
  create2FactoryTransaction,
  create2GasLimit,
} from '../chain/create2.ts'

/** Thrown if a deployment can't continue; its message says what to do. */
export class DeployError extends Error {
  override name = 'DeployError'
}

export type DeployOptions = {
  network: Network
  /** The token on this network. */
  usdc: Address
  publicClient: PublicClient
  walletClient: WalletClient<Transport, Chain | undefined, Account>
  /** The block that an earlier run recorded, if any. */
  recordedStartBlock: number | undefined
  log: (line: string) => void
}

/** Cost of the keyless factory transaction: 100,000 gas at its fixed 100 gwei. */
const factoryCost = parseEther('0.01')

/**
 * Deploys our contracts through the CREATE2 factory, or verifies existing ones: the code on chain must equal the compiled code,
 * byte for byte.
 *
 * @returns the block in which BatchSettlement was created.
 * @throws {DeployError} before anything is sent, if the chain, the token or the deployer isn't as expected.
 */
export async function deployContracts(options: DeployOptions): Promise<{ startBlock: number }> {
  const { network, publicClient, log } = options
  await requireChain(options)
  log(`network   ${network.name} (chain id ${network.chainId})`)

  const missing: Contract[] = []
  for (const contract of Object.values(contracts)) {
    const { name, address } = contract
    const code = await publicClient.getCode({ address })
    if (code === undefined) missing.push(contract)
    else requireCode(contract, code)
    log(
      `contract  ${name} ${address} (CREATE2, the same on every network)${code ? ', already deployed' : ''}`,
    )
  }
  if (missing.length > 0) {
    await requireFunds(options, missing)
    await requireFactory(options)
  }
  let startBlock: number | undefined
  for (const contract of missing) {
    const block = await deploy(options, contract)
    if (contract === contracts.batchSettlement) startBlock = block
  }
  startBlock ??=
    options.recordedStartBlock ?? (await findStartBlock(publicClient, contracts.batchSettlement.address))
  if (missing.length === 0) {
    log(`already deployed in block ${startBlock}, and the code is ours; nothing to send`)
  }
  return { startBlock }
}

/** Deploys one contract. @returns the block in which it was created. */
async function deploy(options: DeployOptions, contract: Contract): Promise<number> {
  const { walletClient, publicClient, log } = options
  const { name, address, creationCode } = contract
  const hash = await walletClient.sendTransaction({
    account: walletClient.account,
    chain: null,
    to: create2Factory,
    data: create2Data(creationCode),
    gas: await gasLimitOf(options, creationCode),
  })
  log(`sent      ${hash}`)
  const { status, blockNumber, gasUsed } = await publicClient.waitForTransactionReceipt({ hash })
  if (status !== 'success') {
    throw new DeployError(`the deployment ${hash} of ${name} reverted; look at it in a block explorer`)
  }
  requireCode(contract, await publicClient.getCode({ address }))
  log(`deployed  ${name} in block ${blockNumber} for ${gasUsed} gas; its code is ours`)
  return Number(blockNumber)
}

/** Returns the gas of a deployment. On Arbitrum it includes the gas for the transaction's data. */
async function gasLimitOf({ network, publicClient }: DeployOptions, creationCode: Hex): Promise<bigint> {
  const posted = { to: create2Factory, data: create2Data(creationCode) }
  return create2GasLimit(creationCode) + (await postingGasLimit({ network, client: publicClient }, posted))
}

async function requireChain({ network, usdc, publicClient }: DeployOptions): Promise<void> {
  const chainId = await publicClient.getChainId()
  if (chainId !== network.chainId) {
    throw new DeployError(
      `the RPC serves chain id ${chainId}, but ${network.name} is ${network.chainId}; use an RPC of ${network.name}`,
    )
  }
  if ((await publicClient.getCode({ address: usdc })) === undefined) {
    throw new DeployError(`there is no USDC at ${usdc}; check that this RPC serves ${network.name}`)
  }
  const expected = domainSeparator({ ...network.eip712, chainId, verifyingContract: usdc })
  const actual = await publicClient.readContract({
    address: usdc,
    abi: usdcAbi,
    functionName: 'DOMAIN_SEPARATOR',
  })
  if (actual !== expected) {
    throw new DeployError(
      `the token at ${usdc} has the EIP-712 domain ${actual}, but "${network.eip712.name}" version ${network.eip712.version} gives ${expected}, so signatures made for ${network.name} wouldn't settle; check that this RPC serves ${network.name}`,
    )
  }
}

function requireCode({ name, address, runtimeCode }: Contract, code: string | undefined): void {
  if (code === runtimeCode) return
  throw new DeployError(
    `the code of ${name} at ${address} isn't ours: ${code === undefined ? 'there is none' : 'it differs'}; build with the pinned compiler (npm ci) and try again`,
  )
}

async function requireFunds(options: DeployOptions, missing: readonly Contract[]): Promise<void> {
  const { network, publicClient, walletClient, log } = options
  const deployer = walletClient.account.address
  const [balance, { maxFeePerGas }, factory] = await Promise.all([
    publicClient.getBalance({ address: deployer }),
    publicClient.estimateFeesPerGas(),
    publicClient.getCode({ address: create2Factory }),
  ])
  const limits = await Promise.all(missing.map(({ creationCode }) => gasLimitOf(options, creationCode)))
  const gas = limits.reduce((sum, limit) => sum + limit, 0n)
  const needed = gas * maxFeePerGas + (factory === undefined ? factoryCost : 0n)
  log(
    `deployer  ${deployer} with ${formatEther(balance)} ${network.gasToken}; needs at most ${formatEther(needed)} ${network.gasToken}`,
  )
  if (balance >= needed) return
  throw new DeployError(
    `the deployer ${deployer} has ${balance === 0n ? 'nothing' : 'too little'} to pay gas with on ${network.name}: it has ${formatEther(balance)} of at least ${formatEther(needed)} ${network.gasToken}; send it some and try again`,
  )
}

/**
 * Checks that the factory exists, as it does on all six networks. On a chain without it, funds the factory's keyless deployer and
 * sends the deployer's transaction.
 */
async function requireFactory({ network, publicClient, walletClient, log }: DeployOptions): Promise<void> {
  if ((await publicClient.getCode({ address: create2Factory })) !== undefined) return
  log(
    `the CREATE2 factory ${create2Factory} doesn't exist here yet; deploying it for ${formatEther(factoryCost)} ${network.gasToken}`,
  )
  const balance = await publicClient.getBalance({ address: create2FactoryDeployer })
  if (balance < factoryCost) {
    const hash = await walletClient.sendTransaction({
      account: walletClient.account,
      chain: null,
      to: create2FactoryDeployer,
      value: factoryCost - balance,
    })
    await publicClient.waitForTransactionReceipt({ hash })
  }
  const hash = await publicClient.sendRawTransaction({ serializedTransaction: create2FactoryTransaction })
  const { status, contractAddress } = await publicClient.waitForTransactionReceipt({ hash })
  if (status !== 'success' || !contractAddress || !isAddressEqual(contractAddress, create2Factory)) {
    throw new DeployError(
      `the transaction ${hash} didn't create the CREATE2 factory; look at it in a block explorer`,
    )
  }
}

/** Finds the first block in which the contract has code, by binary search. */
async function findStartBlock(publicClient: PublicClient, address: Address): Promise<number> {
  let before = -1n
  let at = await publicClient.getBlockNumber()
  try {
    while (at - before > 1n) {
      const middle = before + (at - before) / 2n
      const code = await publicClient.getCode({ address, blockNumber: middle })
      if (code === undefined) before = middle
      else at = middle
    }
  } catch (error) {
    throw new DeployError(
      `the RPC doesn't return old code, so the start block can't be found; pass it with --start-block (${error instanceof Error ? error.message.split('\n')[0] : error})`,
    )
  }
  return Number(at)
}
