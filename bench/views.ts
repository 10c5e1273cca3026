/** How fast providers' and settlement views are with a year of payments, and how that grows with their number. */
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
import { fillViews, readViewsData, type ViewsData } from './data/fillViews.ts'
import { cpuTimeOfTree } from './support/cpuTime.ts'
import { openGround } from './support/ground.ts'
import { inTurns, mapValues, median, percentile, round2, type Say } from './support/statistics.ts'

const views = ['status', 'batches', 'revenue', 'payments', 'queue', 'payers', 'statement'] as const
type View = (typeof views)[number]

type Bench = { data: ViewsData; port: number; keys: Map<string, string> }

// What Postgres' manual advises for a server of its own. With the 128 MB that it has unless told, most of what is measured
// is how fast the kernel hands over pages.
const sharedBuffersMb = Math.round(totalmem() / 4 / 2 ** 20)
/** Rounds that aren't counted: Node compiles, connections open. Of 200 providers they touch the pages of 50. */
const warmUps = 50

export const options = {
  payments: 1_000_000,
  /** With how many it is compared. 0: a tenth. */
  against: 0,
  /** A folder where the filled databases are kept: a second run doesn't fill them again. */
  data: '',
  requests: 1_000,
  'shared-buffers': sharedBuffersMb,
}

export const figures = (given: typeof options) => [
  'statusMsP99',
  'batchesMsP99',
  'revenueMsP99',
  'paymentsMsP99',
  'queueMsP99',
  'payersMsP99',
  'statementMsP99',
  'exportRowsPerSecond',
  'exportPeakRssMb',
  growthFigure(sizesOf(given)),
]

type Sizes = readonly [large: number, small: number]

const sizesOf = ({ payments, against }: Pick<typeof options, 'payments' | 'against'>): Sizes => [
  payments,
  against || payments / 10,
]

/** Names the sizes that are compared, since figures of other sizes aren't comparable: `p99Growth100kTo1M` by default. */
function growthFigure([large, small]: Sizes): string {
  const short = (count: number) => {
    if (count % 1_000_000 === 0) return `${count / 1_000_000}M`
    return count % 1_000 === 0 ? `${count / 1_000}k` : `${count}`
  }
  return `p99Growth${short(small)}To${short(large)}`
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
  const { postgres, served } = opened.use(await openGround({ folder, sharedBuffersMb: buffers }))

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
  // The sizes take turns, so that whatever else the machine does falls on both.
  const kinds = views.flatMap((view) => [`large ${view}`, `small ${view}`] as const)
  const times = await inTurns(kinds, { counted: requests, warmUps }, (kind, round) => {
    const [size, view] = kind.split(' ') as ['large' | 'small', View]
    return timeRequest(benches[size], view, round)
  })
  const p99 = mapValues(times, (ms) => round2(percentile(ms, 0.99)))
  for (const kind of kinds) say(`${kind}: p50 ${round2(median(times[kind]))} and p99 ${p99[kind]} ms`)
  const exported = await timeExport(benches.large)
  say(`export, CPU by row: ${JSON.stringify(exported)}`)
  return {
    statusMsP99: p99['large status'],
    batchesMsP99: p99['large batches'],
    revenueMsP99: p99['large revenue'],
    paymentsMsP99: p99['large payments'],
    queueMsP99: p99['large queue'],
    payersMsP99: p99['large payers'],
    statementMsP99: p99['large statement'],
    exportRowsPerSecond: Math.round(exported.rowsPerSecond),
    exportPeakRssMb: Math.round(exported.peakRssMb),
    [growthFigure(sizes)]: round2(
      Math.max(...views.map((view) => p99[`large ${view}`] / p99[`small ${view}`])),
    ),
  }
}

const nameOf = (size: number) => `views_${size}`
const fillingName = 'filling'
const urlOf = (url: string, size: number) =>
  Object.assign(new URL(url), { pathname: `/${nameOf(size)}` }).href

/** Fills databases, but for those that were filled before: by a server that nothing has to survive, not by the measured one. */
async function prepare(folder: string, sizes: Sizes, say: Say): Promise<void> {
  await using ground = await openGround({ folder, fast: true, sharedBuffersMb: 2_048 })
  const { postgres, served } = ground
  const scope = { chainId: served.network.chainId, token: served.token }
  const server = ground.open(postgres.url)
  for (const size of sizes) {
    const [done] = await server`select from pg_database where datname = ${nameOf(size)}`
    if (done) continue
    const began = performance.now()
    await server`drop database if exists ${server(fillingName)}`
    const url = await postgres.createDatabase(fillingName)
    await migrateAt(url)
    const database = ground.open(url, 10)
    await fillViews(database, { payments: size, providers: size / 100, ...scope, now: new Date() })
    await database.end()
    await server`alter database ${server(fillingName)} rename to ${server(nameOf(size))}`
    say(`${size} payments: filled in ${Math.round((performance.now() - began) / 1000)} s`)
  }
}

/** The UTC date of a day before or after this one. */
function isoDay(offset: number): string {
  return new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10)
}

/** What a dashboard asks for: the queries of a view take turns. */
const queries: Record<View, string[]> = {
  status: [''],
  batches: ['limit=20', 'limit=100'],
  revenue: ['day', 'month', 'hour', 'total', 'month&groupBy=endpoint'].map((query) => `interval=${query}`),
  payments: ['', ...['settled', 'verified', 'failed', 'partially_settled'].map((is) => `status=${is}`)],
  queue: [''],
  payers: ['limit=20', `from=${isoDay(-60)}&to=${isoDay(-10)}`],
  statement: [`month=${isoDay(-40).slice(0, 7)}`],
}

/** Every other request is for the provider or wallet with the most; the rest go round the others. */
function pathOf({ data }: Bench, view: View, round: number): { path: string; providerId?: string } {
  const other = data.others[Math.abs(round) % data.others.length] ?? data.great
  const { wallet, providerId } = round % 2 === 0 ? data.great : other
  const query = queries[view][Math.abs(round >> 1) % queries[view].length]
  return view === 'status' || view === 'batches'
    ? { path: `/settlements/${view}?wallet=${wallet}&${query}` }
    : { path: `/providers/${providerId}/${view}?${query}`, providerId }
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
