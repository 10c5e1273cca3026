// Measures how fast a keeper settles, with Ponder, Postgres and a chain of two-second blocks on the same machine.

import { setTimeout as wait } from 'node:timers/promises'
import { finalityOf } from '@tollkeeper/chain/finality'
import type { Database } from '@tollkeeper/ledger/store/database'
import { migrateAt } from '@tollkeeper/ledger/store/migrate'
import { seedProvider } from '../test/support/seedPayments.ts'
import { until } from '../test/support/until.ts'
import { insertPayments } from './data/signPayments.ts'
import { findPostmaster, openBenchEnv, readPeakRssMb, readWal, watch } from './support/benchEnv.ts'
import { measureClaims } from './support/claims.ts'
import { cpuTime, cpuTimeOfTree } from './support/cpuTime.ts'
import { atLeast, atMost, type Goals } from './support/goals.ts'
import {
  inTurns,
  mapValues,
  mean,
  median,
  medianAndSpread,
  medianOf,
  mediansOf,
  percentile,
  round1,
  round2,
  type Say,
  shortCount,
} from './support/statistics.ts'

export const blockTimeMs = 2_000
const price = 50_000n
const highPrice = 12_000_000n

export type Bench = Awaited<ReturnType<typeof openSettling>>
type Keeper = Awaited<ReturnType<typeof startKeeper>>

/** `queue` is the number of payments that wait during the second measurement of claims. Storing a million takes very long. */
export const options = { payments: 2_000, buyers: 500, queue: 20_000, rounds: 2, probes: 15 }

export const figures = ({ queue }: Pick<typeof options, 'queue'>) => [
  'paymentsPerSecondPerWallet',
  'paymentsPerSecondTwoWallets',
  'paymentsPerBlockPerWallet',
  'paymentsPerBlockTwoWallets',
  'timesOneWallet',
  'cpuMsPerPayment.keeper',
  'cpuMsPerPayment.postgres',
  'cpuMsPerPayment.indexer',
  'cpuMsPerPayment.node',
  'ownCpuMsPerPayment',
  'ownCpuMsPerPaymentSpread',
  'blockMsOneWallet',
  'blockMsTwoWallets',
  'triggerToBroadcastMsP95',
  'minedToIndexedMsP95',
  'gasPerPayment',
  'walBytesPerAcceptance',
  'walBytesPerPayment',
  'peakRssMb',
  'claimMs10k',
  `claimMs${shortCount(queue)}`,
]

export const goals = (): Goals => ({
  ownCpuMsPerPayment: atMost(1.6),
  paymentsPerSecondPerWallet: atLeast(75),
  timesOneWallet: atLeast(1.95),
  triggerToBroadcastMsP95: atMost(300),
  minedToIndexedMsP95: atMost(300),
})

/** Starts everything except the keeper: Postgres, a chain with a block every two seconds, and Ponder. */
export async function openSettling(buyerCount: number) {
  await using opening = new AsyncDisposableStack()
  const benchEnv = opening.use(await openBenchEnv())
  const { chain } = benchEnv
  const databaseUrl = await benchEnv.postgres.createDatabase('settle')
  const database = benchEnv.open(databaseUrl)
  await migrateAt(databaseUrl)
  const indexer = await benchEnv.startIndexer(databaseUrl)
  const buyers = await benchEnv.fundBuyers(buyerCount)
  const provider = await seedProvider(database)
  await indexer.ready
  await chain.setMining(blockTimeMs)
  benchEnv.defer(() => chain.setMining(0))
  opening.move()
  const postmaster = await findPostmaster(database)
  return { ...benchEnv, database, databaseUrl, provider, buyers, indexerPid: indexer.pid, postmaster }
}

