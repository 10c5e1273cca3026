/** Runs `npm run deploy`, on chains that simulate a network. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import { createPublicClient, http } from 'viem'
import { afterAll, beforeAll } from 'vitest'
import { devPrivateKey } from '../../apps/devstack/chain/accounts.ts'
import { type LocalChainOptions, startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'

const variable = (network: string) => `RPC_URL_${network.toUpperCase().replaceAll('-', '_')}`

/** Creates a directory for the deployments files of a test file, and removes it after the file's tests. */
export function useDeploy() {
  let directory: string
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'deploy-test-'))
  })
  afterAll(async () => {
    await rm(directory, { recursive: true })
  })

  async function deploy(args: string[], env: Record<string, string> = {}) {
    const deploying = spawn(
      process.execPath,
      [fileURLToPath(new URL('../../apps/devstack/deploy.ts', import.meta.url)), ...args],
      {
        env: {
          PATH: process.env.PATH ?? '',
          HOME: directory,
          NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
          ...env,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    )
    let [stdout, stderr] = ['', '']
    deploying.stdout.on('data', (chunk) => {
      stdout += chunk
    })
    deploying.stderr.on('data', (chunk) => {
      stderr += chunk
    })
    const [code] = await once(deploying, 'close')
    return { code, stdout, stderr }
  }

  /**
   * Starts a chain that simulates the network, without our contracts. Returns the arguments and variables that `deploy` needs for
   * it.
   */
  async function playNetwork(network: NetworkName, options: LocalChainOptions = {}) {
    const chain = await startLocalChain({ network, withContracts: false, blockTimeMs: 0, ...options })
    const file = join(directory, `${network}-${chain.port}.json`)
    const args = ['--network', network, '--deployments-file', file]
    const env = { [variable(network)]: chain.url, DEPLOYER_PRIVATE_KEY: devPrivateKey(1) }
    const client = createPublicClient({ transport: http(chain.url) })
    return { chain, file, args, env, client, [Symbol.asyncDispose]: chain.close }
  }

  return { deploy, playNetwork, pathOf: (file: string) => join(directory, file) }
}
