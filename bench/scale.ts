/**
 * What more api processes on one database cost and bring: CPU time a payment of each process and of Postgres, and who waits for
 * what, with one, two and four of them, as fast as they can and at a fixed rate. The sizes take turns, and beside each as many processes
 * of the floor get the same requests: what a request costs more there, because each process has fewer, is the machine's. With
 * `--keepers`, the same of a keeper's wallets.
 */
import { setTimeout as wait } from 'node:timers/promises'
import type postgres from 'postgres'
import { openDatabase } from '#ledger/store/database'
import { type Answer, pace, saturate } from './gateway/load.ts'
import { connections, createPayments } from './gateway/payments.ts'
import { type Rig, type Server, startRig } from './gateway/rig.ts'
import { medianCpu, openSettling, settleQueue } from './settle.ts'
import { cpuTime } from './support/cpuTime.ts'
import { inTurns, mapValues, median, medianOf, round2, spread } from './support/statistics.ts'

const buyers = 1_000
const sizes = [1, 2, 4] as const
type Size = (typeof sizes)[number]
const warmUps = 4
const modes = ['paced', 'saturated'] as const
type Mode = (typeof modes)[number]

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

export const options = {
  ...{ rounds: 5, seconds: 4, rate: 1_000 },
  ...{ pooler: false, keepers: false, payments: 1_600 },
}

export async function run(
  { rounds, seconds, rate, pooler, keepers, payments }: typeof options,
  say: (line: string) => void,
): Promise<object> {
  if (keepers) return measureKeepers(rounds, payments, say)
  await using rig = await startRig({ buyers, apis: Math.max(...sizes), withPooler: pooler })
  await using database = openWatching(rig.databaseUrl)
  const { sql } = database
  const floors: Server[] = []
  for (const _ of rig.apis) floors.push(await rig.startServer('floorServer.ts'))
  const measure = createMeasure(rig, floors, sql, rate * seconds, rate)
  // Each process compiles what it runs often, and in the rounds the last ones have the least to do.
  for (let warmUp = 0; warmUp < warmUps; warmUp++) await measure('saturated', 4)
  await sql`analyze`
  const kinds = modes.flatMap((mode) => sizes.map((size) => `${mode} ${size}` as const))
  const samples = await inTurns(kinds, { counted: rounds, warmUps: 1 }, async (kind, round) => {
    const [mode, size] = kind.split(' ')
    const sample = await measure(mode as Mode, Number(size) as Size)
    say(`round ${round + 1}: ${kind}: ${describe(sample)}`)
    return sample
  })
  const [row] = await sql<[{ deadlocks: bigint; diskBytes: number }]>`
    select deadlocks, (pg_database_size(current_database()) / (select count(*) from payment))::float8 as "diskBytes"
    from pg_stat_database where datname = current_database()`
  const of = (mode: Mode) => ({
    1: samples[`${mode} 1`],
    2: samples[`${mode} 2`],
    4: samples[`${mode} 4`],
  })
  return {
    paced: mapValues(of('paced'), summarize),
    saturated: mapValues(of('saturated'), summarize),
    ...growth(of('paced'), 'cpuGrowthFourProcesses', ownCpu),
    ...growth(of('paced'), 'apiGrowthFourProcesses', ({ cpuUs }) => cpuUs.api),
    ...growth(of('paced'), 'floorGrowthFourProcesses', ({ cpuUs }) => cpuUs.floor),
    ...growth(of('saturated'), 'cpuGrowthFourProcessesSaturated', ownCpu),
    deadlocks: Number(row.deadlocks),
    diskBytesPerPayment: Math.round(row.diskBytes),
  }
}

function openWatching(url: string) {
  const sql = openDatabase({ url, max: 1, applicationName: 'bench', limited: false })
  return { sql, [Symbol.asyncDispose]: () => sql.end({ timeout: 1 }) }
}

/** What a keeper settles with one, two and four wallets, and the CPU time a payment of all that has a part in it. */
async function measureKeepers(rounds: number, payments: number, say: (line: string) => void) {
  await using bench = await openSettling(500)
  const runs = await inTurns(sizes, { counted: rounds }, async (size, round) => {
    const settled = await settleQueue(bench, payments, size)
    const { paymentsPerSecond, blockMs, cpuMsPerPayment } = settled
    say(
      `round ${round + 1}: wallets: ${size}; ${JSON.stringify({ paymentsPerSecond, blockMs, cpuMsPerPayment })}`,
    )
    return settled
  })
  return {
    wallets: mapValues(runs, (some) => ({
      paymentsPerSecond: round2(medianOf(some, (one) => one.paymentsPerSecond)),
      paymentsPerSecondSpread: spread(some.map((one) => one.paymentsPerSecond)),
      blockMs: medianOf(some, (one) => one.blockMs),
      cpuMsPerPayment: medianCpu(some),
    })),
  }
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

function summarize(samples: Sample[]) {
  const of = (value: (sample: Sample) => number) => Math.round(medianOf(samples, value))
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
    paymentsPerTransaction: round2(1 / medianOf(samples, ({ transactions }) => transactions)),
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
