/** How fast providers' and settlement views are with a year of payments, and how that grows with their number. */
import { Agent, request } from 'node:http'
import { parseArgs } from 'node:util'
import { createApp } from '#api/app'
import { createLogger } from '#api/log'
import { rotateReceiptKeys, toReceiptKeys } from '#api/receipts/keys'
import { issueApiKey } from '#api/registry/apiKeys'
import { serveApp } from '#api/server'
import { openServedNetworks } from '#keeper/chain/servedNetworks'
import { defaultTriggers } from '#keeper/domain/triggers'
import { openDatabase } from '#keeper/store/database'
import { migrate } from '#keeper/store/migrate'
import { networks } from '#protocol/networks'
import { startLocalChain } from '../scripts/chain/startLocalChain.ts'
import { startPostgres } from '../scripts/postgres.ts'
import { fillViews, type ViewsData } from './data/fillViews.ts'

const views = ['status', 'batches', 'revenue', 'payments'] as const
type View = (typeof views)[number]

type Bench = { data: ViewsData; port: number; keys: Map<string, string>; close: () => Promise<void> }

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      payments: { type: 'string', default: '1000000' },
      requests: { type: 'string', default: '1000' },
    },
  })
  const say = (line: string) => {
    if (!values.json) console.log(line)
  }
  const payments = Number(values.payments)
  const closers: (() => Promise<void>)[] = []
  try {
    const postgres = await startPostgres()
    closers.push(postgres.close)
    const chain = await startLocalChain({ network: 'localhost' })
    closers.push(chain.close)
    const deployment = chain.deployments.localhost
    if (!deployment) throw new Error('the local chain has no deployment')
    const served = await openServedNetworks([
      { network: networks.localhost, deployment, rpcUrls: [chain.url] },
    ])

    const open = async (size: number): Promise<Bench> => {
      const began = performance.now()
      const url = await postgres.createDatabase(`views_${size}`)
      const database = openDatabase({ url, applicationName: 'bench' })
      await migrate(database)
      const data = await fillViews(database, {
        payments: size,
        providers: size / 100,
        chainId: networks.localhost.chainId,
        token: deployment.usdc,
        indexerSchema: 'indexer',
      })
      const keys = new Map<string, string>()
      for (const providerId of [data.greatProviderId, ...data.providerIds]) {
        keys.set(providerId, (await issueApiKey(database, providerId)).apiKey)
      }
      const app = createApp({
        database,
        networks: served,
        receiptKeys: toReceiptKeys(rotateReceiptKeys(undefined)),
        log: createLogger('bench', 'error'),
        settings: {
          issuer: 'http://127.0.0.1',
          platformWallet: `0x${'fe'.repeat(20)}`,
          indexerSchema: 'indexer',
          feeSchedule: 'tiered',
          minimumPrices: {},
          macaroonSecrets: [{ kid: 'bench', key: Buffer.alloc(32, 7) }],
          macaroonNotBefore: 0,
          checkBalance: false,
          balanceTtlMs: 5_000,
          payerCaps: { payer: null, newPayer: null },
          providerCap: null,
          contractTimeoutMs: 1_000,
          settleBeforeServe: null,
          settleBeforeServeTimeoutMs: 4_000,
          triggers: defaultTriggers,
          gasTokenUsd: 3_000_000_000n,
          priorityFeePerGas: 0n,
          publicQueue: true,
          maxBodyBytes: 16_384,
          webhookAllowPrivate: false,
          metricsToken: null,
          rateLimits: null,
          trustedProxies: 0,
        },
      })
      const server = await serveApp(app, { host: '127.0.0.1', port: 0 })
      say(
        `${size} payments, ${data.batches} batches: filled in ${Math.round((performance.now() - began) / 1000)} s`,
      )
      return {
        data,
        port: server.port,
        keys,
        close: async () => {
          await server.close()
          await database.end()
        },
      }
    }

    const large = await open(payments)
    closers.push(large.close)
    const small = await open(payments / 10)
    closers.push(small.close)

    // The sizes take turns, so that whatever else the machine does falls on both.
    const times = { large: emptyTimes(), small: emptyTimes() }
    const rounds = Number(values.requests)
    for (let round = -50; round < rounds; round++) {
      if (round % 100 === 0) console.error(`${round} of ${rounds} requests of each view`)
      for (const view of views) {
        for (const [bench, into] of [
          [large, times.large],
          [small, times.small],
        ] as const) {
          const ms = await timeRequest(bench, view, round)
          if (round >= 0) into[view].push(ms)
        }
      }
    }
    const growth = Math.max(...views.map((view) => p99(times.large[view]) / p99(times.small[view])))
    const exported = await timeExport(large)
    const result = {
      statusMsP99: round2(p99(times.large.status)),
      batchesMsP99: round2(p99(times.large.batches)),
      revenueMsP99: round2(p99(times.large.revenue)),
      paymentsMsP99: round2(p99(times.large.payments)),
      exportRowsPerSecond: Math.round(exported.rowsPerSecond),
      exportPeakRssMb: Math.round(exported.peakRssMb),
      p99Growth100kTo1M: round2(growth),
    }
    if (!values.json) {
      console.table(
        Object.fromEntries(
          views.map((view) => [
            view,
            {
              'p50 ms': round2(percentile(times.large[view], 0.5)),
              'p99 ms': round2(p99(times.large[view])),
              [`p99 ms with ${payments / 10}`]: round2(p99(times.small[view])),
            },
          ]),
        ),
      )
      console.log(
        `export: ${exported.rows} rows, ${result.exportRowsPerSecond} rows/s, at most ${result.exportPeakRssMb} MB`,
      )
    }
    console.log(JSON.stringify(result))
  } finally {
    for (const close of closers.reverse()) await close()
  }
}

