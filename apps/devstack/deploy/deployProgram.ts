import { access, constants } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { locateDeployments } from '@tollkeeper/chain/deploymentsFile'
import { loadNetworksFile } from '@tollkeeper/chain/networksFile'
import { ConfigError, isSet, readRpcUrls, requireRpcUrls, requireVariable } from '@tollkeeper/runtime/env'
import {
  isNetworkName,
  type Network,
  type NetworkName,
  networkByName,
  networkNames,
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
network, checks the code on chain and records addresses and start block. Contracts that exist already are only checked.

  --network <name>           ${networkNames.join(', ')}
  --deployments-file <path>  file that records the addresses (default: ${defaultFile},
                             the file that api, keeper and indexer read: DEPLOYMENTS_FILE)
  --start-block <number>     block in which BatchSettlement was created; needed only if the RPC doesn't return old code
  --json                     print one JSON object; progress goes to stderr
  --help

Environment:
  NETWORKS_FILE              describes further networks (docs/networks.md)
  RPC_URL_<NETWORK>          such as RPC_URL_BASE_SEPOLIA; for localhost default http://127.0.0.1:8545
  DEPLOYER_PRIVATE_KEY       0x and 64 hex digits; for localhost default Hardhat's first account`

/**
 * Deploys our contracts to the network that the arguments name, and records the addresses; sets the exit
 * code.
 */
export async function runDeployProgram(open: OpenClients): Promise<void> {
  try {
    await deploy(open)
  } catch (error) {
    // Print an expected error in one line, and an unexpected one with its stack trace.
    console.error(
      error instanceof DeployError || error instanceof ConfigError ? `deploy: ${error.message}` : error,
    )
    process.exitCode = 1
  }
}

async function deploy(open: OpenClients): Promise<void> {
  loadNetworksFile(process.env)
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
  const log = values.json ? console.error : console.log
  const network = networkByName(name)
  const file = resolve(values['deployments-file'] ?? defaultFile)
  const recorded = (await readRecords(file))[name]
  const usdc = network.usdc ?? fiatToken().address

  const target = { network, url: readRpcUrl(name), privateKey: readPrivateKey(name) }
  // Omit the cause, because it may contain the RPC's URL, and therefore a credential.
  const { publicClient, walletClient, close } = await open(target).catch(() => {
    throw new DeployError(`the RPC of ${name} is not responding; check its URL, and that it is running`)
  })
  try {
    const { startBlock } = await deployContracts({
      network,
      usdc,
      publicClient,
      walletClient,
      recordedStartBlock: readStartBlock(values['start-block']) ?? recorded?.startBlock ?? undefined,
      log,
    })
    const deployment = { ...contractAddresses, usdc: usdc.toLowerCase(), startBlock }
    await recordDeployment(file, name, deployment)
    log(`recorded  ${file}`)
    if (values.json) console.log(JSON.stringify({ network: name, file, ...deployment }))
    if (file !== defaultFile)
      log(`api, keeper and indexer read ${defaultFile}: give them DEPLOYMENTS_FILE=${file}`)
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
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    })
  } catch (error) {
    throw new DeployError(`${error instanceof Error ? error.message : error}\n\n${usage}`)
  }
}

/** Reads the records. Also checks, before anything is deployed, that the file is writable. */
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
  if (network === 'localhost' && readRpcUrls(process.env, network) === null) return 'http://127.0.0.1:8545'
  return requireRpcUrls(process.env, network)[0] as string
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
