/** How fast a keeper settles, beside Ponder, Postgres and a chain with two-second blocks on the same machine. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as wait } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { type Address, numberToHex } from 'viem'
import { finalityOf } from '#chain/finality'
import { openServedNetworks, type ServedNetwork } from '#chain/servedNetworks'
import { type Database, openDatabase } from '#ledger/store/database'
import { migrate } from '#ledger/store/migrate'
import { networks } from '#protocol/networks'
import type { IndexerOptions } from '../indexer/config.ts'
import { startIndexer } from '../indexer/launch.ts'
import { devPrivateKey } from '../local/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../local/chain/startLocalChain.ts'
import { type Postgres, startPostgres } from '../local/stack/postgres.ts'
import { type Buyer, createBuyers, insertPayments, insertProvider } from './data/signPayments.ts'
import { measureClaims } from './support/claims.ts'
import { cpuTime, cpuTimeOfTree, parentOf } from './support/cpuTime.ts'
import { median, percentile, round2, spread } from './support/statistics.ts'

const blockTimeMs = 2_000
const price = 50_000n
const highPrice = 12_000_000n
const platform: Address = '0x00000000000000000000000000000000000fee00'
const payees = Array.from({ length: 20 }, (_, i): Address => numberToHex(0xa000 + i, { size: 20 }))
const latencyProbes = 15

export type Bench = {
  chain: LocalChain
  served: ServedNetwork
  database: Database
  databaseUrl: string
  deploymentsFile: string
  buyers: Buyer[]
  indexerPid: number
  postmaster: number
}

export async function run(args: string[]): Promise<object | undefined> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      payments: { type: 'string', default: '2000' },
      buyers: { type: 'string', default: '500' },
      queue: { type: 'string', default: '1000000' },
      rounds: { type: 'string', default: '3' },
    },
  })
  // With --json, standard output is the one line at the end.
  const say = (line: string) => (values.json ? console.error(line) : console.log(line))
  return withSettling({ buyers: Number(values.buyers) }, async (bench, postgres) => {
    const settling = await measureSettling(bench, Number(values.payments), Number(values.rounds), say)
    const claimMs10k = await measureClaims(postgres, bench.served, 10_000, platform, say)
    const claimMs1M = await measureClaims(postgres, bench.served, Number(values.queue), platform, say)
    return { ...settling, claimMs10k, claimMs1M }
  })
}

type SettlingOptions = { buyers: number } & Pick<IndexerOptions, 'logLevel' | 'onLog'>

/** Starts Postgres, a chain with a block every two seconds, and Ponder, all but the keeper, and ends them after the work. */
export async function withSettling<Result>(
  { buyers: buyerCount, ...indexerLog }: SettlingOptions,
  work: (bench: Bench, postgres: Postgres) => Promise<Result>,
): Promise<Result> {
  const closers: (() => Promise<unknown>)[] = []
  try {
    const postgres = await startPostgres()
    closers.push(postgres.close)
    const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-bench-'))
    closers.push(() => rm(folder, { recursive: true, force: true }))
    const chain = await startLocalChain({ blockTimeMs: 0 })
    closers.push(chain.close)
    const deploymentsFile = join(folder, 'deployments.json')
    await writeFile(deploymentsFile, JSON.stringify(chain.deployments))
    const deployment = chain.deployments.localhost
    if (!deployment) throw new Error('the local chain has no deployment')
    const [served] = await openServedNetworks([
      { network: networks.localhost, deployment, rpcUrls: [chain.url] },
    ])
    if (!served) throw new Error('the local chain is not served')

    const databaseUrl = await postgres.createDatabase('settle')
    const database = openDatabase({ url: databaseUrl, max: 5, applicationName: 'bench', limited: false })
    closers.push(() => database.end({ timeout: 1 }))
    await migrate(database)
    const indexer = await startIndexer({
      databaseUrl,
      rpcUrls: { localhost: chain.url },
      platformWallets: [platform],
      deploymentsFile,
      ...indexerLog,
    })
    closers.push(indexer.close)
    const buyers = createBuyers(buyerCount)
    const [backend] = await database<[{ pid: number }]>`select pg_backend_pid() as pid`
    const postmaster = await parentOf(backend.pid)
    await insertProvider(database, served.network.chainId, payees[0] as Address)
    await chain.mintUsdc(
      buyers.map(({ address }) => address),
      1_000_000_000n,
    )
    await indexer.ready
    await chain.setMining(blockTimeMs)
    closers.push(() => chain.setMining(0))
    const parts = { chain, served, database, databaseUrl, deploymentsFile, buyers }
    return await work({ ...parts, indexerPid: indexer.pid, postmaster }, postgres)
  } finally {
    for (const closer of closers.reverse()) await closer()
  }
}