function emptyTimes(): Record<View, number[]> {
  return { status: [], batches: [], revenue: [], payments: [] }
}

/** Every other request is for the provider or wallet with the most; the rest go round the others. */
function pathOf({ data }: Bench, view: View, round: number): { path: string; providerId?: string } {
  const isGreat = round % 2 === 0
  const other = Math.abs(round) % data.providerIds.length
  const wallet = isGreat ? data.greatWallet : data.wallets[other]
  const providerId = (isGreat ? data.greatProviderId : data.providerIds[other]) ?? ''
  // What a dashboard asks for: the variants take turns.
  const pick = (variants: string[]) => variants[Math.abs(round >> 1) % variants.length] ?? ''
  switch (view) {
    case 'status':
      return { path: `/settlements/status?wallet=${wallet}` }
    case 'batches':
      return { path: `/settlements/batches?wallet=${wallet}&limit=${pick(['20', '100'])}` }
    case 'revenue': {
      const query = pick([
        'interval=day',
        'interval=month',
        'interval=hour',
        'interval=total',
        'interval=month&groupBy=endpoint',
      ])
      return { path: `/providers/${providerId}/revenue?${query}`, providerId }
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
      return { path: `/providers/${providerId}/payments?${query}`, providerId }
    }
  }
}

const agent = new Agent({ keepAlive: true, maxSockets: 1 })

async function timeRequest(bench: Bench, view: View, round: number): Promise<number> {
  const { path, providerId } = pathOf(bench, view, round)
  const began = performance.now()
  let size = 0
  const status = await fetchText(bench, path, providerId, (chunk) => {
    size += chunk.length
  })
  const ms = performance.now() - began
  if (status !== 200 || size === 0) throw new Error(`${path} answered ${status}`)
  return ms
}

async function timeExport(bench: Bench): Promise<{ rows: number; rowsPerSecond: number; peakRssMb: number }> {
  const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10)
  const path = `/settlements/export?wallet=${bench.data.greatWallet}&start=${day(-400)}&end=${day(0)}&format=csv`
  let rows = -1
  let peak = 0
  const began = performance.now()
  const status = await fetchText(bench, path, undefined, (chunk) => {
    for (let at = chunk.indexOf(10); at !== -1; at = chunk.indexOf(10, at + 1)) rows++
    peak = Math.max(peak, process.memoryUsage.rss())
  })
  const seconds = (performance.now() - began) / 1000
  if (status !== 200 || rows < bench.data.batches * 0.9)
    throw new Error(`export answered ${status} with ${rows} rows`)
  return { rows, rowsPerSecond: rows / seconds, peakRssMb: peak / 2 ** 20 }
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

function percentile(values: number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}

const p99 = (values: number[]) => percentile(values, 0.99)
const round2 = (value: number) => Math.round(value * 100) / 100
