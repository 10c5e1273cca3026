import { createPublicClient, http, type PublicClient } from 'viem'
import { afterAll, beforeAll } from 'vitest'
import { type Stack, type StackOptions, startStack } from '../../apps/devstack/stack/stack.ts'
import { createTestDatabase } from './database.ts'
import { until } from './until.ts'

export type TestStack = Stack & {
  /** Sends a GET request to the gateway. */
  get: (path: string) => Promise<{ status: number; body: Record<string, unknown> }>
  /** A client of the chain without a cache. */
  rpc: PublicClient
}

/** Empty blocks are rare, because every process needs time for each block. A transaction gets a block at once. */
const mining = { blockTimeMs: 1_000, atOnce: true }

/** Calls {@link startTestStack} for the tests of a file, and closes the stack after them. */
export function useTestStack(options?: StackOptions): TestStack {
  const stack = {} as TestStack
  beforeAll(async () => {
    // The indexer is a getter, because it may be replaced later.
    Object.defineProperties(stack, Object.getOwnPropertyDescriptors(await startTestStack(options)))
  })
  afterAll(() => stack.close?.())
  return stack
}

/** Starts the real stack, on a database of the run's Postgres and a new chain. */
export async function startTestStack({
  chain,
  otherChains = [],
  env,
  ...options
}: StackOptions = {}): Promise<TestStack> {
  const quick = { ...mining, baseFeePerGas: 50_000n }
  const stack = await startStack({
    databaseUrl: await createTestDatabase(),
    ...options,
    chain: { ...quick, ...chain },
    otherChains: otherChains.map((one) => ({ ...quick, ...one })),
    env: {
      ...env,
      // All buyers and providers of a test share one IP address, so limits per address would stop them.
      api: { RATE_LIMITS: 'off', ...env?.api },
      // A short lease soon releases what a killed keeper held.
      keeper: { KEEPER_POLL_MS: '100', KEEPER_LEASE_MS: '3000', ...env?.keeper },
    },
  })
  const rpc = createPublicClient({ transport: http(stack.chain.url), cacheTime: 0, pollingInterval: 50 })
  return Object.assign(stack, {
    rpc,
    get: async (path: string) => {
      const answer = await fetch(new URL(path, stack.api.url))
      return { status: answer.status, body: (await answer.json()) as Record<string, unknown> }
    },
  })
}

export type ChainSnapshot = { id: string; height: bigint }

/**
 * Polls until the condition holds, and mines a block each time the index has read the previous one, so that
 * finality needn't wait for the chain's clock.
 */
export async function mineUntil(
  { rpc, get, chain }: TestStack,
  what: string,
  holds: () => Promise<boolean>,
): Promise<void> {
  await until(what, async () => {
    if (await holds()) return true
    const { body } = await get(`/network/batches?limit=1&network=${chain.network}`)
    if (body.indexedBlock === Number(await rpc.getBlockNumber()))
      await rpc.request({ method: 'evm_mine' } as never)
    return false
  })
}

/**
 * Takes a snapshot for a reorg. From here on, blocks are mined only for transactions, because Ponder can't follow a reorg of more
 * than thirty blocks.
 */
export async function takeSnapshot({ rpc, chain }: TestStack): Promise<ChainSnapshot> {
  await chain.setMining(3_600_000, { atOnce: true })
  const height = await rpc.getBlockNumber()
  return { id: await rpc.request({ method: 'evm_snapshot' } as never), height }
}

/** Causes a reorg: replaces the blocks since the snapshot with empty blocks, and adds one more empty block. */
export async function dropBlocksSince({ rpc, chain }: TestStack, { id, height }: ChainSnapshot) {
  await chain.setMining(3_600_000)
  const head = await rpc.getBlockNumber()
  await rpc.request({ method: 'evm_revert', params: [id] } as never)
  for (let block = height; block <= head; block++) await rpc.request({ method: 'evm_mine' } as never)
  await chain.setMining(mining.blockTimeMs, mining)
}
