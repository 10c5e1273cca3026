/**
 * What more api processes on one database cost and bring: CPU time a payment of each process and of Postgres, and who waits for
 * what, with one, two and four of them, as fast as they can and at a fixed rate. The sizes take turns, and beside each as many processes
 * of the floor get the same requests: what a request costs more there, because each process has fewer, is the machine's. With
 * `--keepers`, the same of a keeper's wallets.
 */
import { setTimeout as wait } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import type postgres from 'postgres'
import { openDatabase } from '#ledger/store/database'
import { type Answer, pace, saturate } from './gateway/load.ts'
import { connections, createPayments } from './gateway/payments.ts'
import { type Rig, startRig } from './gateway/rig.ts'
import { settleQueue, withSettling } from './settle.ts'
import { cpuTime } from './support/cpuTime.ts'
import { median, round2, spread } from './support/statistics.ts'

const buyers = 1_000
const sizes = [1, 2, 4] as const
type Size = (typeof sizes)[number]
const warmUps = 4
const modes = ['paced', 'saturated'] as const
type Mode = (typeof modes)[number]

type Server = Awaited<ReturnType<Rig['startServer']>>

type Sample = {
  paymentsPerSecond: number
  /** CPU time a payment, µs; `apis` of each process by the payments that it answered; `floor` of as many processes of it. */
  cpuUs: {
    apis: number[]
    api: number
    postgres: number
    pooler: number
    chain: number
    load: number
    floor: number
  }
  /** Time that Postgres' sessions waited, µs a payment, by `type:event` of pg_stat_activity. */
  waitUs: Record<string, number>
  /** Transactions that wrote, a payment. */
  transactions: number
  walBytes: number
}

export async function run(args: string[]): Promise<object> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      rounds: { type: 'string', default: '5' },
      seconds: { type: 'string', default: '4' },
      rate: { type: 'string', default: '1000' },
      pooler: { type: 'boolean', default: false },
      keepers: { type: 'boolean', default: false },
      payments: { type: 'string', default: '1600' },
    },
  })
  const say = (line: string) => (values.json ? console.error(line) : console.log(line))
  const [rounds, perSecond] = [Number(values.rounds), Number(values.rate)]
  if (values.keepers) return measureKeepers(rounds, Number(values.payments), say)
  const rig = await startRig({ buyers, apis: Math.max(...sizes), withPooler: values.pooler })
  const database = openDatabase({ url: rig.databaseUrl, max: 1, applicationName: 'bench', limited: false })
  try {
    const floors: Server[] = []
    for (const _ of rig.apis) floors.push(await rig.startServer('floorServer.ts'))
    const measure = createMeasure(rig, floors, database, perSecond * Number(values.seconds), perSecond)
    const samples: Record<Mode, Record<Size, Sample[]>> = {
      paced: { 1: [], 2: [], 4: [] },
      saturated: { 1: [], 2: [], 4: [] },
    }
    // Each process compiles what it runs often, and in the rounds the last ones have the least to do.
    for (let warmUp = 0; warmUp < warmUps; warmUp++) await measure('saturated', 4)
    await database`analyze`
    // The first round isn't counted.
    for (let round = 0; round <= rounds; round++) {
      for (const mode of modes) {
        for (const size of round % 2 === 0 ? sizes : sizes.toReversed()) {
          const sample = await measure(mode, size)
          say(`round ${round}: ${mode}, ${size}: ${describe(sample)}`)
          if (round > 0) samples[mode][size].push(sample)
        }
      }
    }
    const [row] = await database<[{ deadlocks: bigint; diskBytes: number }]>`
      select deadlocks, (pg_database_size(current_database()) / (select count(*) from payment))::float8 as "diskBytes"
      from pg_stat_database where datname = current_database()`
    return {
      paced: mapSizes(samples.paced, summarize),
      saturated: mapSizes(samples.saturated, summarize),
      ...growth(samples.paced, 'cpuGrowthFourProcesses', ownCpu),
      ...growth(samples.paced, 'apiGrowthFourProcesses', ({ cpuUs }) => cpuUs.api),
      ...growth(samples.paced, 'floorGrowthFourProcesses', ({ cpuUs }) => cpuUs.floor),
      ...growth(samples.saturated, 'cpuGrowthFourProcessesSaturated', ownCpu),
      deadlocks: Number(row.deadlocks),
      diskBytesPerPayment: Math.round(row.diskBytes),
    }
  } finally {
    await database.end({ timeout: 1 })
    await rig.close()
  }
}

