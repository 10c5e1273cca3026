import { access, constants } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { locateDeployments } from '@tollkeeper/chain/deploymentsFile'
import { ConfigError, isSet, requireVariable } from '@tollkeeper/runtime/env'
import { networkVariable } from '@tollkeeper/runtime/variables'
import {
  isNetworkName,
  type Network,
  type NetworkName,
  networkNames,
  networks,
} from '@tollkeeper/sdk/protocol/networks'
import type { Hex } from 'viem'
import { devPrivateKey } from '../chain/accounts.ts'
import { contractAddresses } from '../chain/contracts.ts'
import { fiatToken } from '../chain/fiatToken.ts'
import { DeployError, type DeployOptions, deployContracts } from './deployContracts.ts'
import { readDeploymentsFile, recordDeployment } from './deploymentsFile.ts'

/** Clients of the network for the deployer's account. */
export type OpenClients = (target: {
  network: Network
  url: string
  privateKey: Hex
}) => Promise<Pick<DeployOptions, 'publicClient' | 'walletClient'> & { close: () => Promise<void> }>

const usageOf = (defaultFile: string) => `Usage: npm run deploy -- --network <name> [options]

Deploys BatchSettlement, SplitterFactory and TabSettlement through the CREATE2 factory, to the same addresses on every
network, checks the code on chain and records addresses and start block. What is deployed already is only checked.

  --network <name>           ${networkNames.join(', ')}
  --deployments-file <path>  where to record it (default ${defaultFile},
                             where api, keeper and indexer look: DEPLOYMENTS_FILE)
  --start-block <number>     the block of an earlier deployment, for an RPC that can't tell old code
  --help

Environment:
  RPC_URL_<NETWORK>          such as RPC_URL_BASE_SEPOLIA; for localhost default http://127.0.0.1:8545
  DEPLOYER_PRIVATE_KEY       0x and 64 hex digits; for localhost default Hardhat's first account`

/** Deploys our contracts to the network that the arguments name, and records where; sets the exit code. */
export async function runDeployProgram(open: OpenClients): Promise<void> {
  try {
    await deploy(open)
  } catch (error) {
    // An expected refusal is one line; an unexpected error keeps its stack trace.
    console.error(
      error instanceof DeployError || error instanceof ConfigError ? `deploy: ${error.message}` : error,
    )
    process.exitCode = 1
  }
}

async function deploy(open: OpenClients): Promise<void> {
  const defaultFile = locateDeployments(process.env)
  const usage = usageOf(defaultFile)
  const { values } = readArguments(usage)
  if (values.help) {
    console.log(usage)
    return
  }
  const name = values.network
  if (!isNetworkName(name)) {
    throw new DeployError(
      `--network must be one of ${networkNames.join(', ')}${name === undefined ? '' : `; got "${name}"`}`,
    )
  }
  const network = networks[name]
  const file = resolve(values['deployments-file'] ?? defaultFile)
  const recorded = (await readRecords(file))[name]
  const usdc = network.usdc ?? fiatToken().address

  const target = { network, url: readRpcUrl(name), privateKey: readPrivateKey(name) }
  // The cause isn't passed on, because it may hold the RPC's URL, and so a credential.
  const { publicClient, walletClient, close } = await open(target).catch(() => {
    throw new DeployError(`the RPC of ${name} doesn't answer; is its URL right, and is it up?`)
  })
  try {
    const { startBlock } = await deployContracts({
      network,
      usdc,
      publicClient,
      walletClient,
      recordedStartBlock: readStartBlock(values['start-block']) ?? recorded?.startBlock ?? undefined,
      log: console.log,
    })
    await recordDeployment(file, name, { ...contractAddresses, usdc: usdc.toLowerCase(), startBlock })
    console.log(`recorded  ${file}`)
    if (file !== defaultFile)
      console.log(`api, keeper and indexer look in ${defaultFile}: give them DEPLOYMENTS_FILE=${file}`)
  } finally {
    await close()
  }
}

function readArguments(usage: string) {
  try {
    return parseArgs({
      options: {
        network: { type: 'string' },
        'deployments-file': { type: 'string' },
        'start-block': { type: 'string' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    })
  } catch (error) {
    throw new DeployError(`${error instanceof Error ? error.message : error}\n\n${usage}`)
  }
}

/** Reads the records, and checks before anything is deployed that the file is writable. */
async function readRecords(file: string): Promise<Awaited<ReturnType<typeof readDeploymentsFile>>> {
  try {
    await access(dirname(file), constants.W_OK)
    return await readDeploymentsFile(file)
  } catch (error) {
    throw new DeployError(
      `${file} can't be read and written (--deployments-file): ${error instanceof Error ? error.message : error}`,
    )
  }
}

function readRpcUrl(network: NetworkName): string {
  const variable = networkVariable('RPC_URL', network)
  if (network === 'localhost' && !isSet(process.env, variable)) return 'http://127.0.0.1:8545'
  return requireVariable(process.env, variable)[0] as string
}

function readPrivateKey(network: NetworkName): Hex {
  if (network === 'localhost' && !isSet(process.env, 'DEPLOYER_PRIVATE_KEY')) return devPrivateKey(0)
  return requireVariable(process.env, 'DEPLOYER_PRIVATE_KEY')
}

function readStartBlock(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (!/^\d{1,15}$/.test(text)) throw new DeployError(`--start-block must be a block number; got "${text}"`)
  return Number(text)
}
