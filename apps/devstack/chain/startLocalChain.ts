import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { extname, join } from 'node:path'
import { type NetworkName, networkByName } from '@tollkeeper/sdk/protocol/networks'
import { http } from 'viem'
import { devPrivateKey } from './accounts.ts'
import type { NodeOptions } from './node.ts'
import { findOptionalPackage } from './optionalPackage.ts'
import { type LocalDeployments, type PreparedChain, prepareChain } from './prepareChain.ts'

export type LocalChainOptions = {
  /** The network that the chain simulates: its chain id, USDC address and EIP-712 name. Default `localhost`. */
  network?: NetworkName
  /** Port. Default 0, which uses a free one. */
  port?: number
  /** Chain id. Default: the network's own. Tests pass another value to see that deploy and configuration checks reject the chain. */
  chainId?: number
  /**
   * Time in ms between blocks once the chain is prepared. With 0, each transaction is mined in a separate block. Default 1000.
   */
  blockTimeMs?: number
  /** Whether transactions are mined immediately, without waiting for the next block. Default false. */
  atOnce?: boolean
  /** Base fee of the first block, in wei. Default 1,000,000 (0.001 gwei), as on Base. */
  baseFeePerGas?: bigint
  /** Leaves the chain empty: no USDC, no CREATE2 factory, one block per transaction. Default false. */
  bare?: boolean
  /** With false, our contracts are omitted, for tests that deploy them. Default true. */
  withContracts?: boolean
  /** File to which the node's errors are appended. By default, only the last errors are kept, for {@link LocalChain.exited}. */
  logFile?: string
}

/**
 * Timeout in ms of a request. The chain runs on this machine, so a slow response means that the machine is busy, and not that the
 * chain has ended.
 */
export const localTimeoutMs = 60_000

/** Number of dev accounts (accounts.ts) that have ether, as on Hardhat's node. */
const fundedAccounts = 20

export type LocalChain = {
  url: string
  port: number
  chainId: number
  network: NetworkName
  pid: number
  /** Content for DEPLOYMENTS_FILE if the chain simulates a network other than localhost. */
  deployments: LocalDeployments
  mintUsdc: PreparedChain['mintUsdc']
  setMining: PreparedChain['setMining']
  setEthUsd: PreparedChain['setEthUsd']
  /** Resolves when the node has ended for any reason. The text contains the exit code or signal, and the node's last output. */
  exited: Promise<string>
  close: () => Promise<void>
  [Symbol.asyncDispose]: () => Promise<void>
}

/**
 * Starts a chain as a child process on loopback, with what a real network has: the CREATE2 factory, Multicall3, USDC, and our
 * contracts.
 */
export async function startLocalChain(options: LocalChainOptions = {}): Promise<LocalChain> {
  const network = options.network ?? 'localhost'
  const { chainId: ownChainId, gasModel } = networkByName(network)
  const chainId = options.chainId ?? ownChainId
  const { node, port, exited } = await startNode(
    {
      port: options.port ?? 0,
      chainId,
      isOpStack: gasModel === 'op-stack',
      privateKeys: Array.from({ length: fundedAccounts }, (_, index) => devPrivateKey(index)),
      baseFeePerGas: String(options.baseFeePerGas ?? 1_000_000n),
    },
    options.logFile,
  )
  const close = () => stopNode(node)
  const url = `http://127.0.0.1:${port}`
  try {
    const prepared = await prepareChain({
      transport: http(url, { timeout: localTimeoutMs }),
      network,
      bare: options.bare,
      withContracts: options.withContracts,
    })
    if (!options.bare) {
      const { blockTimeMs = 1000, atOnce } = options
      await prepared.setMining(blockTimeMs, atOnce === undefined ? {} : { atOnce })
    }
    return {
      ...prepared,
      url,
      port,
      chainId,
      network,
      pid: node.pid ?? 0,
      exited,
      close,
      [Symbol.asyncDispose]: close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

async function startNode(
  options: NodeOptions,
  logFile: string | undefined,
): Promise<{ node: ChildProcess; port: number; exited: Promise<string> }> {
  findOptionalPackage('@nomicfoundation/edr')
  const node = fork(join(import.meta.dirname, `node${extname(import.meta.filename)}`), {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    execArgv: [],
  })
  node.send(options)
  let stderr = ''
  node.stderr?.on('data', (chunk) => {
    stderr = (stderr + chunk).slice(-4000)
  })
  if (logFile !== undefined) node.stderr?.pipe(createWriteStream(logFile, { flags: 'a' }))
  const message = once(node, 'message').then(([answer]) => answer as { port?: number; error?: string })
  // `close` is emitted once all output of the node has been read.
  const exited = once(node, 'close').then(([code, signal]) => {
    const how = signal === null ? `exit code ${code}` : `signal ${signal}`
    return stderr.trim() === '' ? how : `${how}:\n${stderr.trimEnd()}`
  })
  const exit = exited.then((ending) => ({ port: undefined, error: ending }))
  const { port, error } = await Promise.race([message, exit])
  if (port === undefined) {
    await stopNode(node)
    const where = options.port === 0 ? '' : ` on port ${options.port}`
    throw new Error(`the local chain didn't start${where}: ${error || 'no output'}`)
  }
  return { node, port, exited }
}

async function stopNode(node: ChildProcess): Promise<void> {
  if (node.exitCode !== null || node.signalCode !== null) return
  const exit = once(node, 'exit')
  node.kill('SIGTERM')
  await exit
}
