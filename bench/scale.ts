/**
 * Measures the cost and benefit of one, two and four api processes on one database: the CPU time per payment of each process and of Postgres, and the
 * waits of Postgres' sessions, at full speed and at a fixed rate. The runs alternate between one, two and four processes. For comparison, the same
 * number of floor processes (HTTP and cryptography only) get the same requests: if a request also costs more there with more processes, the cause is
 * the machine. With `--keepers`, it measures one, two and four wallets of a keeper instead.
 */
import type { Database } from '@tollkeeper/ledger/store/database'
import { partOf, type Requests, send } from './gateway/load.ts'
import { connections, createPayments } from './gateway/payments.ts'
import { type Rig, type Server, startRig } from './gateway/rig.ts'
import { medianCpu, openSettling, settleQueue } from './settle.ts'
import { countWrites, readWal, watch } from './support/benchEnv.ts'
import { cpuTime } from './support/cpuTime.ts'
import { atMost, type Goals } from './support/goals.ts'
import {
  inTurns,
  mapValues,
  mean,
  median,
  medianAndSpread,
  medianOf,
  round2,
  type Say,
  spread,
} from './support/statistics.ts'

const buyers = 1_000
const sizes = [1, 2, 4] as const
type Size = (typeof sizes)[number]
const warmUps = 4
const modes = ['paced', 'saturated'] as const
type Mode = (typeof modes)[number]

type Sample = Awaited<ReturnType<ReturnType<typeof createMeasure>>>

export const options = {
  rounds: 2,
  seconds: 4,
  rate: 1_000,
  pooler: false,
  keepers: false,
  payments: 1_600,
}

const figuresOfSize = [
  'paymentsPerSecond',
  'cpuUsPerPayment',
  'cpuUsPerPaymentSpread',
  'apisCpuUs',
  'postgresCpuUs',
  'poolerCpuUs',
  'chainCpuUs',
  'loadCpuUs',
  'floorCpuUs',
  'waitUsPerPayment',
  'paymentsPerTransaction',
  'walBytesPerPayment',
]

const growthFigures = [
  'cpuGrowthFourProcesses',
  'apiGrowthFourProcesses',
  'floorGrowthFourProcesses',
  'cpuGrowthFourProcessesSaturated',
]

const walletFigures = ['paymentsPerSecond', 'paymentsPerSecondSpread', 'blockMs', 'cpuMsPerPayment']

export function figures({ keepers }: typeof options): string[] {
  const ofSizes = (group: string, names: readonly string[]) =>
    sizes.flatMap((size) => names.map((figure) => `${group}.${size}.${figure}`))
  if (keepers) return ofSizes('wallets', walletFigures)
  return [
    ...modes.flatMap((mode) => ofSizes(mode, figuresOfSize)),
    ...growthFigures.flatMap((figure) => [figure, `${figure}Spread`]),
    'deadlocks',
    'diskBytesPerPayment',
  ]
}

export const goals = ({ keepers }: typeof options): Goals =>
  keepers ? {} : { cpuGrowthFourProcesses: atMost(1.25) }

