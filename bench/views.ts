/** How fast providers' and settlement views are with a year of payments, and how that grows with their number. */
import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, request } from 'node:http'
import { totalmem } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Address } from 'viem'
import { createApp } from '#api/app'
import { rotateReceiptKeys, toReceiptKeys } from '#api/payments/receipts/keys'
import { issueApiKey } from '#api/registry/apiKeys'
import { openServedNetworks } from '#chain/servedNetworks'
import { type Database, openDatabase } from '#ledger/store/database'
import { migrate } from '#ledger/store/migrate'
import { createLogger } from '#process/log'
import { serve } from '#process/serve'
import { networks } from '#protocol/networks'
import { startLocalChain } from '../local/chain/startLocalChain.ts'
import { type Postgres, startPostgres } from '../local/stack/postgres.ts'
import { testGatewaySettings } from '../test/support/gateway.ts'
import { fillViews, readViewsData, type ViewsData } from './data/fillViews.ts'
import { cpuTimeOfTree } from './support/cpuTime.ts'
import { percentile, round2 } from './support/statistics.ts'

const views = ['status', 'batches', 'revenue', 'payments'] as const
type View = (typeof views)[number]

type Bench = {
  payments: number
  data: ViewsData
  url: string
  port: number
  keys: Map<string, string>
  close: () => Promise<void>
}

/** Milliseconds of each request, by what was asked for. */
type Times = Record<View, Map<string, number[]>>

// What Postgres' manual advises for a server of its own. With the 128 MB that it has unless told, most of what is measured
// is how fast the kernel hands over pages.
const sharedBuffersMb = Math.round(totalmem() / 4 / 2 ** 20)
/** Rounds that aren't counted: Node compiles, connections open. Of 200 providers they touch the pages of 50. */
const warmUps = 50

export async function run(args: string[]): Promise<object> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      payments: { type: 'string', default: '1000000' },
      // With how many it is compared. Default: a tenth.
      against: { type: 'string' },
      // A folder where the filled databases are kept: a second run doesn't fill them again.
      data: { type: 'string' },
      requests: { type: 'string', default: '1000' },
      'shared-buffers': { type: 'string', default: String(sharedBuffersMb) },
    },
  })
  // Standard output holds nothing but the result.
  const say = (line: string) => console.error(line)
  const payments = Number(values.payments)
  const sizes = [payments, Number(values.against ?? payments / 10)] as const
  const closers: (() => Promise<void>)[] = []
  try {
    const chain = await startLocalChain({ network: 'localhost' })
    closers.push(chain.close)
    const deployment = chain.deployments.localhost
    if (!deployment) throw new Error('the local chain has no deployment')
    const folder = values.data ?? (await mkdtemp(join('/tmp', 'tollkeeper-views-')))
    if (values.data === undefined) closers.push(() => rm(folder, { recursive: true, force: true }))
    await prepare(folder, sizes, deployment.usdc, say)
    const postgres = await startPostgres({ folder, sharedBuffersMb: Number(values['shared-buffers']) })
    say(`Postgres has ${values['shared-buffers']} MB of shared buffers`)
    closers.push(postgres.close)
    const served = await openServedNetworks([
      { network: networks.localhost, deployment, rpcUrls: [chain.url] },
    ])

    const open = async (size: number): Promise<Bench> => {
      const url = urlOf(postgres.url, size)
      const database = openDatabase({ url, applicationName: 'bench' })
      const data = await readViewsData(database, networks.localhost.chainId)
      const keys = new Map<string, string>()
      for (const providerId of [data.greatProviderId, ...data.providerIds]) {
        keys.set(providerId, (await issueApiKey(database, providerId)).apiKey)
      }
      const app = createApp({
        sql: database,
        networks: served,
        receiptKeys: toReceiptKeys(rotateReceiptKeys(undefined)),
        log: createLogger('bench', 'error'),
        settings: { ...testGatewaySettings, checkBalance: false },
      })
      const server = await serve(app, { host: '127.0.0.1', port: 0, portVariable: 'API_PORT' })
      return {
        payments: size,
        data,
        url,
        port: server.port,
        keys,
        close: async () => {
          await server.close()
          await database.end()
        },
      }
    }

    const large = await open(sizes[0])
    closers.push(large.close)
    const small = await open(sizes[1])
    closers.push(small.close)

    const times = { large: emptyTimes(), small: emptyTimes() }
    const rounds = Number(values.requests)
    for (let round = -warmUps; round < rounds; round++) {
      for (const view of views) {
        // The sizes take turns, so that whatever else the machine does falls on both.
        for (const [bench, into] of [
          [large, times.large],
          [small, times.small],
        ] as const) {
          const { ms, variant } = await timeRequest(bench, view, round)
          if (round < 0) continue
          const measured = into[view].get(variant)
          if (measured) measured.push(ms)
          else into[view].set(variant, [ms])
        }
      }
      if (round < 0 || (round + 1) % 200 !== 0) continue
      const soFar = views.map((view) => `${view} ${round2(p99(all(times.large[view])))} ms`)
      say(`${round + 1} of ${rounds} requests of each view at both sizes; p99 so far: ${soFar.join(', ')}`)
    }
    const p99Of = (size: keyof typeof times, view: View) => p99(all(times[size][view]))
    const growthOf = (view: View) => p99Of('large', view) / p99Of('small', view)
    const exports = { small: await timeExport(small), large: await timeExport(large) }
    const result = {
      statusMsP99: round2(p99Of('large', 'status')),
      batchesMsP99: round2(p99Of('large', 'batches')),
      revenueMsP99: round2(p99Of('large', 'revenue')),
      paymentsMsP99: round2(p99Of('large', 'payments')),
      exportRowsPerSecond: Math.round(exports.large.rowsPerSecond),
      exportPeakRssMb: Math.round(exports.large.peakRssMb),
      p99Growth: round2(Math.max(...views.map(growthOf))),
    }
    say(describeTimes(times, { large: large.payments, small: small.payments }))
    const live = (await sampleExport(large)).map((mb) => Math.round(mb))
    say(`memory in use during an export, after each garbage collection: ${live.join(', ') || 'too short'} MB`)
    for (const one of [exports.small, exports.large]) {
      say(
        `export of ${one.rows} rows: ${Math.round(one.rowsPerSecond)} rows/s, ${round2(one.nodeUs)} µs CPU a row of this process and ${round2(one.postgresUs)} of Postgres, from ${Math.round(one.rssBeforeMb)} MB to at most ${Math.round(one.peakRssMb)} MB`,
      )
    }
    return result
  } finally {
    for (const close of closers.reverse()) await close()
  }
}

