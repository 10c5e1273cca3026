/** `npm run deploy -- --network <name>`: puts BatchSettlement on a network and records where. */
import { access, constants } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import hardhatViem from '@nomicfoundation/hardhat-viem'
import { createHardhatRuntimeEnvironment } from 'hardhat/hre'
import type { Hex, PublicClient } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { isNetworkName, networkNames, networks } from '#protocol/networks'
import { devPrivateKey } from './chain/accounts.ts'
import { fiatToken } from './chain/fiatToken.ts'
import { DeployError, deployBatchSettlement } from './deploy/deployBatchSettlement.ts'
import { readDeploymentsFile, recordDeployment } from './deploy/deploymentsFile.ts'

const committedFile = join(import.meta.dirname, '../sdk/src/protocol/deployments.json')

const usage = `Usage: npm run deploy -- --network <name> [options]

Deploys BatchSettlement through the CREATE2 factory, to the same address on every network, checks the code on chain
and records address and start block. Where it is deployed already, nothing is sent and the code is checked.

  --network <name>           ${networkNames.join(', ')}
  --deployments-file <path>  where to record it (default sdk/src/protocol/deployments.json)
  --start-block <number>     the block of an earlier deployment, for an RPC that can't tell old code
  --help

Environment:
  RPC_URL_<NETWORK>          such as RPC_URL_BASE_SEPOLIA; for localhost default http://127.0.0.1:8545
  DEPLOYER_PRIVATE_KEY       0x and 64 hex digits; for localhost default Hardhat's first account`

async function main(): Promise<void> {
  const { values } = readArguments()
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
  const file = values['deployments-file'] ?? committedFile
  const recorded = (await readRecords(file))[name]
  const usdc = network.usdc ?? fiatToken().address

  const hre = await createHardhatRuntimeEnvironment({
    plugins: [hardhatViem],
    networks: {
      target: {
        type: 'http',
        chainType: network.isOpStack ? 'op' : 'l1',
        url: readRpcUrl(name),
        accounts: [readPrivateKey(name)],
      },
    },
  })
  const connection = await hre.network.create('target')
  try {
    // The cause may hold the RPC's URL, which may hold a credential, so it isn't passed on.
    await connection.provider.request({ method: 'eth_chainId' }).catch(() => {
      throw new DeployError(`the RPC of ${name} doesn't answer; is its URL right, and is it up?`)
    })
    const publicClient = (await connection.viem.getPublicClient()) as PublicClient
    const [walletClient] = await connection.viem.getWalletClients()
    if (walletClient === undefined) throw new DeployError('DEPLOYER_PRIVATE_KEY gave no account')
    const { address, startBlock } = await deployBatchSettlement({
      network,
      usdc,
      publicClient,
      walletClient,
      recordedStartBlock: readStartBlock(values['start-block']) ?? recorded?.startBlock ?? undefined,
      log: console.log,
    })
    await recordDeployment(file, name, {
      batchSettlement: address.toLowerCase(),
      usdc: usdc.toLowerCase(),
      startBlock,
    })
    console.log(`recorded  ${file}`)
  } finally {
    await connection.close()
  }
}

function readArguments() {
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

/** Also checks that the file is writable, before anything is deployed. */
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

function readRpcUrl(network: string): string {
  const variable = `RPC_URL_${network.toUpperCase().replaceAll('-', '_')}`
  const url = process.env[variable] ?? (network === 'localhost' ? 'http://127.0.0.1:8545' : undefined)
  // The URL itself may hold a credential, so no message repeats it.
  if (url === undefined || url === '')
    throw new DeployError(`${variable} isn't set: it must be the URL of an RPC of ${network}`)
  if (!URL.canParse(url)) throw new DeployError(`${variable} must be a URL such as https://…`)
  return url
}

function readPrivateKey(network: string): Hex {
  const key = process.env.DEPLOYER_PRIVATE_KEY ?? (network === 'localhost' ? devPrivateKey(0) : undefined)
  if (key === undefined || key === '')
    throw new DeployError(
      "DEPLOYER_PRIVATE_KEY isn't set: it must be the key of the account that pays the gas",
    )
  try {
    if (!/^0x[0-9a-fA-F]{64}$/.test(key)) throw new TypeError('not hex')
    // 0 and numbers above the curve's order look like keys, but are none.
    privateKeyToAccount(key as Hex)
    return key as Hex
  } catch {
    throw new DeployError('DEPLOYER_PRIVATE_KEY must be 0x and 64 hex digits of a key')
  }
}

function readStartBlock(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (!/^\d{1,15}$/.test(text)) throw new DeployError(`--start-block must be a block number; got "${text}"`)
  return Number(text)
}

try {
  await main()
} catch (error) {
  // An expected refusal is one line; an unexpected error keeps its stack trace.
  console.error(error instanceof DeployError ? `deploy: ${error.message}` : error)
  process.exitCode = 1
}
