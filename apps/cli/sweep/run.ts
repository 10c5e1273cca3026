import { createInterface } from 'node:readline/promises'
import { sweepGasLimit } from '@tollkeeper/chain/gas'
import { readDeployments } from '@tollkeeper/chain/networkSettings'
import { createRemoteAccount } from '@tollkeeper/chain/remoteSigner'
import { checkedAccount } from '@tollkeeper/chain/signTransaction'
import { openSigners, readSigner } from '@tollkeeper/keeper/settings/config'
import { readSplitters } from '@tollkeeper/ledger/batches/sweeps'
import { readRpcUrls, readVariable } from '@tollkeeper/runtime/env'
import { networkVariable } from '@tollkeeper/runtime/variables'
import { splitterFactoryAbi } from '@tollkeeper/sdk/protocol/abi/splitterFactory'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Deployment } from '@tollkeeper/sdk/protocol/deployments'
import { type NetworkName, networkByName } from '@tollkeeper/sdk/protocol/networks'
import {
  encodeSplit,
  type SplitterTerms,
  splitterAddress,
  splitterShares,
} from '@tollkeeper/sdk/protocol/splitter'
import { minimumPrice, splitPrice } from '@tollkeeper/sdk/protocol/tier'
import {
  type Address,
  createPublicClient,
  createWalletClient,
  type Hex,
  http,
  isHex,
  type LocalAccount,
  type PublicClient,
  parseEventLogs,
} from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { withDatabase } from '../database/withDatabase.ts'
import { CliError, exitStatus } from '../terminal/cliError.ts'
import { formatTable, printJson, printLines, printNote } from '../terminal/output.ts'

export type SweepFlags = {
  network: NetworkName
  wallet?: Address
  platform?: Address
  price?: bigint[]
  database?: boolean
  rpc?: string
  from?: Address
  yes?: boolean
  json?: boolean
}

type Waiting = SplitterTerms & { address: Address; balance: bigint }

/** The lowest price of each percentage tier, because all prices of a tier share a splitter. */
const percentagePrices = [minimumPrice, 10_000n]
const mostSweeps = 40
/** Gas of the transaction in addition to the gas of its sweeps. */
const baseGas = 100_000n

/** @returns the exit status */
export async function runSweep(flags: SweepFlags): Promise<number> {
  const { network } = flags
  const deployment = readDeployments(process.env)[network]
  if (!deployment)
    throw new CliError(
      'no_deployment',
      `No contracts are recorded for ${network}. If they are deployed there, set DEPLOYMENTS_FILE`,
    )
  const client = await openClient(flags)
  const waiting = await findWaiting(client, deployment, await readTerms(flags))
  if (waiting.length === 0) {
    if (flags.json) printJson({ splitters: [], transactions: [], failed: [] })
    else printNote('The splitters hold no USDC, so there is nothing to pay out')
    return exitStatus.ok
  }
  // With --json, standard output contains only the result.
  const print = flags.json ? printNote : (line: string) => printLines(line)
  print(renderWaiting(waiting))
  const account = readAccount(flags)
  if (!flags.yes) await confirm(waiting)
  const wallet = createWalletClient({ account, transport: http(urlOf(flags)) })
  const transactions: Hex[] = []
  const unpaid: Address[] = []
  for (const [platform, own] of Map.groupBy(waiting, (one) => one.platform)) {
    for (let i = 0; i < own.length; i += mostSweeps) {
      const part = own.slice(i, i + mostSweeps)
      const hash = await wallet.writeContract({
        address: deployment.splitterFactory,
        abi: splitterFactoryAbi,
        functionName: 'sweep',
        args: [deployment.usdc, platform, part.map(encodeSplit)],
        // Don't let the node estimate the gas limit. The transaction succeeds even if a sweep in it fails, so the node could choose
        // a limit at which a sweep runs out of gas.
        gas: sweepGasLimit(part.length) + baseGas,
        chain: null,
      })
      transactions.push(hash)
      print(`sent ${hash}`)
      const { status, logs } = await client.waitForTransactionReceipt({ hash })
      if (status !== 'success')
        throw new CliError(
          'sweep_reverted',
          `The transaction ${hash} reverted, so it paid out nothing. Run the command again`,
        )
      const failed = parseEventLogs({ abi: splitterFactoryAbi, eventName: 'SweepFailed', logs })
      for (const { args } of failed) {
        unpaid.push(args.splitter)
        print(`not paid out: ${args.splitter}; USDC may have blacklisted it or its provider`)
      }
    }
  }
  if (flags.json) {
    const splitters = waiting.map(({ address, balance }) => ({
      splitter: address,
      amount_usdc: formatUsdc(balance),
    }))
    printJson({ splitters, transactions, failed: unpaid })
  } else print(`${waiting.length - unpaid.length} of ${waiting.length} paid out`)
  return unpaid.length === 0 ? exitStatus.ok : exitStatus.unwell
}

