import { createPublicClient, http, type PublicClient } from 'viem'
import { afterAll, beforeAll } from 'vitest'
import { type Stack, type StackOptions, startStack } from '../../apps/devstack/stack/stack.ts'
import { createTestDatabase } from './database.ts'
import { until } from './until.ts'

export type TestStack = Stack & {
  /** Asks the gateway. */
  get: (path: string) => Promise<{ status: number; body: Record<string, unknown> }>
  /** A client of the chain, which keeps nothing. */
  rpc: PublicClient
}

/** Few blocks, which cost every process time; a transaction waits for none of them. */
const mining = { blockTimeMs: 1_000, atOnce: true }

/** {@link startTestStack} for the tests of a file, which it is closed after. */
export function useTestStack(options?: StackOptions): TestStack {
  const stack = {} as TestStack
  beforeAll(async () => {
    // Its indexer is a getter: it may be another one later.
    Object.defineProperties(stack, Object.getOwnPropertyDescriptors(await startTestStack(options)))
  })
  afterAll(() => stack.close?.())
  return stack
}

/** The real stack, on a database of the run's Postgres and a chain of its own. */
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
    // All of a test's buyers and providers have one address.
    env: {
      ...env,
      api: { RATE_LIMITS: 'off', ...env?.api },
      // What a killed keeper held is free soon.
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
 * Looks until it holds, and mines a block whenever the index has read the one before: what waits for the finality of the chain
 * needn't wait for its clock.
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

/** What to go back to. From here on blocks come for transactions alone: Ponder follows no reorg that is deeper than thirty. */
export async function takeSnapshot({ rpc, chain }: TestStack): Promise<ChainSnapshot> {
  await chain.setMining(3_600_000, { atOnce: true })
  const height = await rpc.getBlockNumber()
  return { id: await rpc.request({ method: 'evm_snapshot' } as never), height }
}

/** A reorg: empty blocks take the place of those since the snapshot, one more than they were. */
export async function dropBlocksSince({ rpc, chain }: TestStack, { id, height }: ChainSnapshot) {
  await chain.setMining(3_600_000)
  const head = await rpc.getBlockNumber()
  await rpc.request({ method: 'evm_revert', params: [id] } as never)
  for (let block = height; block <= head; block++) await rpc.request({ method: 'evm_mine' } as never)
  await chain.setMining(mining.blockTimeMs, mining)
}
