import type { IndexerOptions } from '@tollkeeper/indexer/config'
import { type Indexer, startIndexer } from '@tollkeeper/indexer/launch'
import type { Keeper } from '@tollkeeper/keeper/keeper'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import {
  attemptsOf,
  checksOf,
  expectUnharmed,
  hourAgo,
  isSettledOnChain,
  mine,
  queueDue,
  queueFor,
  queueOneDue,
  settleAll,
  testClient,
  transactionsOf,
  untilIndexed,
  whileRunning,
} from '../support/keeperScenes.ts'
import { platformWallet, type QueuedPayment, useKeeperStack } from '../support/keeperStack.ts'
import { describeState, findBreaches, findMisplaced } from '../support/ledger.ts'
import { type RunningCommand, runCommand } from '../support/processes.ts'
import { countFinal } from '../support/standing.ts'
import { until } from '../support/until.ts'
import { sendDirectly } from '../support/usdc.ts'

// A real Ponder that goes away, comes back with less than it had, or has to be built anew.

// Ponder starts, is dropped and built anew in each: a minute, and longer where the machine is shared.
vi.setConfig({ testTimeout: 300_000 })

const stack = useKeeperStack({ replaceAfterMs: 600_000 }, { own: true })
let indexer: Indexer
beforeAll(async () => {
  indexer = stack.indexer
})
afterEach(() => testClient(stack).setAutomine(true))
afterAll(async () => {
  await indexer?.close()
})

function startAgain(): Promise<Indexer> {
  return startIndexer({
    databaseUrl: stack.databaseUrl,
    rpcUrls: { localhost: stack.chain.url },
    platformWallets: [platformWallet],
    deploymentsFile: stack.deploymentsFile,
  } satisfies IndexerOptions)
}

/** A command of docs/operations.md. */
function runDocumented(...command: string[]): RunningCommand {
  return runCommand([process.execPath, ...command], stack.env)
}

async function isReady(keeper: Keeper): Promise<boolean> {
  return (await checksOf(keeper))['index localhost'] === true
}

/** What a keeper does, and not only what it finds out. */
async function deedsOf(payments: QueuedPayment[]) {
  const ids = payments.map(({ paymentId }) => paymentId)
  const { database } = stack
  const [row] = await database<[Record<'batches' | 'failures' | 'messages', number>]>`
    select (select count(*)::int from batch_item where payment_id in ${database(ids)}) as batches,
      (select count(*)::int from settlement_failure where payment_id in ${database(ids)}) as failures,
      (select count(*)::int from outbox where payment_id in ${database(ids)}) as messages`
  return row
}
const nothing = { batches: 0, failures: 0, messages: 0 }

describe('an index that restarts', () => {
  test('behavior: stopped, dropped and building anew, it lags: nothing is sent, failed or notified; then all goes on', async () => {
    const settled = await queueOneDue(stack)
    const keeper = stack.keeper()
    await whileRunning(keeper, async () => {
      await until('it is settled', () => stack.isSettled([settled]))
      await mine(stack, 2)
      await until('its provider heard of it', async () => (await deedsOf([settled])).messages === 1)

      // In the middle of a batch: it is out when the index goes.
      const buyers = await stack.buyers(1, 50_000n)
      await testClient(stack).setAutomine(false)
      const underWay = await queueFor(stack, buyers)
      await until('a batch is out', async () => (await transactionsOf(stack, underWay)).length === 1)
      process.kill(indexer.pid, 'SIGKILL')
      await indexer.exited
      await testClient(stack).setAutomine(true)
      await mine(stack, 1)
      await until('it is known to be mined', async () => {
        return (await transactionsOf(stack, underWay)).every(({ mined }) => mined !== null)
      })

      // Up to there the keeper settles: it asks the chain itself before it signs, and its receipts are recorded.
      await mine(stack, Number(stack.settings.maxIndexLagBlocks) + 1)
      await until('/readyz says that the index is stale', async () => !(await isReady(keeper)))

      // What is due, and what runs out, while nobody can tell what is settled.
      const due = await queueDue(stack, 2)
      const [buyer] = await stack.buyers(1, 50_000n)
      const expiring = await stack.queue({ buyer, price: 50_000n, validFor: 2, acceptedAt: hourAgo() })
      const waiting = [...due, expiring]
      await until('it has run out on chain', async () => {
        await mine(stack, 1)
        return (await testClient(stack).getBlock()).timestamp > expiring.provider.validBefore
      })
      expect(await deedsOf(waiting)).toEqual(nothing)

      // Dropped, as by a deployment into a schema of its own, and started.
      const rebuild = runDocumented('apps/cli/tollkeeper.js', 'indexer', '--rebuild')
      await until('the lock of the killed one is over, and the index is dropped', async () => {
        if ((await rebuild.exited) === 0) return true
        return (await runDocumented('indexer/rebuild.ts').exited) === 0
      })
      expect(await isReady(keeper)).toBe(false)
      expect(await deedsOf(waiting)).toEqual(nothing)
      const told = await deedsOf([settled])
      indexer = await startAgain()
      await indexer.ready
      await until('/readyz says that it has caught up', () => isReady(keeper))

      await until('what was under way is settled', () => stack.isSettled(underWay))
      await until('what was due is settled', () => stack.isSettled(due))
      await until('what ran out is told of', async () => (await deedsOf([expiring])).messages === 1)
      expect(await transactionsOf(stack, [settled])).toHaveLength(1)
      expect(await transactionsOf(stack, underWay)).toHaveLength(1)
      expect(await deedsOf([settled])).toEqual(told)
      await expectUnharmed(stack, [settled, ...underWay, ...due])
    })
  })
})