/** What a keeper settles with one, two and four wallets, and the CPU time a payment of all that has a part in it. */
async function measureKeepers(rounds: number, payments: number, say: (line: string) => void) {
  return withSettling({ buyers: 500 }, async (bench) => {
    const runs: Record<Size, Awaited<ReturnType<typeof settleQueue>>[]> = { 1: [], 2: [], 4: [] }
    for (let round = 1; round <= rounds; round++) {
      for (const size of sizes) {
        const settled = await settleQueue(
          bench,
          payments,
          Array.from({ length: size }, (_, wallet) => wallet),
        )
        const { paymentsPerSecond, blockMs, cpuMsPerPayment } = settled
        say(
          `round ${round}: wallets: ${size}; ${JSON.stringify({ paymentsPerSecond, blockMs, cpuMsPerPayment })}`,
        )
        runs[size].push(settled)
      }
    }
    return {
      wallets: mapSizes(runs, (some) => {
        const cpu = (part: keyof (typeof some)[0]['cpuMsPerPayment']) =>
          round2(median(some.map(({ cpuMsPerPayment }) => cpuMsPerPayment[part])))
        return {
          paymentsPerSecond: round2(median(some.map((one) => one.paymentsPerSecond))),
          paymentsPerSecondSpread: spread(some.map((one) => one.paymentsPerSecond)),
          blockMs: median(some.map((one) => one.blockMs)),
          cpuMsPerPayment: {
            keeper: cpu('keeper'),
            postgres: cpu('postgres'),
            indexer: cpu('indexer'),
            node: cpu('node'),
          },
        }
      }),
    }
  })
}

/** Signs as many payments as are asked for and sends them to the first processes, each its part; then to the floor's. */
function createMeasure(rig: Rig, floors: Server[], database: postgres.Sql, count: number, perSecond: number) {
  const payments = createPayments(rig)

  async function readCpu(): Promise<
    Record<'postgres' | 'pooler' | 'chain' | 'load', number> & { apis: number[] }
  > {
    const [watching] = await database<[{ pid: number }]>`select pg_backend_pid() as pid`
    const { postgres, chain, load } = await rig.cpu()
    return {
      apis: await Promise.all(rig.apis.map(({ cpu }) => cpu())),
      postgres: postgres - (await cpuTime(watching.pid)),
      pooler: (await rig.poolerCpu?.()) ?? 0,
      chain,
      load,
    }
  }
  async function readWrites(): Promise<{ transactions: number; walBytes: number }> {
    const [row] = await database<[{ transactions: number; walBytes: number }]>`
      select pg_snapshot_xmax(pg_current_snapshot())::text::float8 as transactions,
        (pg_current_wal_insert_lsn() - '0/0')::float8 as "walBytes"`
    return row
  }

  return async (mode: Mode, size: Size): Promise<Sample> => {
    const signed = payments.sign((await payments.challenge(count)).challenges, 'bound')
    const parts = Array.from({ length: size }, (_, part) =>
      signed.requests.filter((_, index) => index % size === part),
    )
    const send = (servers: Server[]) =>
      Promise.all(
        parts.map((requests, part) => {
          const { port } = servers[part] as Server
          const load = { port, requests, connections: Math.ceil(connections / size) }
          return mode === 'paced' ? pace({ ...load, perSecond: perSecond / size }) : saturate(load)
        }),
      )
    const [cpu, writes] = [await readCpu(), await readWrites()]
    const waits = watchWaits(database)
    const began = performance.now()
    const answers = await send(rig.apis)
    const seconds = (performance.now() - began) / 1_000
    const waitMs = await waits.stop()
    const [cpuAfter, writesAfter] = [await readCpu(), await readWrites()]
    signed.require(signed.requests.map((_, i) => answers[i % size]?.answers[Math.floor(i / size)] as Answer))
    const used = (part: 'postgres' | 'pooler' | 'chain' | 'load') => (cpuAfter[part] - cpu[part]) / count
    const readFloors = () => Promise.all(floors.slice(0, size).map(({ cpu }) => cpu()))
    const floorsBefore = await readFloors()
    await send(floors)
    const floor = (await readFloors()).reduce((sum, us, i) => sum + us - (floorsBefore[i] ?? 0), 0)
    const apis = parts.map(({ length }, i) => ((cpuAfter.apis[i] ?? 0) - (cpu.apis[i] ?? 0)) / length)
    return {
      paymentsPerSecond: count / seconds,
      cpuUs: {
        apis,
        api: apis.reduce((sum, us) => sum + us, 0) / size,
        postgres: used('postgres'),
        pooler: used('pooler'),
        chain: used('chain'),
        load: used('load'),
        floor: floor / count,
      },
      waitUs: Object.fromEntries([...waitMs].map(([event, ms]) => [event, (1_000 * ms) / count])),
      transactions: (writesAfter.transactions - writes.transactions) / count,
      walBytes: (writesAfter.walBytes - writes.walBytes) / count,
    }
  }
}