const nameOf = (size: number) => `views_${size}`
const urlOf = (url: string, size: number) =>
  Object.assign(new URL(url), { pathname: `/${nameOf(size)}` }).href

/**
 * Fills databases, but for those that were filled before: by a server that nothing has to survive, which isn't the one
 * measured.
 */
async function prepare(
  folder: string,
  sizes: readonly number[],
  token: Address,
  say: (line: string) => void,
): Promise<void> {
  const postgres = await startPostgres({ folder, fast: true, sharedBuffersMb: 2_048 })
  const server = openDatabase({ url: postgres.url, applicationName: 'bench', limited: false })
  try {
    for (const size of sizes) {
      const [done] = await server`select from pg_database where datname = ${nameOf(size)}`
      if (done) continue
      const began = performance.now()
      await fill(postgres, server, { size, token })
      await server`alter database ${server(fillingName)} rename to ${server(nameOf(size))}`
      say(`${size} payments: filled in ${Math.round((performance.now() - began) / 1000)} s`)
    }
  } finally {
    await server.end()
    await postgres.close()
  }
}

const fillingName = 'filling'

async function fill(
  postgres: Postgres,
  server: Database,
  { size, token }: { size: number; token: Address },
): Promise<void> {
  await server`drop database if exists ${server(fillingName)}`
  const url = await postgres.createDatabase(fillingName)
  const database = openDatabase({ url, applicationName: 'bench', limited: false })
  const [now, { chainId }] = [new Date(), networks.localhost]
  await migrate(database)
  await fillViews(database, { payments: size, providers: size / 100, chainId, token, now })
  await readViewsData(database, chainId)
  await database.end()
}

function describeTimes(
  times: Record<'large' | 'small', Times>,
  sizes: { large: number; small: number },
): string {
  const line = (name: string, large: number[], small: number[]) =>
    [
      name.padEnd(42),
      ...[
        percentile(large, 0.5),
        p99(large),
        percentile(small, 0.5),
        p99(small),
        p99(large) / p99(small),
      ].map((value) => value.toFixed(2).padStart(10)),
    ].join('')
  const head = ['p50', 'p99', 'p50', 'p99', 'growth'].map((title) => title.padStart(10)).join('')
  return [
    `${'ms'.padEnd(42)}${`${sizes.large} payments`.padStart(20)}${`${sizes.small} payments`.padStart(20)}`,
    `${''.padEnd(42)}${head}`,
    ...views.flatMap((view) => [
      line(view, all(times.large[view]), all(times.small[view])),
      ...[...times.large[view].keys()]
        .sort()
        .map((variant) =>
          line(`  ${variant}`, times.large[view].get(variant) ?? [], times.small[view].get(variant) ?? []),
        ),
    ]),
  ].join('\n')
}

