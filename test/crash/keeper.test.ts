import { type CheckpointName, checkpoints } from '@tollkeeper/keeper/settings/checkpoints'
import { closeBatch, readMinedBatches } from '@tollkeeper/ledger/batches/batches'
import { endSettled } from '@tollkeeper/ledger/results/finalizations'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type ChaosRpc, startChaosRpc } from '../support/chaosRpc.ts'
import { attemptsOf, mine as mineBlocks, testClient } from '../support/keeperScenes.ts'
import {
  authorizationsOf,
  platformWallet,
  type QueuedPayment,
  type SplitPayment,
  useKeeperStack,
  walletAccount,
} from '../support/keeperStack.ts'
import { findBreaches, findMisplaced, findUnknownTransactions, watchBroadcasts } from '../support/ledger.ts'
import { type ClosedPayment, closeTab, movedOf, settleStates } from '../support/tabs.ts'
import { until } from '../support/until.ts'
import { randomHex, sendDirectly } from '../support/usdc.ts'
import { ofSubmissions, ofTabs, ofX402, stretch } from './checkpoints.ts'
import { killAll, type Mortal, startKeeper as startMortal } from './mortalKeeper.ts'

/**
 * Number of runs for each checkpoint in `npm run test:crash`. If it is 0, one keeper after another dies, each at the
 * next checkpoint.
 */
const runs = Number(process.env.CRASH_RUNS ?? 0)

const stack = useKeeperStack({ leaseMs: 3_600_000, rebroadcastAfterMs: 300, replaceAfterMs: 1_000 })
let rpc: ChaosRpc
let broadcasts: ReturnType<typeof watchBroadcasts>
beforeAll(async () => {
  broadcasts = watchBroadcasts(stack.database)
  rpc = await startChaosRpc({
    target: stack.chain.url,
    onRawTransaction: broadcasts.onRawTransaction,
  })
})
afterEach(killAll)
afterAll(async () => {
  await rpc?.close()
})

/**
 * Checkpoints at which a separate keeper process is killed by SIGKILL. At all other checkpoints, the keeper runs in the test's process, and is cut
 * off from its database and node instead. With `npm run test:crash`, a process is killed at every checkpoint.
 */
const bySignal = new Set<CheckpointName | null>(['after-claim', 'after-write-ahead', 'after-broadcast'])

/** Ends the previous keeper's lease, which wouldn't expire in time, and starts a keeper. */
async function startKeeper(crashAt: CheckpointName | null): Promise<Mortal> {
  await stack.database`update wallet_lease set expires_at = clock_timestamp()`
  const how = runs > 0 || bySignal.has(crashAt) ? 'signal' : 'cut'
  return startMortal(stack, crashAt, { how, rpcUrl: rpc.url })
}

const chain = () => testClient(stack)

const mine = (blocks: number) => mineBlocks(stack, blocks)

async function resumeMining(): Promise<void> {
  await chain().setAutomine(true)
  await mine(1)
}

type Payment = QueuedPayment | SplitPayment | ClosedPayment

/** A section of the settlement path, and what must happen on chain so that a keeper reaches the section's checkpoints. */
type Scene = {
  name: string
  /** The checkpoints of this section, in the order of the path. */
  checkpoints: CheckpointName[]
  /**
   * The kind of payment that is claimed first, so that keepers die while they settle its batch. `pairs`: payments with two signatures. `singles`:
   * payments with one signature. `tabs`: tabs, and no other payments are queued. `large`: high-value payments, each with a separate transaction, so
   * that several are in flight.
   */
  first: 'pairs' | 'singles' | 'tabs' | 'large'
  /** Runs before the first keeper starts. */
  prepare?: (payments: Payment[]) => Promise<unknown>
  /** Runs while the first keeper runs. */
  provoke?: (payments: Payment[]) => Promise<unknown>
  /** Runs before the last keeper starts. */
  tidy?: () => Promise<unknown>
}

async function sendAllDirectly(payments: Payment[]): Promise<void> {
  for (const one of payments) {
    if ('state' in one) await settleStates(stack, [one.state])
    else for (const half of authorizationsOf(one)) await sendDirectly(stack, half)
  }
}

/** Lets a keeper broadcast the first transaction and die. */
async function leaveOneOut(): Promise<void> {
  await chain().setAutomine(false)
  await (await startKeeper('after-broadcast-recorded')).died
  expect(await sentBatches()).toBe(1)
}

let beforeBatch: `0x${string}`

