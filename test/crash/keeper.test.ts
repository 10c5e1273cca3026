import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createTestClient, http } from 'viem'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type CheckpointName, checkpoints, type KeeperSettings } from '#keeper/loops/context'
import {
  type KeeperStack,
  platformWallet,
  type QueuedPayment,
  sendDirectly,
  startKeeperStack,
  until,
  walletAccount,
  walletKey,
} from '../support/keeperStack.ts'
import type { CrashingKeeperOptions } from './crashingKeeper.ts'

let stack: KeeperStack
const children = new Set<ChildProcess>()
beforeAll(async () => {
  stack = await startKeeperStack({ leaseMs: 1_000, rebroadcastAfterMs: 300, replaceAfterMs: 1_000 })
})
afterEach(async () => {
  for (const child of children) await kill(child)
})
afterAll(() => stack?.close())

function startChild(crashAt: CheckpointName | null): ChildProcess {
  const { databaseUrl, deploymentsFile, chain } = stack
  const options: CrashingKeeperOptions = {
    databaseUrl,
    deploymentsFile,
    rpcUrl: chain.url,
    privateKey: walletKey(0),
    settings: JSON.stringify(stack.settings satisfies KeeperSettings, (_key, value: unknown) =>
      typeof value === 'bigint' ? `${value}n` : value,
    ),
    crashAt,
  }
  const child = fork(join(import.meta.dirname, 'crashingKeeper.ts'), [JSON.stringify(options)], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: [],
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  return child
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill('SIGKILL')
  await gone
}

async function queueDue(): Promise<QueuedPayment[]> {
  const buyers = await stack.buyers(3, 100_000n)
  return Promise.all(
    buyers.map((buyer) =>
      stack.queue({ buyer, price: 50_000n, acceptedAt: new Date(Date.now() - 3_600_000) }),
    ),
  )
}

function testClient() {
  return createTestClient({ mode: 'hardhat', transport: http(stack.chain.url) })
}

// Where each needs the chain to do something special before the keeper gets there.
const needsJam: CheckpointName[] = [
  'before-replacement-write-ahead',
  'after-replacement-write-ahead',
  'after-replacement-broadcast',
]
const needsDepth: CheckpointName[] = ['before-close', 'after-close']
const needsStranger: CheckpointName[] = ['before-conclusion', 'after-conclusion']
// The last two belong to a keeper that hands its batches over: facilitator.test.ts.
const own = checkpoints.filter((name) => !name.endsWith('handover'))

describe('a keeper that dies', () => {
  test.each(own)('behavior: at %s: what it left is what the next one starts from', async (crashAt) => {
    const chain = testClient()
    if (needsDepth.includes(crashAt)) await closeEarlierBatches()
    const platformBefore = await stack.balanceOf(platformWallet)
    const nonceBefore = await stack.served.client.getTransactionCount({ address: walletAccount(0).address })
    const payments = await queueDue()
    const jams = needsJam.includes(crashAt) || needsStranger.includes(crashAt)
    if (jams) await chain.setAutomine(false)

    const dying = startChild(crashAt)
    const died = once(dying, 'exit')
    if (needsStranger.includes(crashAt)) {
      // A stranger gets ahead of the batch with one half: that payment is concluded by itself.
      await until('the batch is out', async () => (await sentBatches()) > 0)
      const [first] = payments
      if (first) await sendDirectly(stack, first.provider)
      await chain.setAutomine(true)
      await chain.mine({ blocks: 1 })
    }
    if (needsDepth.includes(crashAt)) {
      await until('they are settled', () => stack.isSettled(payments))
      await mineDeep()
    }
    expect((await died)[1]).toBe('SIGKILL')
    if (jams) {
      await chain.setAutomine(true)
      await chain.mine({ blocks: 1 })
    }

    startChild(null)
    await until('all are settled', () => stack.isSettled(payments))
    await until('nothing is in flight', async () => (await openTransactions()) === 0)
    expect((await stack.balanceOf(platformWallet)) - platformBefore).toBe(3n * 2_500n)
    for (const { provider } of payments) {
      expect(await stack.balanceOf(provider.from)).toBe(50_000n)
    }
    // Every transaction of the wallet that was mined had been stored first.
    const nonceAfter = await stack.served.client.getTransactionCount({ address: walletAccount(0).address })
    const [row] = await stack.database<[{ count: number }]>`
      select count(*)::int as count from transaction where mined_block is not null and nonce >= ${nonceBefore}`
    expect(row.count).toBe(nonceAfter - nonceBefore)
    const attempts = await stack.database<{ attempts: number }[]>`
      select distinct attempts from payment where id in ${stack.database(payments.map((one) => one.paymentId))}`
    expect(attempts).toEqual([{ attempts: 0 }])
  })
})

/** One by one: blocks mined in bulk have no parent hash. */
async function mineDeep(): Promise<void> {
  for (let i = 0; i < 31; i++) await testClient().mine({ blocks: 1 })
}

/** Else the checkpoint would be met at the batches of the tests before. */
async function closeEarlierBatches(): Promise<void> {
  const keeper = startChild(null)
  await mineDeep()
  await until('the earlier batches are closed', async () => {
    return (await stack.database`select 1 from batch where state <> 'closed'`).length === 0
  })
  await kill(keeper)
}

async function openTransactions(): Promise<number> {
  const [row] = await stack.database<[{ count: number }]>`
    select count(*)::int as count from batch where state in ('claimed', 'broadcast', 'displaced')`
  return row.count
}

async function sentBatches(): Promise<number> {
  const [row] = await stack.database<[{ count: number }]>`
    select count(*)::int as count from transaction t join batch b on b.id = t.batch_id
    where b.state = 'broadcast' and t.broadcast_at is not null`
  return row.count
}
