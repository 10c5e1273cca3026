import { createPublicClient, http, type PublicClient } from 'viem'
import { type Stack, type StackOptions, startStack } from '../../scripts/stack/stack.ts'
import { createTestDatabase } from './database.ts'

export type TestStack = Stack & {
  /** Asks the gateway. */
  get: (path: string) => Promise<{ status: number; body: Record<string, unknown> }>
  /** A client of the chain, which keeps nothing. */
  rpc: PublicClient
}

/** The real stack, on a database of the run's Postgres and a chain of its own that mines five blocks a second. */
export async function startTestStack({ chain, env, ...options }: StackOptions = {}): Promise<TestStack> {
  const stack = await startStack({
    databaseUrl: await createTestDatabase(),
    ...options,
    chain: { blockTimeMs: 200, baseFeePerGas: 50_000n, ...chain },
    // All of a test's buyers and providers have one address.
    env: {
      ...env,
      api: { RATE_LIMITS: 'off', ...env?.api },
      keeper: { KEEPER_POLL_MS: '100', ...env?.keeper },
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
