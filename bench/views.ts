// Measures how fast providers' views and settlement views are with a year of payments, and how that depends on the number of payments.

import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, type IncomingMessage, request } from 'node:http'
import { totalmem } from 'node:os'
import { createApp } from '@tollkeeper/api/app'
import { rotateReceiptKeys, toReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { issueApiKey } from '@tollkeeper/api/registry/apiKeys'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { migrateAt } from '@tollkeeper/ledger/store/migrate'
import { createLogger } from '@tollkeeper/runtime/log'
import { serve } from '@tollkeeper/runtime/serve'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { testGatewaySettings } from '../test/support/gateway.ts'
import { fillOpenTabs } from './data/fillOpenTabs.ts'
import { fillViews, readViewsData, type ViewsData } from './data/fillViews.ts'
import { openBenchEnv } from './support/benchEnv.ts'
import { cpuTimeOfTree } from './support/cpuTime.ts'
import { atLeast, atMost, type Goals } from './support/goals.ts'
import {
  inTurns,
  mapValues,
  median,
  medianOf,
  percentile,
  round2,
  type Say,
  shortCount,
} from './support/statistics.ts'

const views = [
  'status',
  'batches',
  'revenue',
  'payments',
  'totals',
  'tabs',
  'queue',
  'payers',
  'payer-activity',
  'endpoint-activity',
  'statement',
] as const
type View = (typeof views)[number]

type Bench = { data: ViewsData; port: number; keys: Map<string, string> }

// The value that Postgres' manual recommends for a dedicated server. With the default of 128 MB, the bench would mostly measure how fast
// the kernel copies pages.
const sharedBuffersMb = Math.round(totalmem() / 4 / 2 ** 20)
const exports = 3
/**
 * Number of uncounted rounds at the start, in which Node compiles and connections are opened. These rounds read only the pages of the largest
 * provider and of 25 of the 200 other providers.
 */
const warmUps = 50

export const options = {
  payments: 1_000_000,
  /** Number of payments in the database for comparison; 0 means a tenth of `payments`. */
  against: 0,
  /** A folder that keeps the filled databases, so that a second run doesn't fill them again. */
  data: '',
  requests: 1_000,
  'shared-buffers': sharedBuffersMb,
}

export const figures = (given: typeof options) => [
  'statusMsP99',
  'batchesMsP99',
  'revenueMsP99',
  'paymentsMsP99',
  'totalsMsP99',
  'tabsMsP99',
  'queueMsP99',
  'payersMsP99',
  'payerActivityMsP99',
  'endpointActivityMsP99',
  'statementMsP99',
  'exportRowsPerSecond',
  'exportPeakRssMb',
  growthFigure(sizesOf(given)),
]

/** Maximum time in ms of any page if the database holds at most a million payments. */
const pageMs = 10
/** Maximum time in ms of any page if the database holds more than a million payments. */
const pageMsOfMore = 20

export const goals = (given: typeof options): Goals => {
  const page = atMost(given.payments > 1_000_000 ? pageMsOfMore : pageMs)
  return {
    statusMsP99: page,
    batchesMsP99: page,
    revenueMsP99: page,
    paymentsMsP99: page,
    totalsMsP99: page,
    tabsMsP99: page,
    queueMsP99: page,
    payersMsP99: page,
    payerActivityMsP99: page,
    endpointActivityMsP99: page,
    statementMsP99: page,
    [growthFigure(sizesOf(given))]: atMost(1.3),
    exportRowsPerSecond: atLeast(100_000),
  }
}

type Sizes = readonly [large: number, small: number]

const sizesOf = ({ payments, against }: Pick<typeof options, 'payments' | 'against'>): Sizes => [
  payments,
  against || payments / 10,
]

/** Returns a key with the compared sizes, because figures of other sizes aren't comparable: `p99Growth100kTo1M` by default. */
function growthFigure([large, small]: Sizes): string {
  return `p99Growth${shortCount(small)}To${shortCount(large)}`
}

export async function run(
  { payments, against, data, requests, 'shared-buffers': buffers }: typeof options,
  say: Say,
): Promise<object> {
  const sizes = sizesOf({ payments, against })
  await using opened = new AsyncDisposableStack()
  const folder = data || (await mkdtemp('/tmp/tollkeeper-views-'))
  if (!data) opened.defer(() => rm(folder, { recursive: true, force: true }))
  await prepare(folder, sizes, say)
  const { postgres, served } = opened.use(await openBenchEnv({ folder, sharedBuffersMb: buffers }))

  const open = async (size: number): Promise<Bench> => {
    const sql = openDatabase({ url: urlOf(postgres.url, size), applicationName: 'bench' })
    opened.defer(() => sql.end())
    const data = await readViewsData(sql, networks.localhost.chainId)
    const keys = new Map<string, string>()
    for (const { providerId } of [data.great, ...data.others])
      keys.set(providerId, (await issueApiKey(sql, providerId)).apiKey)
    const app = createApp({
      sql,
      networks: [served],
      receiptKeys: toReceiptKeys(rotateReceiptKeys(undefined)),
      log: createLogger('bench', 'error'),
      settings: { ...testGatewaySettings, checkBalance: false },
    })
    const server = await serve(app, { host: '127.0.0.1', port: 0, portVariable: 'API_PORT' })
    opened.defer(server.close)
    return { data, port: server.port, keys }
  }
  const benches = { large: await open(sizes[0]), small: await open(sizes[1]) }
  // The sizes take turns, so that other load on the machine affects both.
  const kinds = views.flatMap((view) => [`large ${view}`, `small ${view}`] as const)
  const times = await inTurns(kinds, { counted: requests, warmUps }, (kind, round) => {
    const [size, view] = kind.split(' ') as ['large' | 'small', View]
    return timeRequest(benches[size], view, round)
  })
  const p99 = mapValues(times, (ms) => round2(percentile(ms, 0.99)))
  for (const kind of kinds) say(`${kind}: p50 ${round2(median(times[kind]))} and p99 ${p99[kind]} ms`)
  // The first export isn't counted, because it warms up the code and the database sessions.
  const { export: runs } = await inTurns(['export'], { counted: exports, warmUps: 1, say }, () =>
    timeExport(benches.large),
  )
  return {
    statusMsP99: p99['large status'],
    batchesMsP99: p99['large batches'],
    revenueMsP99: p99['large revenue'],
    paymentsMsP99: p99['large payments'],
    totalsMsP99: p99['large totals'],
    tabsMsP99: p99['large tabs'],
    queueMsP99: p99['large queue'],
    payersMsP99: p99['large payers'],
    payerActivityMsP99: p99['large payer-activity'],
    endpointActivityMsP99: p99['large endpoint-activity'],
    statementMsP99: p99['large statement'],
    exportRowsPerSecond: Math.round(medianOf(runs, ({ rowsPerSecond }) => rowsPerSecond)),
    exportPeakRssMb: Math.round(Math.max(...runs.map(({ peakRssMb }) => peakRssMb))),
    [growthFigure(sizes)]: round2(
      Math.max(...views.map((view) => p99[`large ${view}`] / p99[`small ${view}`])),
    ),
  }
}

const nameOf = (size: number) => `views_${size}`
const fillingName = 'filling'
const urlOf = (url: string, size: number) =>
  Object.assign(new URL(url), { pathname: `/${nameOf(size)}` }).href

/** Fills the databases that don't exist yet. It uses a separate Postgres server without durability, which writes faster than the measured server. */
async function prepare(folder: string, sizes: Sizes, say: Say): Promise<void> {
  await using benchEnv = await openBenchEnv({ folder, fast: true, sharedBuffersMb: 2_048 })
  const { postgres, served } = benchEnv
  const scope = { chainId: served.network.chainId, token: served.token }
  const server = benchEnv.open(postgres.url)
  for (const size of sizes) {
    const [done] = await server`select from pg_database where datname = ${nameOf(size)}`
    if (done) continue
    const began = performance.now()
    await server`drop database if exists ${server(fillingName)}`
    const url = await postgres.createDatabase(fillingName)
    await migrateAt(url)
    const database = benchEnv.open(url, 10)
    const filled = { payments: size, providers: size / 100, ...scope, now: new Date() }
    await fillViews(database, filled)
    await fillOpenTabs(database, filled)
    await database`vacuum (analyze)`
    await database.end()
    await server`alter database ${server(fillingName)} rename to ${server(nameOf(size))}`
    say(`${size} payments: filled in ${Math.round((performance.now() - began) / 1000)} s`)
  }
}

/** Returns the UTC date of a day before or after today. */
function isoDay(offset: number): string {
  return new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10)
}

