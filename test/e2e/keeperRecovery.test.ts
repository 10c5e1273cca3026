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
import { countFinal } from '../support/paymentPosition.ts'
import { type RunningCommand, runCommand } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { sendDirectly } from '../support/usdc.ts'

// A real Ponder that stops, returns at an earlier block, or has to be rebuilt.

// Each test starts, drops and rebuilds Ponder, which takes a minute, and longer on a shared machine.
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

/** Runs a command from docs/indexer.md. */
function runDocumented(...command: string[]): RunningCommand {
  return runCommand([process.execPath, ...command], stack.env)
}

async function isReady(keeper: Keeper): Promise<boolean> {
  return (await checksOf(keeper))['index localhost'] === true
}

/** Counts the actions that a keeper took for these payments: batches, failures and notifications. */
async function actionsOf(payments: QueuedPayment[]) {
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
  test('behavior: takes no action while the index is stopped, dropped and rebuilt, and then continues', async () => {
    const settled = await queueOneDue(stack)
    const keeper = stack.keeper()
    await whileRunning(keeper, async () => {
      await until('it is settled', () => stack.isSettled([settled]))
      await mine(stack, 2)
      await until('its provider was notified', async () => (await actionsOf([settled])).messages === 1)

      // A batch is in flight when the index stops.
      const buyers = await stack.buyers(1, 50_000n)
      await testClient(stack).setAutomine(false)
      const underWay = await queueFor(stack, buyers)
      await until('a batch was sent', async () => (await transactionsOf(stack, underWay)).length === 1)
      process.kill(indexer.pid, 'SIGKILL')
      await indexer.exited
      await testClient(stack).setAutomine(true)
      await mine(stack, 1)
      await until('it is known to be mined', async () => {
        return (await transactionsOf(stack, underWay)).every(({ mined }) => mined !== null)
      })

      // While the index is at most `maxIndexLagBlocks` behind, the keeper keeps settling, because it reads the chain before it signs and records its
      // own receipts. So mine one block more than that.
      await mine(stack, Number(stack.settings.maxIndexLagBlocks) + 1)
      await until('/readyz reports the index as stale', async () => !(await isReady(keeper)))

      // Two payments become due and one expires while the database can't show what is settled.
      const due = await queueDue(stack, 2)
      const [buyer] = await stack.buyers(1, 50_000n)
      const expiring = await stack.queue({ buyer, price: 50_000n, validFor: 2, acceptedAt: hourAgo() })
      const waiting = [...due, expiring]
      await until('it has expired on chain', async () => {
        await mine(stack, 1)
        return (await testClient(stack).getBlock()).timestamp > expiring.provider.validBefore
      })
      expect(await actionsOf(waiting)).toEqual(nothing)

      // Drop the index, as a deployment into a new schema would, and start it again.
      const rebuild = runDocumented('apps/cli/tollkeeper.js', 'indexer', '--rebuild')
      await until('the lock of the killed process is released, and the index is dropped', async () => {
        if ((await rebuild.exited) === 0) return true
        return (await runDocumented('indexer/rebuild.ts').exited) === 0
      })
      expect(await isReady(keeper)).toBe(false)
      expect(await actionsOf(waiting)).toEqual(nothing)
      const earlier = await actionsOf([settled])
      indexer = await startAgain()
      await indexer.ready
      await until('/readyz reports that it has caught up', () => isReady(keeper))

      await until('the payments in flight are settled', () => stack.isSettled(underWay))
      await until('the due payments are settled', () => stack.isSettled(due))
      await until(
        'the provider of the expired payment was notified',
        async () => (await actionsOf([expiring])).messages === 1,
      )
      expect(await transactionsOf(stack, [settled])).toHaveLength(1)
      expect(await transactionsOf(stack, underWay)).toHaveLength(1)
      expect(await actionsOf([settled])).toEqual(earlier)
      await expectUnharmed(stack, [settled, ...underWay, ...due])
    })
  })
})

describe('a reorg deeper than the finality of Ponder', () => {
  test('behavior: after the documented steps rebuild the index, settles dropped payments again, and no payment twice', async () => {
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
      // Ponder treats a block as final only when 60 blocks, twice its finality depth, are on top of it.
      await mine(stack, 65)
      await until('all are finalized, and their providers notified', async () => {
        const notifications = await stack.database`
          select from outbox
          where event = 'payment.settled' and payment_id in ${stack.database(all.map((one) => one.paymentId))}`
        return (await countFinal(stack.database, all)) === all.length && notifications.length === all.length
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

    // docs/indexer.md, "Operation".
    const rebuild = runDocumented('indexer/rebuild.ts', '--network', 'localhost')
    expect(await rebuild.exited, rebuild.output()).toBe(0)
    // A running keeper finds no index and waits.
    const earlier = await actionsOf(all)
    await whileRunning(stack.keeper(), async () => {
      indexer = await startAgain()
      await indexer.ready
      await until(
        'the dropped payments are reopened',
        async () => (await countFinal(stack.database, all)) === keptOnes.length,
      )
    })
    expect((await actionsOf(keptOnes)).batches).toBe(keptOnes.length)
    expect((await actionsOf(all)).messages).toBeGreaterThanOrEqual(earlier.messages)

    await whileRunning(stack.keeper(), async () => {
      await until('all are settled again or still', () => isSettledOnChain(stack, all))
      await mine(stack, 3)
      await until('providers were notified of the reorg', async () => {
        const notifications = await stack.database<{ event: string; count: number }[]>`
          select event, count(*)::int from outbox
          where payment_id in ${stack.database([...dropped, bySomebodyElse].map((one) => one.paymentId))}
          group by event order by event`
        return (
          JSON.stringify(notifications) ===
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
