/** How fast a keeper settles, beside Ponder, Postgres and a chain with two-second blocks on the same machine. */
import { setTimeout as wait } from 'node:timers/promises'
import { finalityOf } from '#chain/finality'
import { type Database, openDatabase } from '#ledger/store/database'
import { migrate } from '#ledger/store/migrate'
import { createBuyers, insertPayments, insertProvider } from './data/signPayments.ts'
import { measureClaims } from './support/claims.ts'
import { cpuTime, cpuTimeOfTree } from './support/cpuTime.ts'
import { findPostmaster, openGround, payees, platform, readPeakRssMb } from './support/ground.ts'
import {
  inTurns,
  mapValues,
  median,
  medianOf,
  percentile,
  round1,
  round2,
  spread,
} from './support/statistics.ts'

const blockTimeMs = 2_000
const price = 50_000n
const highPrice = 12_000_000n
const latencyProbes = 15

export type Bench = Awaited<ReturnType<typeof openSettling>>
type Keeper = Awaited<ReturnType<typeof startKeeper>>

export const options = { payments: 2_000, buyers: 500, queue: 1_000_000, rounds: 3 }

export async function run(
  { payments, buyers, queue, rounds }: typeof options,
  say: (line: string) => void,
): Promise<object> {
  await using bench = await openSettling(buyers)
  const settling = await measureSettling(bench, payments, rounds, say)
  const claims = { ...bench, feeRecipient: platform, say }
  return {
    ...settling,
    claimMs10k: await measureClaims(claims, 10_000),
    claimMs1M: await measureClaims(claims, queue),
  }
}

/** Postgres, a chain with a block every two seconds, and Ponder: all but the keeper. */
export async function openSettling(buyerCount: number) {
  await using opening = new AsyncDisposableStack()
  const ground = opening.use(await openGround())
  const { chain, served } = ground
  const databaseUrl = await ground.postgres.createDatabase('settle')
  const database = openDatabase({ url: databaseUrl, max: 5, applicationName: 'bench', limited: false })
  ground.defer(() => database.end({ timeout: 1 }))
  await migrate(database)
  const indexer = await ground.startIndexer(databaseUrl)
  const buyers = createBuyers(buyerCount)
  await insertProvider(database, served.network.chainId, payees[0] ?? platform)
  await chain.mintUsdc(
    buyers.map(({ address }) => address),
    1_000_000_000n,
  )
  await indexer.ready
  await chain.setMining(blockTimeMs)
  ground.defer(() => chain.setMining(0))
  opening.move()
  const postmaster = await findPostmaster(database)
  return { ...ground, database, databaseUrl, buyers, indexerPid: indexer.pid, postmaster }
}

async function measureSettling(bench: Bench, payments: number, rounds: number, say: (line: string) => void) {
  // 2,000 payments are 11 transactions: what a keeper waits for its first block is a good part of a run.
  const runs = await inTurns(['one', 'two'], { counted: rounds }, async (name, round) => {
    const run = await settleQueue(bench, payments, name === 'one' ? 1 : 2)
    say(`round ${round + 1} of ${rounds}, wallets: ${name}; ${describe(run)}`)
    return run
  })
  const all = [...runs.one, ...runs.two]
  const latency = await measureLatency(bench)
  say(`trigger to broadcast, ms: ${latency.map(Math.round).join(' ')}`)
  const cpuMsPerPayment = medianCpu(all)
  const ownCpu = all.map(({ cpuMsPerPayment: { keeper, postgres, indexer } }) => keeper + postgres + indexer)
  return {
    paymentsPerSecondPerWallet: round1(medianOf(runs.one, (run) => run.paymentsPerSecond)),
    paymentsPerSecondTwoWallets: round1(medianOf(runs.two, (run) => run.paymentsPerSecond)),
    paymentsPerBlockPerWallet: perBlock(runs.one, 1),
    paymentsPerBlockTwoWallets: perBlock(runs.two, 2),
    cpuMsPerPayment,
    // Of keeper, Postgres and indexer together: the node is a part of no deployment.
    ownCpuMsPerPayment: round2(median(ownCpu)),
    ownCpuMsPerPaymentSpread: spread(ownCpu),
    // The node's own period: it grows with what it executes, beside all else on the machine.
    blockMsOneWallet: medianOf(runs.one, (run) => run.blockMs),
    blockMsTwoWallets: medianOf(runs.two, (run) => run.blockMs),
    triggerToBroadcastMsP95: Math.round(percentile(latency, 0.95)),
    minedToIndexedMsP95: Math.round(
      percentile(
        all.flatMap(({ blocks }) => blocks.map(({ minedAt, seenAt }) => seenAt - minedAt)),
        0.95,
      ),
    ),
    gasPerPayment: medianOf(runs.one, (run) => run.gasPerPayment),
    peakRssMb: Math.max(...all.map((run) => run.peakRssMb)),
  }
}

