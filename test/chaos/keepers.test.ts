import { setTimeout as wait } from 'node:timers/promises'
import fc from 'fast-check'
import { type Address, createTestClient, http, publicActions } from 'viem'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { startChaosRpc } from '../support/chaosRpc.ts'
import { isSettledOnChain } from '../support/keeperScenes.ts'
import {
  type KeeperStack,
  type QueuedPayment,
  startKeeperStack,
  walletAccount,
  walletKey,
} from '../support/keeperStack.ts'
import {
  describeState,
  findBlamed,
  findBreaches,
  findMisplaced,
  findUnknownTransactions,
  watchBroadcasts,
} from '../support/ledger.ts'
import { type RunningCommand, runCommand } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { sendDirectly } from '../support/usdc.ts'
import { replayable, seeds } from './seeds.ts'

// Runs real keeper processes, each behind an RPC that misbehaves according to a seed. Two of them belong to one operator and share a wallet.
// The third belongs to another operator, with another database and wallet but the same payments. A stranger sends single authorizations of the
// payments directly, keepers are killed, and a reorg drops what was mined.

type Operator = {
  stack: KeeperStack
  wallet: number
  broadcasts: ReturnType<typeof watchBroadcasts>
}

let operators: [Operator, Operator]
beforeAll(async () => {
  const first = await startKeeperStack({}, { own: true })
  const second = await startKeeperStack({}, { chain: first.chain })
  operators = [
    { stack: first, wallet: 0, broadcasts: watchBroadcasts(first.database) },
    { stack: second, wallet: 1, broadcasts: watchBroadcasts(second.database) },
  ]
})
const running: { stop: () => Promise<void> }[] = []
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.stop()))
})
afterAll(async () => {
  const [first, second] = operators ?? []
  await second?.stack.close()
  await first?.stack.close()
})

/** Starts a keeper process with a separate RPC, which can be killed and restarted. */
async function startKeeper({ stack, wallet, broadcasts }: Operator) {
  const rpc = await startChaosRpc({
    target: stack.chain.url,
    delayMs: 300,
    onRawTransaction: broadcasts.onRawTransaction,
  })
  const environment = {
    ...stack.env,
    RPC_URL_LOCALHOST: rpc.url,
    KEEPER_PRIVATE_KEYS: walletKey(wallet),
    KEEPER_PORT: '0',
    KEEPER_POLL_MS: '100',
    KEEPER_LEASE_MS: '1500',
    REPLACE_AFTER_MS: '1500',
    PRIORITY_FEE_WEI: '0',
    TRIGGER_MIN_AGE_SECONDS: '0',
    LOG_LEVEL: 'warn',
  }
  let process_: RunningCommand = start()
  function start(): RunningCommand {
    return runCommand([process.execPath, 'keeper/main.ts'], environment)
  }
  const keeper = {
    rpc,
    output: () => process_.output(),
    /** Kills and restarts the process. */
    async kill() {
      process_.child.kill('SIGKILL')
      await process_.exited
      process_ = start()
    },
    /** Restarts a process that has ended, as a supervisor does. */
    reviveIfEnded() {
      if (process_.child.exitCode !== null || process_.child.signalCode !== null) process_ = start()
    },
    async stop() {
      process_.child.kill('SIGKILL')
      await process_.exited
      await rpc.close()
    },
  }
  running.push(keeper)
  return keeper
}
type KeeperProcess = Awaited<ReturnType<typeof startKeeper>>

const paymentsARun = 8
const happening = fc.oneof(
  fc.record({
    kind: fc.constant('stranger'),
    payment: fc.nat({ max: paymentsARun - 1 }),
    half: fc.constantFrom('provider', 'fee'),
  }),
  fc.record({ kind: fc.constant('kill'), keeper: fc.nat({ max: 2 }) }),
  fc.record({ kind: fc.constant('jam') }),
  fc.record({ kind: fc.constant('unjam') }),
  fc.record({ kind: fc.constant('queue') }),
)
const plan = fc.record({
  faultSeed: fc.nat({ max: 1_000_000 }),
  /** Share of the RPC calls that are disturbed. */
  rate: fc.constantFrom(0.1, 0.2, 0.3),
  prices: fc.array(fc.constantFrom(5_000n, 50_000n, 999_999n, 1_500_000n), {
    minLength: paymentsARun,
    maxLength: paymentsARun,
  }),
  happenings: fc.array(fc.record({ after: fc.constantFrom(0, 100, 300, 600), what: happening }), {
    minLength: 6,
    maxLength: 10,
  }),
  reorg: fc.boolean(),
})
type Plan = typeof plan extends fc.Arbitrary<infer One> ? One : never