/** Lets the batch be mined and indexed, and then drops its block in a reorg. */
const dropsItsBatch: Pick<Scene, 'prepare' | 'provoke'> = {
  prepare: async () => {
    beforeBatch = await chain().snapshot()
  },
  provoke: async (payments) => {
    await until('the batch is mined', async () => (await countBatches('mined')) > 0)
    await until('they are settled', () => stack.isSettled(payments))
    await chain().revert({ id: beforeBatch })
    await chain().setAutomine(true)
    await mine(4)
  },
}

const scenes: Scene[] = [
  {
    name: 'claims, signs, sends and replaces',
    first: 'singles',
    checkpoints: stretch('before-claim', 'after-replacement-broadcast'),
    // Stops mining. Otherwise every transaction would be mined at once, and no keeper would have to raise its fee.
    prepare: () => chain().setAutomine(false),
    tidy: resumeMining,
  },
  {
    name: 'claims, signs, sends and replaces a batch of tabs',
    first: 'tabs',
    checkpoints: stretch('before-claim', 'after-replacement-broadcast'),
    prepare: () => chain().setAutomine(false),
    tidy: resumeMining,
  },
  {
    name: 'claims, signs and sends a second batch while the first is in flight, and replaces the first',
    first: 'large',
    checkpoints: stretch('before-claim', 'after-replacement-broadcast'),
    prepare: leaveOneOut,
    tidy: resumeMining,
  },
  {
    name: 'finds several batches mined in one block',
    first: 'large',
    checkpoints: [
      ...stretch('before-mined-recorded', 'after-mined-recorded'),
      ...stretch('before-finalization', 'after-finalization'),
    ],
    prepare: () => chain().setAutomine(false),
    provoke: async () => {
      await until('all batches are broadcast', async () => (await sentBatches()) === 3)
      await resumeMining()
    },
  },
  {
    name: 'sees a reorg drop several batches',
    first: 'large',
    checkpoints: stretch('before-reorg-recorded', 'after-reorg-recorded'),
    ...dropsItsBatch,
  },
  {
    name: 'finds its batch of tabs mined, with one tab settled by a stranger',
    first: 'tabs',
    checkpoints: [
      ...stretch('before-mined-recorded', 'after-mined-recorded'),
      ...stretch('before-finalization', 'after-finalization'),
    ],
    prepare: () => chain().setAutomine(false),
    provoke: async (payments) => {
      await until('the batch is broadcast', async () => (await sentBatches()) > 0)
      const last = payments.findLast((one) => 'state' in one)
      if (last) await settleStates(stack, [last.state])
      await resumeMining()
    },
  },
  {
    name: 'sees a reorg drop its batch of tabs',
    first: 'tabs',
    checkpoints: stretch('before-reorg-recorded', 'after-reorg-recorded'),
    ...dropsItsBatch,
  },
  {
    name: 'finds its batch mined, with one authorization settled by a stranger',
    first: 'pairs',
    checkpoints: [
      ...stretch('before-mined-recorded', 'after-mined-recorded'),
      ...stretch('before-finalization', 'after-finalization'),
    ],
    prepare: () => chain().setAutomine(false),
    provoke: async (payments) => {
      await until('the batch is broadcast', async () => (await sentBatches()) > 0)
      // Choose the last payment of the batch. The contract doesn't check whether nonces are used until a call has failed, so it tries all earlier
      // payments without that check.
      const last = payments.findLast((one) => 'fee' in one)
      if (last) await sendDirectly(stack, last.provider)
      await resumeMining()
    },
  },
  {
    name: 'finds payments that a stranger has settled',
    first: 'singles',
    checkpoints: [
      ...stretch('before-end', 'after-end'),
      ...stretch('before-evidence-recorded', 'after-evidence-recorded'),
    ],
    prepare: sendAllDirectly,
  },
  {
    name: 'gets its transaction rejected by every node for lack of gas money, although it read a sufficient balance',
    first: 'pairs',
    checkpoints: stretch('before-end', 'after-end'),
    prepare: async () => {
      const message = 'insufficient funds for gas * price + value'
      rpc.always('eth_sendRawTransaction', { error: { code: -32_000, message } })
    },
    tidy: async () => {
      rpc.heal()
      await stack.database`update wallet_lease set paused_until = null, paused_reason = null`
    },
  },
  {
    name: 'sees a reorg drop its batch',
    first: 'singles',
    checkpoints: stretch('before-reorg-recorded', 'after-reorg-recorded'),
    ...dropsItsBatch,
  },
  {
    name: 'sees a reorg drop blocks that were final',
    first: 'singles',
    checkpoints: stretch('before-finalizations-undone', 'after-finalizations-undone'),
    prepare: async () => {
      beforeBatch = await chain().snapshot()
    },
    provoke: async (payments) => {
      await until('the batch is mined', async () => (await countBatches('mined')) > 0)
      await until('they are settled', () => stack.isSettled(payments))
      await mine(2)
      const halves = (await Promise.all(payments.map(stack.halves))).flat()
      const hashes = halves.map(({ blockHash }) => blockHash ?? '')
      await until('the blocks are confirmed', async () => {
        const young = await stack.database`
          select from recorded_block where hash = any(${hashes}) and confirmed_at is null`
        return young.length === 0
      })
      // The real finality depth is thirty blocks, and Ponder wouldn't follow such a reorg. So mark the blocks as final
      // here.
      await closeEarlierBatches()
      await stack.database`update recorded_block set is_final = true where hash = any(${hashes})`
      await chain().revert({ id: beforeBatch })
      await chain().setAutomine(true)
      await mine(6)
    },
  },
  {
    name: 'finalizes what strangers have settled, once the settlement is final',
    first: 'singles',
    checkpoints: stretch('before-reconcile', 'after-reconcile'),
    prepare: sendAllDirectly,
    provoke: () => mine(35),
  },
  {
    name: 'closes a batch whose block is deep enough to be final',
    first: 'singles',
    checkpoints: stretch('before-end', 'after-end'),
    provoke: async (payments) => {
      await until('they are settled', () => stack.isSettled(payments))
      await mine(31)
    },
  },
]