const sampleMs = 20

/** Looks again and again what the sessions of the database are waiting for amid a statement. */
function watchWaits(database: postgres.Sql) {
  const waitMs = new Map<string, number>()
  let isOver = false
  const sampling = (async () => {
    let at = performance.now()
    while (!isOver) {
      const rows = await database<{ event: string; sessions: number }[]>`
        select coalesce(wait_event_type || ':' || wait_event, 'working') as event, count(*)::int as sessions
        from pg_stat_activity
        where datname = current_database() and state = 'active' and application_name <> 'bench'
        group by 1`
      const now = performance.now()
      for (const { event, sessions } of rows)
        waitMs.set(event, (waitMs.get(event) ?? 0) + sessions * (now - at))
      at = now
      await wait(sampleMs)
    }
  })()
  return {
    async stop(): Promise<ReadonlyMap<string, number>> {
      isOver = true
      await sampling
      return waitMs
    },
  }
}

/** Of what we run for a payment: the chain is another's, and the load generator no part of it. */
function ownCpu({ cpuUs: { api, postgres, pooler } }: Sample): number {
  return api + postgres + pooler
}

/** Of neighbours, so that a minute in which the machine is slower falls on both. */
function growth(samples: Record<Size, Sample[]>, name: string, cpuOf: (sample: Sample) => number) {
  const ratios = samples[4].map((four, i) => cpuOf(four) / cpuOf(samples[1][i] as Sample))
  return { [name]: round2(median(ratios)), [`${name}Spread`]: spread(ratios) }
}

function mapSizes<Item, Result>(items: Record<Size, Item[]>, summarizeSize: (items: Item[]) => Result) {
  return { 1: summarizeSize(items[1]), 2: summarizeSize(items[2]), 4: summarizeSize(items[4]) }
}

function summarize(samples: Sample[]) {
  const of = (value: (sample: Sample) => number) => Math.round(median(samples.map(value)))
  const own = samples.map(ownCpu)
  const events = [...new Set(samples.flatMap(({ waitUs }) => Object.keys(waitUs)))]
  const waits = events.map((event) => [event, of(({ waitUs }) => waitUs[event] ?? 0)] as const)
  return {
    paymentsPerSecond: of((sample) => sample.paymentsPerSecond),
    cpuUsPerPayment: Math.round(median(own)),
    cpuUsPerPaymentSpread: spread(own).map(Math.round),
    apisCpuUs: (samples[0]?.cpuUs.apis ?? []).map((_, i) => of(({ cpuUs }) => cpuUs.apis[i] as number)),
    postgresCpuUs: of(({ cpuUs }) => cpuUs.postgres),
    poolerCpuUs: of(({ cpuUs }) => cpuUs.pooler),
    chainCpuUs: of(({ cpuUs }) => cpuUs.chain),
    loadCpuUs: of(({ cpuUs }) => cpuUs.load),
    floorCpuUs: of(({ cpuUs }) => cpuUs.floor),
    waitUsPerPayment: Object.fromEntries(waits.filter(([, us]) => us > 0).toSorted((a, b) => b[1] - a[1])),
    paymentsPerTransaction: round2(1 / median(samples.map(({ transactions }) => transactions))),
    walBytesPerPayment: of(({ walBytes }) => walBytes),
  }
}

function describe(sample: Sample): string {
  const { paymentsPerSecond, cpuUs, waitUs, transactions, walBytes } = sample
  const numbers = (record: object) =>
    Object.entries(record).map(([name, value]) => `${name} ${[value].flat().map(Math.round).join('/')}`)
  return (
    `${paymentsPerSecond.toFixed()}/s, CPU ${ownCpu(sample).toFixed()} µs (${numbers(cpuUs).join(', ')}), ` +
    `waits ${numbers(waitUs).join(', ')}; ${round2(1 / transactions)} a transaction, ${walBytes.toFixed()} bytes of WAL`
  )
}