async function measureSettling(bench: Bench, payments: number, rounds: number, say: (line: string) => void) {
  // 2,000 payments are 11 transactions: what a keeper waits for its first block is a good part of a run.
  const runs = { one: [] as Run[], two: [] as Run[] }
  for (let round = 1; round <= rounds; round++) {
    for (const [name, wallets] of [
      ['one', [0]],
      ['two', [0, 1]],
    ] as const) {
      const run = await settleQueue(bench, payments, wallets)
      runs[name].push(run)
      say(`round ${round} of ${rounds}, wallets: ${name}; ${describe(run)}`)
    }
  }
  const all = [...runs.one, ...runs.two]
  const latency = await measureLatency(bench)
  say(`trigger to broadcast, ms: ${latency.map(Math.round).join(' ')}`)
  const cpuMsPerPayment = medianOfEach(all.map((run) => run.cpuMsPerPayment))
  const ownCpu = all.map(({ cpuMsPerPayment: { keeper, postgres, indexer } }) => keeper + postgres + indexer)
  return {
    paymentsPerSecondPerWallet: round(median(runs.one.map((run) => run.paymentsPerSecond)), 1),
    paymentsPerSecondTwoWallets: round(median(runs.two.map((run) => run.paymentsPerSecond)), 1),
    paymentsPerBlockPerWallet: perBlock(runs.one, 1),
    paymentsPerBlockTwoWallets: perBlock(runs.two, 2),
    cpuMsPerPayment,
    // Of keeper, Postgres and indexer together: the node is a part of no deployment.
    ownCpuMsPerPayment: round2(median(ownCpu)),
    ownCpuMsPerPaymentSpread: spread(ownCpu),
    // The node's own period: it grows with what it executes, beside all else on the machine.
    blockMsOneWallet: median(runs.one.map((run) => run.blockMs)),
    blockMsTwoWallets: median(runs.two.map((run) => run.blockMs)),
    triggerToBroadcastMsP95: Math.round(percentile(latency, 0.95)),
    minedToIndexedMsP95: Math.round(
      percentile(
        all.flatMap(({ blocks }) => blocks.map(({ minedAt, seenAt }) => seenAt - minedAt)),
        0.95,
      ),
    ),
    gasPerPayment: median(runs.one.map((run) => run.gasPerPayment)),
    peakRssMb: Math.round(Math.max(...all.map((run) => run.peakRssMb))),
  }
}

/** Queues payments that are due, starts a keeper, and waits until the last of them is indexed. */
export async function settleQueue(bench: Bench, payments: number, wallets: readonly number[]) {
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
  const peakRssMb = await readPeakRss(keeper)
  await closeBatches(bench)
  const cpuAfter = await readCpu(bench, keeper)
  await stopKeeper(keeper)
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
  const keeper = await startKeeper(bench, [0])
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
    await stopKeeper(keeper)
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
async function readCpu({ chain, database, indexerPid, postmaster }: Bench, keeper: ChildProcess) {
  const watching = await database<{ pid: number }[]>`
    select pid from pg_stat_activity where application_name = 'bench'`
  let forUs = 0
  for (const { pid } of watching) forUs += await cpuTime(pid)
  return {
    keeper: await cpuTime(keeper.pid ?? 0),
    postgres: (await cpuTimeOfTree(postmaster)) - forUs,
    indexer: await cpuTime(indexerPid),
    node: await cpuTime(chain.pid),
  }
}

type Cpu = Awaited<ReturnType<typeof readCpu>>

function mapValues(cpu: Cpu, change: (value: number, name: keyof Cpu) => number): Cpu {
  const { keeper, postgres, indexer, node } = cpu
  return {
    keeper: change(keeper, 'keeper'),
    postgres: change(postgres, 'postgres'),
    indexer: change(indexer, 'indexer'),
    node: change(node, 'node'),
  }
}

function medianOfEach(runs: Cpu[]): Cpu {
  const [first] = runs
  if (!first) throw new Error('no runs')
  return mapValues(first, (_, name) => median(runs.map((cpu) => cpu[name])))
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
  return round(full.reduce((sum, payments) => sum + payments, 0) / full.length, 1)
}

async function startKeeper(bench: Bench, wallets: readonly number[]): Promise<ChildProcess> {
  const child = spawn(process.execPath, [join(import.meta.dirname, '../keeper/main.ts')], {
    env: {
      PATH: process.env.PATH,
      DATABASE_URL: bench.databaseUrl,
      NETWORKS: 'localhost',
      RPC_URL_LOCALHOST: bench.chain.url,
      DEPLOYMENTS_FILE: bench.deploymentsFile,
      PLATFORM_WALLET: platform,
      KEEPER_PRIVATE_KEYS: wallets.map((wallet) => devPrivateKey(10 + wallet)).join(','),
      KEEPER_PORT: '0',
      KEEPER_LEASE_MS: '3000',
      TRIGGER_MIN_AGE_SECONDS: '0',
      PRIORITY_FEE_WEI: '0',
      LOG_LEVEL: 'info',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const lines = createInterface({ input: child.stdout })
  await new Promise<void>((resolve, reject) => {
    lines.on('line', (line) => line.includes('listening on') && resolve())
    child.once('exit', (code) => reject(new Error(`the keeper ended with ${code}`)))
  })
  return child
}

async function stopKeeper(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  await exited
}

async function readPeakRss({ pid }: ChildProcess): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? Number.NaN) / 1024
}

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits))
}