export async function run(
  { payments, buyers, queue, rounds, probes }: typeof options,
  say: Say,
): Promise<object> {
  await using bench = await openSettling(buyers)
  // 2,000 payments are only 11 transactions, so the wait for the first block is a considerable part of a run and lowers its rate.
  const runs = await inTurns(['one', 'two'], { counted: rounds, say }, (name) =>
    settleQueue(bench, payments, name === 'one' ? 1 : 2),
  )
  const all = [...runs.one, ...runs.two]
  const perBlock = (some: Run[]) => mean(some.flatMap(({ fullBlocks }) => fullBlocks))
  const [ofOne, ofTwo] = [perBlock(runs.one), perBlock(runs.two)]
  const latency = await measureLatency(bench, probes)
  say(`trigger to broadcast, ms: ${latency.map(Math.round).join(' ')}`)
  const cpuMsPerPayment = medianCpu(all)
  const indexed = all.flatMap(({ indexedMs }) => indexedMs)
  const ownCpu = all.map(({ cpuMsPerPayment: { keeper, postgres, indexer } }) => keeper + postgres + indexer)
  return {
    paymentsPerSecondPerWallet: round1(medianOf(runs.one, (run) => run.paymentsPerSecond)),
    paymentsPerSecondTwoWallets: round1(medianOf(runs.two, (run) => run.paymentsPerSecond)),
    paymentsPerBlockPerWallet: round1(ofOne),
    paymentsPerBlockTwoWallets: round1(ofTwo),
    timesOneWallet: round2(ofTwo / ofOne),
    cpuMsPerPayment,
    // The sum for keeper, Postgres and indexer. It excludes the node, which isn't part of a deployment.
    ...medianAndSpread('ownCpuMsPerPayment', ownCpu),
    // The node's actual block interval. It grows with the node's work and with the load of the machine.
    blockMsOneWallet: medianOf(runs.one, (run) => run.blockMs),
    blockMsTwoWallets: medianOf(runs.two, (run) => run.blockMs),
    triggerToBroadcastMsP95: Math.round(percentile(latency, 0.95)),
    minedToIndexedMsP95: percentile(indexed, 0.95),
    gasPerPayment: medianOf(runs.one, (run) => run.gasPerPayment),
    walBytesPerAcceptance: medianOf(all, (run) => run.walBytesAccepted),
    walBytesPerPayment: medianOf(all, (run) => run.walBytes),
    peakRssMb: Math.max(...all.map((run) => run.peakRssMb)),
    claimMs10k: await measureClaims(bench, 10_000, say),
    [`claimMs${shortCount(queue)}`]: await measureClaims(bench, queue, say),
  }
}

/** Queues payments that are due, starts a keeper, and waits until the last of them is indexed. */
export async function settleQueue(bench: Bench, payments: number, wallets: number) {
  const { database, served } = bench
  const acceptedAt = new Date(Date.now() - 3_600_000)
  await database`checkpoint`
  const walBefore = await readWal(database)
  const ids = await insertPayments(database, served, { ...bench, count: payments, price, acceptedAt })
  const walAccepted = await readWal(database)
  const seen = await watchBlocks(bench)
  const keeper = await startKeeper(bench, wallets)
  const cpuBefore = await readCpu(bench, keeper)
  try {
    await untilIndexed(database)
  } finally {
    await seen.stop()
  }
  const peakRssMb = await readPeakRssMb(keeper.pid())
  await closeBatches(bench)
  const cpuAfter = await readCpu(bench, keeper)
  const walAfter = await readWal(database)
  await keeper.service.stop()
  const [row] = await database<[{ firstClaim: Date; lastBlock: bigint; gas: bigint }]>`
    with own as (
      select distinct b.id, b.created_at, t.mined_block, t.hash
      from batch b
      join batch_item i on i.batch_id = b.id
      join transaction t on t.batch_id = b.id and t.mined_block is not null
      where i.payment_id in ${database(ids)}
    )
    select min(created_at) as "firstClaim", max(mined_block) as "lastBlock",
      (select sum(gas_used) from indexer.batch where tx_hash in (select hash from own)) as gas
    from own`
  const minedAt = seen.minedAt.get(row.lastBlock)
  // Count whole blocks: a wallet gets at most one transaction into a block, and the first claim happens at a random time between two blocks.
  const startedAt = Math.max(...seen.times().filter((at) => at <= row.firstClaim.getTime()))
  if (minedAt === undefined) throw new Error(`block ${row.lastBlock} was never seen being mined`)
  const blocks = seen.times().filter((at) => at >= startedAt && at <= minedAt)
  return {
    paymentsPerSecond: (payments * 1_000) / (minedAt - startedAt),
    blockMs: median(blocks.slice(1).map((at, i) => at - (blocks[i] as number))),
    gasPerPayment: Number(row.gas / BigInt(payments)),
    fullBlocks: await readFullBlocks(database, ids, wallets),
    // This is the CPU time from when the keeper is ready until its last batch is closed.
    cpuMsPerPayment: mapValues(cpuAfter, (us, name) => round2((us - cpuBefore[name]) / 1_000 / payments)),
    // These bytes are counted from a checkpoint, and include everything that the indexer writes.
    walBytesAccepted: Math.round((walAccepted - walBefore) / payments),
    walBytes: Math.round((walAfter - walBefore) / payments),
    indexedMs: seen.indexedMs(),
    peakRssMb,
  }
}

type Run = Awaited<ReturnType<typeof settleQueue>>

/** Measures the time from the commit of a payment of high value to its broadcast, with an otherwise idle wallet. */
async function measureLatency(bench: Bench, probes: number): Promise<number[]> {
  const { database, served, buyers } = bench
  const keeper = await startKeeper(bench, 1)
  const latencies: number[] = []
  try {
    for (let probe = 0; probe < probes; probe++) {
      const one = { count: 1, buyers: buyers.slice(probe), price: highPrice, acceptedAt: new Date() }
      const ids = await insertPayments(database, served, { ...bench, ...one })
      const committedAt = Date.now()
      await untilIndexed(database)
      const [row] = await database<[{ broadcastAt: Date }]>`
        select min(t.broadcast_at) as "broadcastAt" from transaction t
        where t.batch_id in (select batch_id from batch_item where payment_id in ${database(ids)})`
      latencies.push(row.broadcastAt.getTime() - committedAt)
      // Vary the pause, so that the payments don't always arrive at the same time relative to the keeper's polling.
      await wait(200 + ((probe * 97) % 250))
    }
  } finally {
    await keeper.service.stop()
  }
  return latencies
}

