/** How fast providers' and settlement views are with a year of payments, and how that grows with their number. */
import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, request } from 'node:http'
import { totalmem } from 'node:os'
import type { Address } from 'viem'
import { createApp } from '#api/app'
import { rotateReceiptKeys, toReceiptKeys } from '#api/payments/receipts/keys'
import { issueApiKey } from '#api/registry/apiKeys'
import { openServedNetworks } from '#chain/servedNetworks'
import { openDatabase } from '#ledger/store/database'
import { migrate } from '#ledger/store/migrate'
import { createLogger } from '#process/log'
import { serve } from '#process/serve'
import { networks } from '#protocol/networks'
import { startLocalChain } from '../local/chain/startLocalChain.ts'
import { startPostgres } from '../local/stack/postgres.ts'
import { testGatewaySettings } from '../test/support/gateway.ts'
import { fillViews, readViewsData, type ViewsData } from './data/fillViews.ts'
import { cpuTimeOfTree } from './support/cpuTime.ts'
import { deploymentOf } from './support/ground.ts'
import { median, percentile, round2 } from './support/statistics.ts'

const views = ['status', 'batches', 'revenue', 'payments'] as const
type View = (typeof views)[number]

type Bench = { size: number; data: ViewsData; port: number; keys: Map<string, string> }

/** Milliseconds of each request, by what was asked for. */
type Times = Record<View, number[]>

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

export async function run(
  { payments, against, data, requests, 'shared-buffers': buffers }: typeof options,
  say: (line: string) => void,
): Promise<object> {
  const sizes = [payments, against || payments / 10] as const
  await using opened = new AsyncDisposableStack()
  const chain = await startLocalChain({ network: 'localhost' })
  opened.defer(chain.close)
  const deployment = deploymentOf(chain)
  const folder = data || (await mkdtemp('/tmp/tollkeeper-views-'))
  if (!data) opened.defer(() => rm(folder, { recursive: true, force: true }))
  await prepare(folder, sizes, deployment.usdc, say)
  const postgres = await startPostgres({ folder, sharedBuffersMb: buffers })
  opened.defer(postgres.close)
  const served = await openServedNetworks([{ network: networks.localhost, deployment, rpcUrls: [chain.url] }])

  const open = async (size: number): Promise<Bench> => {
    const sql = openDatabase({ url: urlOf(postgres.url, size), applicationName: 'bench' })
    opened.defer(() => sql.end())
    const data = await readViewsData(sql, networks.localhost.chainId)
    const keys = new Map<string, string>()
    for (const providerId of [data.greatProviderId, ...data.providerIds])
      keys.set(providerId, (await issueApiKey(sql, providerId)).apiKey)
    const app = createApp({
      sql,
      networks: served,
      receiptKeys: toReceiptKeys(rotateReceiptKeys(undefined)),
      log: createLogger('bench', 'error'),
      settings: { ...testGatewaySettings, checkBalance: false },
    })
    const server = await serve(app, { host: '127.0.0.1', port: 0, portVariable: 'API_PORT' })
    opened.defer(server.close)
    return { size, data, port: server.port, keys }
  }
  const benches = { large: await open(sizes[0]), small: await open(sizes[1]) }
  const times = { large: emptyTimes(), small: emptyTimes() }
  for (let round = -warmUps; round < requests; round++)
    // The sizes take turns, so that whatever else the machine does falls on both.
    for (const view of views)
      for (const size of ['large', 'small'] as const) {
        const ms = await timeRequest(benches[size], view, round)
        if (round >= 0) times[size][view].push(ms)
      }
  for (const size of ['large', 'small'] as const) {
    const line = (view: View) =>
      `${view} ${round2(median(times[size][view]))} and ${round2(p99(times[size][view]))}`
    say(`p50 and p99 of ${benches[size].size} payments, ms: ${views.map(line).join(', ')}`)
  }
  const exported = await timeExport(benches.large)
  const { rows, nodeUs, postgresUs } = exported
  say(
    `export of ${rows} rows: ${round2(nodeUs)} µs CPU a row of this process, ${round2(postgresUs)} of Postgres`,
  )
  const growthOf = (view: View) => p99(times.large[view]) / p99(times.small[view])
  return {
    statusMsP99: round2(p99(times.large.status)),
    batchesMsP99: round2(p99(times.large.batches)),
    revenueMsP99: round2(p99(times.large.revenue)),
    paymentsMsP99: round2(p99(times.large.payments)),
    exportRowsPerSecond: Math.round(exported.rowsPerSecond),
    exportPeakRssMb: Math.round(exported.peakRssMb),
    p99Growth: round2(Math.max(...views.map(growthOf))),
  }
}