test.each(seeds([1, 2]))(
  'behavior: settles everything once for two operators despite RPC faults, kills, strangers and a reorg, seed %i',
  (seed) => {
    const [drawn] = fc.sample(plan, { seed, numRuns: 1 })
    if (!drawn) throw new Error('no plan')
    return replayable(seed, 'keepers', () => play(drawn))
  },
)

async function play({ faultSeed, rate, prices, happenings, reorg }: Plan): Promise<void> {
  const [first, second] = operators
  const { chain: node, served } = first.stack
  const chain = createTestClient({ mode: 'hardhat', transport: http(node.url) }).extend(publicActions)
  const buyers = await first.stack.buyers(paymentsARun, 2_000_000n)
  const startBlock = (await chain.getBlockNumber({ cacheTime: 0 })) + 1n
  const snapshot = await chain.snapshot()
  const payments: QueuedPayment[] = []
  const copies: QueuedPayment[] = []

  const queue = async () => {
    const [buyer, price] = [buyers[payments.length], prices[payments.length]]
    if (!buyer || price === undefined) return
    const options = { buyer, price, acceptedAt: new Date(Date.now() - 3_700_000) }
    const payment = await first.stack.queue(options)
    payments.push(payment)
    copies.push(await second.stack.queue({ ...options, copyOf: payment }))
  }
  const resume = async () => {
    await chain.setAutomine(true)
    await chain.mine({ blocks: 1 })
  }
  const keepers = await Promise.all([startKeeper(first), startKeeper(first), startKeeper(second)])
  for (let i = 0; i < paymentsARun / 2; i++) await queue()
  for (const [index, { rpc }] of keepers.entries()) rpc.random({ seed: faultSeed + index, rate })

  const happen = async (what: Plan['happenings'][number]['what']): Promise<unknown> => {
    switch (what.kind) {
      case 'stranger': {
        const target = payments[what.payment]
        return target && sendDirectly(first.stack, target[what.half]).catch(() => {})
      }
      case 'kill':
        return keepers[what.keeper]?.kill()
      case 'jam':
        return chain.setAutomine(false)
      case 'unjam':
        return resume()
      default:
        return queue()
    }
  }
  try {
    await until('something is sent', () => {
      revive(keepers)
      return keepers.some(({ rpc }) => rpc.rawTransactions().length > 0)
    })
    for (const { after, what } of happenings) {
      await wait(after)
      await happen(what)
    }
    while (payments.length < paymentsARun) await queue()
    await resume()
    if (reorg) {
      await until('a batch is mined', async () => (await minedBatches()) > 0)
      const head = await chain.getBlockNumber({ cacheTime: 0 })
      await chain.revert({ id: snapshot })
      await chain.setAutomine(true)
      for (let block = startBlock; block <= head + 3n; block++) await chain.mine({ blocks: 1 })
    }

    for (const { rpc } of keepers) rpc.heal()
    const isOver = async () => {
      revive(keepers)
      return (
        (await isSettledOnChain(first.stack, payments)) &&
        (await isSettledOnChain(second.stack, copies)) &&
        (await openBatches()) === 0
      )
    }
    await until('both operators record everything as settled', isOver).catch(async (error) => {
      for (const { stack, wallet } of operators) {
        console.error(await describeState(stack, [walletAccount(wallet).address]))
      }
      for (const { output } of keepers) console.error(output().split('\n').slice(-20).join('\n'))
      throw error
    })
    expect(await findMisplaced(first.stack, payments, startBlock)).toEqual([])
    for (const { stack, wallet, broadcasts } of operators) {
      const { database } = stack
      expect(broadcasts.unstored).toEqual([])
      expect(await findBreaches(database)).toEqual([])
      const wallets: Address[] = [walletAccount(wallet).address]
      expect(await findUnknownTransactions({ database, client: served.client }, wallets, startBlock)).toEqual(
        [],
      )
      // No payment may be blamed for what others or the RPC did.
      expect(await findBlamed(database)).toEqual([])
    }
  } finally {
    await chain.setAutomine(true)
  }
}

function revive(keepers: KeeperProcess[]): void {
  for (const keeper of keepers) keeper.reviveIfEnded()
}

async function minedBatches(): Promise<number> {
  return countBatches(['mined'])
}

async function openBatches(): Promise<number> {
  return countBatches(['claimed', 'broadcast', 'reorged'])
}

async function countBatches(states: string[]): Promise<number> {
  const counts = await Promise.all(
    operators.map(async ({ stack }) => {
      const [row] = await stack.database<[{ count: number }]>`
        select count(*)::int as count from batch where state = any(${states})`
      return row.count
    }),
  )
  return counts.reduce((sum, count) => sum + count, 0)
}