test('args: every checkpoint of the keeper is covered here or in another test file', () => {
  const elsewhere = [...ofSubmissions, ...ofTabs, ...ofX402]
  const covered = new Set([...scenes.flatMap((scene) => scene.checkpoints), ...elsewhere])
  expect(checkpoints.filter((name) => !covered.has(name))).toEqual([])
})

describe.runIf(runs === 0).each(scenes)('a keeper that $name', (scene) => {
  test('behavior: settles everything once while each new keeper dies at the next checkpoint', () =>
    play(scene, scene.checkpoints))
})

describe.runIf(runs > 0).each(scenes)('a keeper that $name', (scene) => {
  describe.each(Array.from({ length: runs }, (_, run) => run + 1))('run %i', () => {
    test.each(scene.checkpoints)('behavior: settles everything once if a keeper dies at %s', (checkpoint) =>
      play(scene, [checkpoint]).catch((error: unknown) => {
        const again = `npm run test:crash -- keeper --runs 1 --at ${checkpoint}`
        throw new Error(`To repeat it: ${again}\n${error instanceof Error ? error.message : error}`, {
          cause: error,
        })
      }),
    )
  })
})

async function play({ first, prepare, provoke, tidy }: Scene, deaths: CheckpointName[]): Promise<void> {
  await closeEarlierBatches()
  const startBlock = (await stack.served.client.getBlockNumber({ cacheTime: 0 })) + 1n
  const platformBefore = await stack.balanceOf(platformWallet)
  const { pairs, large, singles, tabs, payments } = await queueDue(first)
  await prepare?.(payments)

  let provoked: Promise<unknown> | undefined
  for (const checkpoint of deaths) {
    const { died } = await startKeeper(checkpoint)
    provoked ??= provoke?.(payments)
    await Promise.all([died, provoked]).catch((error: unknown) => {
      throw new Error(`a keeper was expected to die at ${checkpoint}`, { cause: error })
    })
    expect(await findBreaches(stack.database)).toEqual([])
  }
  await tidy?.()

  await startKeeper(null)
  await until('all are settled', () => stack.isSettled(payments))
  // After a reorg, the index may still show the dropped blocks for a while.
  await until('the chain shows it as well', async () => {
    return (await findMisplaced(stack, payments, startBlock)).length === 0
  }).catch(() => {})
  await until('nothing is in flight', async () => {
    return (await countBatches('claimed', 'broadcast', 'reorged')) === 0
  })
  expect(await findBreaches(stack.database)).toEqual([])
  expect(broadcasts.unstored).toEqual([])
  expect(await findMisplaced(stack, payments, startBlock)).toEqual([])
  // The platform's fees from all payments except `singles`. Of each tab, the platform gets 5%, less the reward.
  const ofOthers =
    BigInt(pairs.length) * 2_500n + BigInt(large.length) * 350_000n + BigInt(tabs.length) * 22_500n
  await expectPaidOut(singles, (await stack.balanceOf(platformWallet)) - platformBefore - ofOthers)
  for (const tab of tabs) expect(await movedOf(stack, tab)).toEqual([null])
  for (const { provider } of [...pairs, ...large]) expect(await stack.balanceOf(provider.from)).toBe(50_000n)
  for (const { authorization } of singles) expect(await stack.balanceOf(authorization.from)).toBe(50_000n)
  for (const { buyer } of tabs) expect(await stack.balanceOf(buyer.address)).toBe(50_000n)
  const { database, served } = stack
  expect(
    await findUnknownTransactions(
      { database, client: served.client },
      [walletAccount(0).address],
      startBlock,
    ),
  ).toEqual([])
  // A keeper's death doesn't count as a failed attempt of a payment.
  expect(await attemptsOf(stack, payments)).toEqual([0])
}