/** The queries of a dashboard by view. They are used in turn. */
const queries: Record<View, string[]> = {
  status: [''],
  batches: ['limit=20', 'limit=100'],
  revenue: ['day', 'month', 'hour', 'total', 'month&groupBy=endpoint'].map((query) => `interval=${query}`),
  payments: ['', ...['settled', 'verified', 'failed', 'partially_settled'].map((is) => `status=${is}`)],
  totals: [
    '',
    'status=settled',
    'status=failed',
    'min_usdc=0.04',
    `from=${isoDay(-60)}&to=${isoDay(-10)}`,
    `from=${isoDay(-3)}T05:45:00Z`,
  ],
  tabs: ['', 'state=closed', 'state=all&limit=100'],
  queue: [''],
  payers: [
    'limit=20',
    'sort=lastPayment',
    'sort=payments&limit=100',
    'state=failing',
    'state=owing',
    `from=${isoDay(-29)}`,
    `state=returning&from=${isoDay(-29)}`,
    `from=${isoDay(-60)}&to=${isoDay(-10)}`,
  ],
  'payer-activity': [`from=${isoDay(-29)}`, `interval=total&from=${isoDay(-29)}`],
  'endpoint-activity': [`from=${isoDay(-29)}`],
  statement: [`month=${isoDay(-40).slice(0, 7)}`],
}