function untilIndexed(database: Database): Promise<void> {
  const areIndexed = async () => {
    const [row] = await database<[{ areIndexed: boolean }]>`
      select (select sum(payment_count) from indexer.batch) >= (select count(*) from payment) as "areIndexed"`
    return row.areIndexed
  }
  return until('the queue is settled', areIndexed, 300_000)
}

/**
 * Waits until a run's batches are final and closed, so that the next run doesn't process them as well. The keeper may still regard a batch as
 * broadcast when the indexer already has its payments.
 */
async function closeBatches({ chain, database, served }: Bench): Promise<void> {
  await chain.setMining(0)
  for (let block = 0n; block < finalityOf(served.network.chainId) + 2n; block++) {
    await served.client.request({ method: 'evm_mine' } as never)
  }
  const areClosed = async () =>
    (await database`select from batch where state <> 'closed' limit 1`).length === 0
  await until('the batches are closed', areClosed, 60_000)
  await chain.setMining(blockTimeMs)
}

/** Records when each block is first seen on the chain, and when its batches are first seen in Postgres. */
async function watchBlocks({ database, served }: Bench) {
  const minedAt = new Map<bigint, number>()
  const indexedAt = new Map<bigint, number>()
  let lastMined = await served.client.getBlockNumber({ cacheTime: 0 })
  let lastIndexed = 0n
  const chain = watch(async () => {
    const block = await served.client.getBlockNumber({ cacheTime: 0 })
    while (lastMined < block) minedAt.set(++lastMined, Date.now())
  })
  const index = watch(async () => {
    const rows = await database<{ block: bigint }[]>`
      select distinct block_number as block from indexer.batch where block_number > ${lastIndexed} order by 1`
    for (const { block } of rows) indexedAt.set(block, Date.now())
    lastIndexed = rows.at(-1)?.block ?? lastIndexed
  })
  await until('a block is mined', () => minedAt.size > 0)
  return {
    minedAt,
    times: () => [...minedAt.values()],
    /** Returns the times from when a block is mined until its batches are seen. */
    indexedMs: () =>
      [...indexedAt].flatMap(([number, seenAt]) => {
        const mined = minedAt.get(number)
        return mined === undefined ? [] : seenAt - mined
      }),
    stop: () => Promise.all([chain.stop(), index.stop()]),
  }
}

/** Returns the CPU time used so far, in µs. The time of Postgres excludes this benchmark's own queries. */
async function readCpu({ chain, database, indexerPid, postmaster }: Bench, keeper: Keeper) {
  const watching = await database<{ pid: number }[]>`
    select pid from pg_stat_activity where application_name = 'bench'`
  let forUs = 0
  for (const { pid } of watching) forUs += await cpuTime(pid)
  return {
    keeper: await keeper.cpu(),
    postgres: (await cpuTimeOfTree(postmaster)) - forUs,
    indexer: await cpuTime(indexerPid),
    node: await cpuTime(chain.pid),
  }
}

export const medianCpu = (runs: readonly Run[]) =>
  mapValues(mediansOf(runs.map(({ cpuMsPerPayment }) => cpuMsPerPayment)), round2)

/** Returns the number of payments in each block, including empty blocks, while each wallet had a full batch to send. */
async function readFullBlocks(database: Database, ids: string[], wallets: number): Promise<number[]> {
  const batches = await database<{ block: number; payments: number }[]>`
    select t.mined_block::int as block, count(*)::int as payments
    from batch_item i join transaction t on t.batch_id = i.batch_id and t.mined_block is not null
    where i.payment_id in ${database(ids)} group by i.batch_id, t.mined_block order by 1`
  const largest = Math.max(...batches.map(({ payments }) => payments))
  const first = batches[0]?.block ?? 0
  const byBlock: number[] = []
  for (const { block, payments } of batches) byBlock[block - first] = (byBlock[block - first] ?? 0) + payments
  let left = ids.length
  return Array.from(byBlock, (payments = 0) => payments).filter((payments) => {
    const isFull = left >= wallets * largest
    left -= payments
    return isFull
  })
}

function startKeeper(bench: Bench, wallets: number) {
  const settings = { KEEPER_LEASE_MS: '3000', TRIGGER_MIN_AGE_SECONDS: '0', PRIORITY_FEE_WEI: '0' }
  return bench.startKeeper(bench.databaseUrl, wallets, settings)
}