function all(times: Map<string, number[]>): number[] {
  return [...times.values()].flat()
}

function emptyTimes(): Times {
  return { status: new Map(), batches: new Map(), revenue: new Map(), payments: new Map() }
}

/** Every other request is for the provider or wallet with the most; the rest go round the others. */
function pathOf(
  { data }: Bench,
  view: View,
  round: number,
): { path: string; variant: string; providerId?: string } {
  const isGreat = round % 2 === 0
  const other = Math.abs(round) % data.providerIds.length
  const wallet = isGreat ? data.greatWallet : data.wallets[other]
  const providerId = (isGreat ? data.greatProviderId : data.providerIds[other]) ?? ''
  // What a dashboard asks for: the variants take turns.
  const pick = (variants: string[]) => variants[Math.abs(round >> 1) % variants.length] ?? ''
  const variant = (query: string) => `${isGreat ? 'greatest' : 'other'} ${query}`
  switch (view) {
    case 'status':
      return { path: `/settlements/status?wallet=${wallet}`, variant: variant('') }
    case 'batches': {
      const query = pick(['limit=20', 'limit=100'])
      return { path: `/settlements/batches?wallet=${wallet}&${query}`, variant: variant(query) }
    }
    case 'revenue': {
      const query = pick([
        'interval=day',
        'interval=month',
        'interval=hour',
        'interval=total',
        'interval=month&groupBy=endpoint',
      ])
      return { path: `/providers/${providerId}/revenue?${query}`, variant: variant(query), providerId }
    }
    case 'payments': {
      const query = pick([
        '',
        'status=settled',
        'status=verified',
        'status=failed',
        'status=partially_settled',
        'limit=100',
      ])
      return { path: `/providers/${providerId}/payments?${query}`, variant: variant(query), providerId }
    }
  }
}

const agent = new Agent({ keepAlive: true, maxSockets: 1 })

async function timeRequest(
  bench: Bench,
  view: View,
  round: number,
): Promise<{ ms: number; variant: string }> {
  const { path, variant, providerId } = pathOf(bench, view, round)
  const began = performance.now()
  let size = 0
  const status = await fetchText(bench, path, providerId, (chunk) => {
    size += chunk.length
  })
  const ms = performance.now() - began
  if (status !== 200 || size === 0) throw new Error(`${path} answered ${status}`)
  return { ms, variant }
}

type Export = {
  rows: number
  rowsPerSecond: number
  /** CPU a row of this process, which is gateway and client, and of Postgres. */
  nodeUs: number
  postgresUs: number
  rssBeforeMb: number
  peakRssMb: number
}

function exportPath({ data }: Bench): string {
  const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10)
  return `/settlements/export?wallet=${data.greatWallet}&start=${day(-400)}&end=${day(0)}&format=csv`
}

/** The memory in use, in MB, at regular intervals of an export: it would rise if it weren't constant. */
async function sampleExport(bench: Bench): Promise<number[]> {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  const samples: number[] = []
  let bytes = 0
  await fetchText(bench, exportPath(bench), undefined, (chunk) => {
    bytes += chunk.length
    if (bytes < (samples.length + 1) * 5_000_000) return
    collect()
    const { heapUsed, external } = process.memoryUsage()
    samples.push((heapUsed + external) / 2 ** 20)
  })
  return samples
}

async function timeExport(bench: Bench): Promise<Export> {
  let rows = -1
  const before = process.memoryUsage.rss()
  let peak = before
  const [own, all] = [process.cpuUsage(), await cpuTimeOfTree(process.pid)]
  const began = performance.now()
  const status = await fetchText(bench, exportPath(bench), undefined, (chunk) => {
    for (let at = chunk.indexOf(10); at !== -1; at = chunk.indexOf(10, at + 1)) rows++
    peak = Math.max(peak, process.memoryUsage.rss())
  })
  const seconds = (performance.now() - began) / 1000
  if (status !== 200 || rows < bench.data.batches * 0.9)
    throw new Error(`export answered ${status} with ${rows} rows`)
  const { user, system } = process.cpuUsage(own)
  const nodeUs = (user + system) / rows
  return {
    ...{ rows, rowsPerSecond: rows / seconds, nodeUs },
    postgresUs: ((await cpuTimeOfTree(process.pid)) - all) / rows - nodeUs,
    ...{ rssBeforeMb: before / 2 ** 20, peakRssMb: peak / 2 ** 20 },
  }
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

const p99 = (values: number[]) => percentile(values, 0.99)