/** Returns the path of a request. Every second request is for the largest provider or its wallet; the others take turns. */
function pathOf({ data }: Bench, view: View, round: number): { path: string; providerId?: string } {
  const other = data.others[Math.abs(round) % data.others.length] ?? data.great
  const { wallet, providerId } = round % 2 === 0 ? data.great : other
  const query = queries[view][Math.abs(round >> 1) % queries[view].length]
  return view === 'status' || view === 'batches'
    ? { path: `/settlements/${view}?wallet=${wallet}&${query}` }
    : {
        path: `/providers/${providerId}/${view === 'totals' ? 'payments/totals' : view}?${query}`,
        providerId,
      }
}

const agent = new Agent({ keepAlive: true, maxSockets: 1 })

async function timeRequest(bench: Bench, view: View, round: number): Promise<number> {
  const { path, providerId } = pathOf(bench, view, round)
  const began = performance.now()
  let size = 0
  for await (const chunk of read(bench, path, providerId)) size += chunk.length
  if (size === 0) throw new Error(`${path} answered nothing`)
  return performance.now() - began
}

async function timeExport(bench: Bench) {
  const query = `wallet=${bench.data.great.wallet}&start=${isoDay(-400)}&end=${isoDay(0)}&format=csv`
  let rows = -1
  let peak = 0
  const [own, all] = [process.cpuUsage(), await cpuTimeOfTree(process.pid)]
  const began = performance.now()
  for await (const chunk of read(bench, `/settlements/export?${query}`)) {
    for (let at = chunk.indexOf(10); at !== -1; at = chunk.indexOf(10, at + 1)) rows++
    peak = Math.max(peak, process.memoryUsage.rss())
  }
  const seconds = (performance.now() - began) / 1000
  if (rows < bench.data.batches * 0.9) throw new Error(`the export has ${rows} rows`)
  const { user, system } = process.cpuUsage(own)
  const nodeUs = (user + system) / rows
  const postgresUs = ((await cpuTimeOfTree(process.pid)) - all) / rows - nodeUs
  return { rows, rowsPerSecond: rows / seconds, nodeUs, postgresUs, peakRssMb: peak / 2 ** 20 }
}

async function* read({ port, keys }: Bench, path: string, providerId = ''): AsyncGenerator<Buffer> {
  const key = keys.get(providerId)
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` }
  const call = request({ host: '127.0.0.1', port, path, agent, headers }).end()
  const [response] = (await once(call, 'response')) as [IncomingMessage]
  if (response.statusCode !== 200) throw new Error(`${path} answered ${response.statusCode}`)
  yield* response
}