const nameOf = (size: number) => `views_${size}`
const fillingName = 'filling'
const urlOf = (url: string, size: number) =>
  Object.assign(new URL(url), { pathname: `/${nameOf(size)}` }).href
const emptyTimes = (): Times => ({ status: [], batches: [], revenue: [], payments: [] })
const p99 = (values: number[]) => percentile(values, 0.99)

/** Fills databases, but for those that were filled before: by a server that nothing has to survive, not by the measured one. */
async function prepare(
  folder: string,
  sizes: readonly number[],
  token: Address,
  say: (line: string) => void,
): Promise<void> {
  const postgres = await startPostgres({ folder, fast: true, sharedBuffersMb: 2_048 })
  const server = openDatabase({ url: postgres.url, applicationName: 'bench', limited: false })
  const { chainId } = networks.localhost
  try {
    for (const size of sizes) {
      const [done] = await server`select from pg_database where datname = ${nameOf(size)}`
      if (done) continue
      const began = performance.now()
      await server`drop database if exists ${server(fillingName)}`
      const url = await postgres.createDatabase(fillingName)
      const database = openDatabase({ url, applicationName: 'bench', limited: false })
      await migrate(database)
      const filling = { payments: size, providers: size / 100, chainId, token, now: new Date() }
      await fillViews(database, filling)
      await database.end()
      await server`alter database ${server(fillingName)} rename to ${server(nameOf(size))}`
      say(`${size} payments: filled in ${Math.round((performance.now() - began) / 1000)} s`)
    }
  } finally {
    await server.end()
    await postgres.close()
  }
}

/** What a dashboard asks for: the queries of a view take turns. */
const queries: Record<View, string[]> = {
  status: [''],
  batches: ['limit=20', 'limit=100'],
  revenue: ['day', 'month', 'hour', 'total', 'month&groupBy=endpoint'].map((query) => `interval=${query}`),
  payments: [
    '',
    ...['settled', 'verified', 'failed', 'partially_settled'].map((status) => `status=${status}`),
  ],
}

/** Every other request is for the provider or wallet with the most; the rest go round the others. */
function pathOf({ data }: Bench, view: View, round: number): { path: string; providerId?: string } {
  const isGreat = round % 2 === 0
  const other = Math.abs(round) % data.providerIds.length
  const wallet = isGreat ? data.greatWallet : data.wallets[other]
  const providerId = (isGreat ? data.greatProviderId : data.providerIds[other]) ?? ''
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
  const status = await fetchText(bench, path, providerId, (chunk) => {
    size += chunk.length
  })
  if (status !== 200 || size === 0) throw new Error(`${path} answered ${status}`)
  return performance.now() - began
}

async function timeExport(bench: Bench) {
  const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10)
  const query = `wallet=${bench.data.greatWallet}&start=${day(-400)}&end=${day(0)}&format=csv`
  let rows = -1
  let peak = 0
  const [own, all] = [process.cpuUsage(), await cpuTimeOfTree(process.pid)]
  const began = performance.now()
  const status = await fetchText(bench, `/settlements/export?${query}`, undefined, (chunk) => {
    for (let at = chunk.indexOf(10); at !== -1; at = chunk.indexOf(10, at + 1)) rows++
    peak = Math.max(peak, process.memoryUsage.rss())
  })
  const seconds = (performance.now() - began) / 1000
  if (status !== 200 || rows < bench.data.batches * 0.9)
    throw new Error(`export answered ${status} with ${rows} rows`)
  const { user, system } = process.cpuUsage(own)
  const nodeUs = (user + system) / rows
  const postgresUs = ((await cpuTimeOfTree(process.pid)) - all) / rows - nodeUs
  return { rows, rowsPerSecond: rows / seconds, nodeUs, postgresUs, peakRssMb: peak / 2 ** 20 }
}

function fetchText(
  { port, keys }: Bench,
  path: string,
  providerId: string | undefined,
  onChunk: (chunk: Buffer) => void,
): Promise<number> {
  const key = providerId === undefined ? undefined : keys.get(providerId)
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` }
  return new Promise((resolve, reject) => {
    const call = request({ host: '127.0.0.1', port, path, agent, headers }, (response) => {
      response.on('data', onChunk)
      response.on('end', () => resolve(response.statusCode ?? 0))
      response.on('error', reject)
    })
    call.on('error', reject)
    call.end()
  })
}