describe('a reorg deeper than the finality of Ponder', () => {
  test('behavior: the documented steps rebuild the index; what was dropped is settled again, and nothing twice', async () => {
    const chain = testClient(stack)
    const keptOnes = await queueDue(stack, 2)
    await settleAll(stack, keptOnes)
    const dropped = await queueDue(stack, 2)
    const bySomebodyElse = await queueOneDue(stack)
    const all = [...keptOnes, ...dropped, bySomebodyElse]
    const platformBefore = await stack.balanceOf(platformWallet)
    const fork = await chain.getBlockNumber({ cacheTime: 0 })
    const snapshot = await chain.snapshot()

    await sendDirectly(stack, bySomebodyElse.provider)
    await sendDirectly(stack, bySomebodyElse.fee)
    const keeper = stack.keeper()
    await whileRunning(keeper, async () => {
      await until('all are settled', () => stack.isSettled(all))
      // Final for Ponder once there are twice thirty.
      await mine(stack, 65)
      await until('all are concluded, and told of', async () => {
        const told = await stack.database`
          select from outbox
          where event = 'payment.settled' and payment_id in ${stack.database(all.map((one) => one.paymentId))}`
        return (await countFinal(stack.database, all)) === all.length && told.length === all.length
      }).catch(async (error: unknown) => {
        throw new Error(await describeState(stack, []), { cause: error })
      })
    })
    const sentBefore = await transactionsOf(stack, dropped)
    const head = await chain.getBlockNumber({ cacheTime: 0 })
    await untilIndexed(stack)

    await chain.revert({ id: snapshot })
    await chain.setAutomine(true)
    await mine(stack, Number(head - fork) + 5)
    await indexer.exited

    // docs/operations.md, "A reorg deeper than the index can follow".
    const rebuild = runDocumented('indexer/rebuild.ts', '--network', 'localhost')
    expect(await rebuild.exited, rebuild.output()).toBe(0)
    // A keeper at work finds no index, and waits.
    const told = await deedsOf(all)
    await whileRunning(stack.keeper(), async () => {
      indexer = await startAgain()
      await indexer.ready
      await until(
        'what was dropped is taken back',
        async () => (await countFinal(stack.database, all)) === keptOnes.length,
      )
    })
    expect((await deedsOf(keptOnes)).batches).toBe(keptOnes.length)
    expect((await deedsOf(all)).messages).toBeGreaterThanOrEqual(told.messages)

    await whileRunning(stack.keeper(), async () => {
      await until('all are settled, again or still', () => isSettledOnChain(stack, all))
      await mine(stack, 3)
      await until('providers were told of the reorg', async () => {
        const told = await stack.database<{ event: string; count: number }[]>`
          select event, count(*)::int from outbox
          where payment_id in ${stack.database([...dropped, bySomebodyElse].map((one) => one.paymentId))}
          group by event order by event`
        return (
          JSON.stringify(told) ===
          JSON.stringify([
            { event: 'payment.reverted', count: 3 },
            { event: 'payment.settled', count: 6 },
          ])
        )
      })
    })
    expect(await transactionsOf(stack, keptOnes)).toHaveLength(1)
    expect((await transactionsOf(stack, dropped)).length).toBeGreaterThan(sentBefore.length)
    expect(await findMisplaced(stack, [...dropped, bySomebodyElse], fork + 1n)).toEqual([])
    expect((await stack.balanceOf(platformWallet)) - platformBefore).toBe(3n * 2_500n)
    expect(await attemptsOf(stack, all)).toEqual([0])
    expect(await findBreaches(stack.database)).toEqual([])
  })
})