export async function run(given: typeof options, say: Say): Promise<object> {
  const { rounds, pooler, keepers, payments } = given
  if (keepers) return measureKeepers(rounds, payments, say)
  await using rig = await startRig({ buyers, apis: Math.max(...sizes), withPooler: pooler })
  const sql = rig.open(rig.databaseUrl, 1)
  const floors: Server[] = []
  for (const _ of rig.apis) floors.push(await rig.startServer('floorServer.ts'))
  const measure = createMeasure(rig, floors, sql, given)
  // Warm up all processes first, because the last processes get too few requests in the rounds to have their code compiled.
  for (let warmUp = 0; warmUp < warmUps; warmUp++) await measure('saturated', 4)
  await sql`analyze`
  const kinds = modes.flatMap((mode) => sizes.map((size) => `${mode} ${size}` as const))
  const samples = await inTurns(kinds, { counted: rounds, warmUps: 1, say }, (kind) => {
    const [mode, size] = kind.split(' ')
    return measure(mode as Mode, Number(size) as Size)
  })
  const [row] = await sql<[{ deadlocks: bigint; diskBytes: number }]>`
    select deadlocks, (pg_database_size(current_database()) / (select count(*) from payment))::float8 as "diskBytes"
    from pg_stat_database where datname = current_database()`
  const of = (mode: Mode) =>
    Object.fromEntries(sizes.map((size) => [size, samples[`${mode} ${size}`]])) as Record<Size, Sample[]>
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

/** Measures a keeper's settlements with one, two and four wallets, and the CPU time per payment of all processes involved. */
async function measureKeepers(rounds: number, payments: number, say: Say) {
  await using bench = await openSettling(500)
  const runs = await inTurns(sizes, { counted: rounds, say }, (size) => settleQueue(bench, payments, size))
  return {
    wallets: mapValues(runs, (some) => ({
      paymentsPerSecond: round2(medianOf(some, (one) => one.paymentsPerSecond)),
      paymentsPerSecondSpread: spread(some.map((one) => one.paymentsPerSecond)),
      blockMs: medianOf(some, (one) => one.blockMs),
      cpuMsPerPayment: medianCpu(some),
    })),
  }
}

/**
 * Creates a function that signs payments and sends them in equal parts to the first n processes of the gateway, and then to n floor processes (HTTP
 * and cryptography only).
 */
function createMeasure(rig: Rig, floorServers: Server[], sql: Database, { rate, seconds }: typeof options) {
  const count = rate * seconds
  const payments = createPayments(rig)

  async function readUsed() {
    const [{ pid }] = await sql<[{ pid: number }]>`select pg_backend_pid() as pid`
    const { postgres, chain, load } = await rig.cpu()
    return {
      postgres: postgres - (await cpuTime(pid)),
      pooler: (await rig.poolerCpu?.()) ?? 0,
      chain,
      load,
      transactions: await countWrites(sql),
      walBytes: await readWal(sql),
    }
  }

  return async (mode: Mode, size: Size) => {
    const signed = payments.sign((await payments.challenge(count)).challenges, 'bound')
    /** Sends requests in equal parts. @returns each server's CPU time per request that it answered, in µs */
    const sendTo = async (servers: readonly Server[], asked: Requests) => {
      const parts = servers
        .slice(0, size)
        .map((server, part) => ({ server, asked: partOf(asked, size, part) }))
      const cpu = () => Promise.all(parts.map(({ server }) => server.cpu()))
      const before = await cpu()
      const load = {
        connections: Math.ceil(connections / size),
        perSecond: mode === 'paced' ? rate / size : undefined,
      }
      await Promise.all(parts.map(({ server, asked }) => send({ ...asked, ...load, port: server.port })))
      const after = await cpu()
      return parts.map(({ asked }, i) => ((after[i] ?? 0) - (before[i] ?? 0)) / asked.requests.length)
    }
    const before = await readUsed()
    const waits = watchWaits(sql)
    const began = performance.now()
    const apis = await sendTo(rig.apis, signed)
    const tookSeconds = (performance.now() - began) / 1_000
    await waits.stop()
    const after = await readUsed()
    const used = mapValues(after, (value, what) => (value - before[what]) / count)
    const { transactions, walBytes, ...cpuUs } = used
    const floors = await sendTo(floorServers, { requests: signed.requests })
    return {
      paymentsPerSecond: count / tookSeconds,
      /** CPU time per payment in µs. `apis`: of each process, per payment that it answered. `floor`: the mean of as many floor processes. */
      cpuUs: { apis, api: mean(apis), ...cpuUs, floor: mean(floors) },
      /** Waiting time of Postgres' sessions in µs per payment, by `type:event` of pg_stat_activity. */
      waitUs: mapValues(waits.waitMs, (ms) => (1_000 * ms) / count),
      /** Writing transactions per payment. */
      transactions,
      walBytes,
    }
  }
}

/** Samples continuously what the database's sessions wait for during their statements. */
function watchWaits(database: Database) {
  const waitMs: Record<string, number> = {}
  let at = performance.now()
  const { stop } = watch(async () => {
    const rows = await database<{ event: string; sessions: number }[]>`
      select coalesce(wait_event_type || ':' || wait_event, 'working') as event, count(*)::int as sessions
      from pg_stat_activity
      where datname = current_database() and state = 'active' and application_name <> 'bench'
      group by 1`
    const now = performance.now()
    for (const { event, sessions } of rows) waitMs[event] = (waitMs[event] ?? 0) + sessions * (now - at)
    at = now
  })
  return { waitMs, stop }
}

/** Returns the CPU time per payment of the processes that an operator runs, that is, without the chain and the load generator. */
const ownCpu = ({ cpuUs: { api, postgres, pooler } }: Sample) => api + postgres + pooler

/** Compares samples of the same round, so that a slow minute of the machine affects both. */
function growth(samples: Record<Size, Sample[]>, name: string, cpuOf: (sample: Sample) => number) {
  const ratios = samples[4].map((four, i) => cpuOf(four) / cpuOf(samples[1][i] as Sample))
  return medianAndSpread(name, ratios)
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