/** Queues payments that are due, starts a keeper, and waits until the last of them is indexed. */
export async function settleQueue(bench: Bench, payments: number, wallets: number) {
  const { database, served, buyers } = bench
  const acceptedAt = new Date(Date.now() - 3_600_000)
  const ids = await insertPayments(database, served, {
    count: payments,
    buyers,
    payees,
    feeRecipient: platform,
    price,
    acceptedAt,
  })
  const watch = watchBlocks(bench)
  await watch.firstBlock
  const indexedBefore = await countIndexed(database)
  const keeper = await startKeeper(bench, wallets)
  const cpuBefore = await readCpu(bench, keeper)
  try {
    await untilIndexed(database, indexedBefore, payments)
  } finally {
    await watch.stop()
  }
  const peakRssMb = await readPeakRssMb(keeper.pid())
  await closeBatches(bench)
  const cpuAfter = await readCpu(bench, keeper)
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
  const minedAt = watch.minedAt.get(row.lastBlock)
  // Whole blocks: how far into one the first claim falls is chance, and no keeper gets more than one transaction into each.
  const blocksBefore = [...watch.minedAt.values()].filter((at) => at <= row.firstClaim.getTime())
  const startedAt = Math.max(...blocksBefore)
  if (minedAt === undefined) throw new Error(`nobody saw block ${row.lastBlock} being mined`)
  return {
    paymentsPerSecond: (payments * 1_000) / (minedAt - startedAt),
    blockMs: median(periodsOf([...watch.minedAt.values()].filter((at) => at >= startedAt && at <= minedAt))),
    gasPerPayment: Number(row.gas / BigInt(payments)),
    ...(await readBlocks(database, ids)),
    // From the keeper being ready to its last batch being closed.
    cpuMsPerPayment: mapValues(cpuAfter, (us, name) => round2((us - cpuBefore[name]) / 1_000 / payments)),
    blocks: watch.blocks(),
    peakRssMb,
  }
}

type Run = Awaited<ReturnType<typeof settleQueue>>

function describe({ blocks, ...numbers }: Run): string {
  const indexedMs = blocks.map(({ minedAt, seenAt }) => seenAt - minedAt)
  return JSON.stringify({ ...numbers, indexedMs })
}

/** From a payment of high value being committed to its transaction being out, with a wallet that has nothing else to do. */
async function measureLatency(bench: Bench): Promise<number[]> {
  const { database, served, buyers } = bench
  const keeper = await startKeeper(bench, 1)
  const latencies: number[] = []
  try {
    for (let probe = 0; probe < latencyProbes; probe++) {
      const [buyer] = buyers.slice(probe)
      if (!buyer) throw new Error('too few buyers')
      const indexedBefore = await countIndexed(database)
      const ids = await insertPayments(database, served, {
        count: 1,
        buyers: [buyer],
        payees,
        feeRecipient: platform,
        price: highPrice,
        acceptedAt: new Date(),
      })
      const committedAt = Date.now()
      await untilIndexed(database, indexedBefore, 1)
      const [row] = await database<[{ broadcastAt: Date }]>`
        select min(t.broadcast_at) as "broadcastAt" from transaction t
        where t.batch_id in (select batch_id from batch_item where payment_id in ${database(ids)})`
      latencies.push(row.broadcastAt.getTime() - committedAt)
      // Not in step with the keeper's own looks at the queue.
      await wait(200 + ((probe * 97) % 250))
    }
  } finally {
    await keeper.service.stop()
  }
  return latencies
}

/** @param before what the index had counted until then. */
async function untilIndexed(database: Database, before: number, payments: number): Promise<void> {
  for (let tries = 0; tries < 3_000; tries++) {
    if ((await countIndexed(database)) - before >= payments) return
    await wait(100)
  }
  throw new Error('the queue was not settled in time')
}

async function countIndexed(database: Database): Promise<number> {
  const [row] = await database<[{ payments: number }]>`
    select coalesce(sum(payment_count), 0)::int as payments from indexer.batch`
  return row.payments
}