/**
 * Queues due payments of three kinds: three with two signatures, three with one signature (enough for a sweep) and three tabs. Each kind gets a
 * separate batch. With `tabs`, queues only the tabs, because the other payments would be claimed before them. With `large`, queues only three
 * payments of 12 USDC.
 *
 * @returns `payments` in the order in which they will be claimed
 */
async function queueDue(first: Scene['first']) {
  const hourAgo = Date.now() - 3_700_000
  const due = (kind: Scene['first'], index: number) => ({
    acceptedAt: new Date(hourAgo + (kind === first ? 0 : 10_000) + index * 1_000),
  })
  const payee = randomHex(20)
  const others = first === 'tabs' || first === 'large' ? 0 : 3
  const ofLarge = await stack.buyers(first === 'large' ? 3 : 0, 12_050_000n)
  const [ofPairs, ofSingles] = [await stack.buyers(others, 100_000n), await stack.buyers(others, 550_000n)]
  const ofTabs = await stack.buyers(first === 'large' ? 0 : 3, 550_000n)
  const large = await Promise.all(
    ofLarge.map((buyer, index) => stack.queue({ buyer, price: 12_000_000n, ...due('large', index) })),
  )
  const pairs = await Promise.all(
    ofPairs.map((buyer, index) => stack.queue({ buyer, price: 50_000n, ...due('pairs', index) })),
  )
  const singles = await Promise.all(
    ofSingles.map((buyer, index) =>
      stack.queueSplit({ buyer, payee, price: 500_000n, ...due('singles', index) }),
    ),
  )
  const tabs = await Promise.all(
    ofTabs.map((buyer, index) =>
      closeTab(stack, { buyer, lines: [{ amount: 500_000n }], closedAt: due('tabs', index).acceptedAt }),
    ),
  )
  const payments: Payment[] =
    first === 'pairs' ? [...pairs, ...singles, ...tabs] : [...large, ...singles, ...pairs, ...tabs]
  return { pairs, large, singles, tabs, payments }
}

/**
 * If our batch settled the payments to a splitter, checks that the splitter was paid out. If a stranger settled them, checks that the
 * splitter still holds the full amount.
 */
async function expectPaidOut(singles: SplitPayment[], platformAmount: bigint): Promise<void> {
  const [one] = singles
  if (!one) return expect(platformAmount).toBe(0n)
  const isOurs = await isSettledByUs(singles)
  const [waiting, paid] = [await stack.balanceOf(one.splitter), await stack.balanceOf(one.terms.provider)]
  expect({ waiting, paid, platformAmount }).toEqual(
    isOurs
      ? { waiting: 0n, paid: 1_425_000n, platformAmount: 75_000n }
      : { waiting: 1_500_000n, paid: 0n, platformAmount: 0n },
  )
}

/** Returns whether one of our keepers signed the transaction that moved the payments' money. */
async function isSettledByUs(payments: Payment[]): Promise<boolean> {
  const hashes = (await Promise.all(payments.map(stack.halves))).flat().map(({ txHash }) => txHash ?? '')
  const ours = await stack.database`select from transaction where hash = any(${hashes})`
  return ours.length > 0
}

/**
 * Closes earlier batches, as a keeper does once they are final. Otherwise a keeper would reach a checkpoint with the
 * previous test's batches.
 */
async function closeEarlierBatches(): Promise<void> {
  const now = new Date()
  for (const { id } of await readMinedBatches(stack.database, stack.chain.chainId)) {
    await endSettled(stack.database, id, now)
    await closeBatch(stack.database, id, 'settled', now)
  }
}

async function countBatches(...states: string[]): Promise<number> {
  const [row] = await stack.database<[{ count: number }]>`
    select count(*)::int as count from batch where state = any(${states})`
  return row.count
}

async function sentBatches(): Promise<number> {
  const [row] = await stack.database<[{ count: number }]>`
    select count(*)::int as count from transaction t join batch b on b.id = t.batch_id
    where b.state = 'broadcast' and t.broadcast_at is not null`
  return row.count
}