/** Returns the terms of all splitters that may hold USDC. */
async function readTerms({
  network,
  wallet,
  platform,
  price = [],
  database,
}: SweepFlags): Promise<SplitterTerms[]> {
  if (database) {
    const all = await withDatabase('sweep', (sql) => readSplitters(sql, networkByName(network).chainId))
    return all.filter(({ provider }) => wallet === undefined || provider === wallet)
  }
  if (!wallet || !platform)
    throw new CliError(
      'invalid_flags',
      '--wallet: give it with --platform, or give --database if you are the operator',
    )
  return [...percentagePrices, ...price].flatMap((one) =>
    (['tiered', 'flat'] as const).map((schedule) => ({
      provider: wallet,
      platform,
      ...splitterShares(one, splitPrice(one, schedule).feeAmount),
    })),
  )
}

/** Returns the splitters that hold USDC, the largest amounts first. */
async function findWaiting(
  client: PublicClient,
  { splitterFactory, usdc }: Deployment,
  terms: readonly SplitterTerms[],
): Promise<Waiting[]> {
  const byAddress = new Map(terms.map((one) => [splitterAddress({ ...one, factory: splitterFactory }), one]))
  const addresses = [...byAddress.keys()]
  const balances = await client.multicall({
    contracts: addresses.map(
      (address) => ({ address: usdc, abi: usdcAbi, functionName: 'balanceOf', args: [address] }) as const,
    ),
    allowFailure: false,
    deployless: true,
    batchSize: 8_000,
  })
  return [...byAddress]
    .map(([address, one], index) => ({ ...one, address, balance: balances[index] ?? 0n }))
    .filter(({ balance }) => balance > 0n)
    .toSorted((a, b) => (a.balance < b.balance ? 1 : -1))
}

function renderWaiting(waiting: readonly Waiting[]): string {
  const rows = waiting.map(({ address, provider, platform, providerShare, platformShare, balance }) => {
    const fee = (balance * platformShare) / (providerShare + platformShare)
    return [address, provider, formatUsdc(balance - fee), platform, formatUsdc(fee)]
  })
  return formatTable(['splitter', 'provider', 'gets USDC', 'platform', 'gets USDC'], rows)
}

async function confirm(waiting: readonly Waiting[]): Promise<void> {
  if (!process.stdin.isTTY)
    throw new CliError(
      'not_confirmed',
      '--yes: required, because standard input is not a terminal, so the command cannot ask you',
    )
  const prompt = createInterface({ input: process.stdin, output: process.stderr })
  try {
    const answer = await prompt.question(`Sweep ${waiting.length}? [y/N] `)
    if (!/^y(es)?$/i.test(answer.trim())) throw new CliError('not_confirmed', 'Nothing was sent')
  } finally {
    prompt.close()
  }
}

function readAccount({ from, network }: SweepFlags): LocalAccount {
  if (from) return openRemoteAccount(from, network)
  const key = process.env.WALLET_PRIVATE_KEY?.trim() || null
  if (key === null)
    throw new CliError(
      'no_wallet',
      'Set WALLET_PRIVATE_KEY to a wallet that pays the gas; it receives none of the USDC',
    )
  if (!isHex(key) || key.length !== 66)
    throw new CliError('invalid_wallet', 'WALLET_PRIVATE_KEY: expected 0x and 64 hex digits')
  return privateKeyToAccount(key as Hex)
}

/**
 * Returns the account that pays the gas. @throws {CliError} without a remote signer, and for a wallet of the keeper, because the sweep would use
 * a nonce that the keeper needs.
 */
function openRemoteAccount(from: Address, network: NetworkName): LocalAccount {
  const signer = readSigner(process.env)
  if (signer === null)
    throw new CliError(
      'no_signer',
      '--from needs the signer that has the key of the wallet: set KEEPER_SIGNER_URL',
    )
  if (readVariable(process.env, 'KEEPER_SIGNER_ADDRESSES')?.includes(from))
    throw new CliError(
      'invalid_flags',
      `${from} is a wallet of the keeper, and a sweep would use nonces that the keeper needs: use another wallet`,
    )
  const signerOf = openSigners(signer)
  signerOf(networkByName(network).chainId)
  return checkedAccount(createRemoteAccount(from, signerOf))
}

function urlOf({ network, rpc }: SweepFlags): string {
  const variable = networkVariable('RPC_URL', network)
  const url = rpc ?? readRpcUrls(process.env, network)?.[0]
  if (!url) throw new CliError('no_rpc', `Give a node of ${network}: --rpc <url>, or ${variable}`)
  if (!URL.canParse(url)) throw new CliError('invalid_flags', `--rpc: expected an http(s) URL`)
  return url
}

async function openClient(flags: SweepFlags): Promise<PublicClient> {
  const client = createPublicClient({ transport: http(urlOf(flags)), pollingInterval: 1_000 })
  const chainId = await client.getChainId().catch((error: unknown) => {
    throw new CliError(
      'rpc_unreachable',
      `The node of ${flags.network} doesn't respond; check its URL`,
      error,
    )
  })
  const { chainId: expected } = networkByName(flags.network)
  if (chainId !== expected)
    throw new CliError(
      'other_chain',
      `The node serves chain ${chainId}, but ${flags.network} is chain ${expected}. Check the URL`,
    )
  return client
}