function periodsOf(times: number[]): number[] {
  return times.slice(1).map((at, index) => at - (times[index] as number))
}

/** Lets a run's batches become final, so that the next one doesn't look after them as well. */
async function closeBatches({ chain, database, served }: Bench): Promise<void> {
  await chain.setMining(0)
  for (let block = 0n; block < finalityOf(served.network.chainId) + 2n; block++) {
    await served.client.request({ method: 'evm_mine' } as never)
  }
  for (let tries = 0; tries < 600; tries++) {
    const [row] = await database<[{ mined: number }]>`
      select count(*)::int as mined from batch where state = 'mined'`
    if (row.mined === 0) return chain.setMining(blockTimeMs)
    await wait(100)
  }
  throw new Error('the batches were not closed in time')
}

/** Notes when each block is seen mined, and when its batches are seen in Postgres. */
function watchBlocks({ database, served }: Bench) {
  const minedAt = new Map<bigint, number>()
  const indexedAt = new Map<bigint, number>()
  const firstBlock = Promise.withResolvers<void>()
  let isOver = false
  const chain = (async () => {
    let last = await served.client.getBlockNumber({ cacheTime: 0 })
    while (!isOver) {
      const block = await served.client.getBlockNumber({ cacheTime: 0 })
      for (let number = last + 1n; number <= block; number++) minedAt.set(number, Date.now())
      if (minedAt.size > 0) firstBlock.resolve()
      last = block
      await wait(20)
    }
  })()
  const index = (async () => {
    let last = 0n
    while (!isOver) {
      const rows = await database<{ block: bigint }[]>`
        select distinct block_number as block from indexer.batch where block_number > ${last} order by 1`
      for (const { block } of rows) indexedAt.set(block, Date.now())
      last = rows.at(-1)?.block ?? last
      await wait(20)
    }
  })()
  return {
    minedAt,
    firstBlock: firstBlock.promise,
    /** Those with batches. */
    blocks: () =>
      [...indexedAt].flatMap(([number, seenAt]) => {
        const mined = minedAt.get(number)
        return mined === undefined ? [] : [{ number, minedAt: mined, seenAt }]
      }),
    async stop() {
      isOver = true
      await Promise.all([chain, index])
    },
  }
}

/** CPU time used so far, in µs. Postgres' without what it does for this benchmark. */
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

export function medianCpu(runs: readonly Run[]) {
  const of = (part: keyof Run['cpuMsPerPayment']) =>
    round2(medianOf(runs, ({ cpuMsPerPayment }) => cpuMsPerPayment[part]))
  return { keeper: of('keeper'), postgres: of('postgres'), indexer: of('indexer'), node: of('node') }
}

/** What each block settled, from the first one with a batch on, and how large the largest batch was. */
async function readBlocks(database: Database, ids: string[]) {
  const batches = await database<{ block: number; payments: number }[]>`
    select t.mined_block::int as block, count(*)::int as payments
    from batch_item i join transaction t on t.batch_id = i.batch_id and t.mined_block is not null
    where i.payment_id in ${database(ids)} group by i.batch_id, t.mined_block order by 1`
  const first = batches[0]?.block ?? 0
  const byBlock: number[] = []
  for (const { block, payments } of batches) byBlock[block - first] = (byBlock[block - first] ?? 0) + payments
  return {
    paymentsByBlock: Array.from(byBlock, (payments = 0) => payments),
    largestBatch: Math.max(...batches.map(({ payments }) => payments)),
  }
}

/** A block's payments, empty ones counted, for as long as each wallet had a full batch to send. */
function perBlock(runs: Run[], wallets: number): number {
  const full = runs.flatMap(({ paymentsByBlock, largestBatch }) => {
    let left = paymentsByBlock.reduce((sum, payments) => sum + payments, 0)
    return paymentsByBlock.filter((payments) => {
      const isFull = left >= wallets * largestBatch
      left -= payments
      return isFull
    })
  })
  return round1(full.reduce((sum, payments) => sum + payments, 0) / full.length)
}

function startKeeper(bench: Bench, wallets: number) {
  const settings = { KEEPER_LEASE_MS: '3000', TRIGGER_MIN_AGE_SECONDS: '0', PRIORITY_FEE_WEI: '0' }
  return bench.startKeeper(bench.databaseUrl, wallets, settings)
}
