/**
 * Measures how fast requests on tabs are, compared with their floor (HTTP, one recovery, one receipt) and with separate payments, in short
 * rounds that take turns. Also measures their writes to Postgres' log and the gas of their settlement, and if a Citus cluster can be
 * started (test/support/citus.ts), how the work is shared there.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { numberToHex } from 'viem'
import { hasCitus, startCitus } from '../test/support/citus.ts'
import { send } from './gateway/load.ts'
import { connections, createPayments } from './gateway/payments.ts'
import { type Rig, startRig } from './gateway/rig.ts'
import {
  createMeter,
  createRateOf,
  latencyFigures,
  measureLatencies,
  measureRates,
} from './gateway/rounds.ts'
import { createTabRequests, type Shop } from './gateway/tabs.ts'
import { findPostmaster, readWal } from './support/benchEnv.ts'
import { cpuTimeOfTree } from './support/cpuTime.ts'
import { measureTabGas } from './support/gasTabs.ts'
import { atLeast, atMost, type Goals } from './support/goals.ts'
import { median, medianAndSpread, round2, type Say, sumOf } from './support/statistics.ts'

const buyers = 400
const shopCount = 5
/** Number of requests on a tab: fifty to each of the five shops. */
const requestsPerTab = 250
const price = '0.0005'
/** So high that no limit of credit is reached. Reserving a step of credit is still part of the measurement. */
const settings = { TAB_CREDIT_USDC: '10000', TAB_BUDGET_USDC: '10000000' }

export const options = { rounds: 7, requests: 2_000 }

const cpuFigures = ['api', 'apiMain', 'postgres', 'load', 'floor', 'verifyApi', 'verifyPostgres']

export const figures = () => [
  'requestsPerSecond',
  'floorPerSecond',
  'ratioToFloor',
  'ratioToFloorSpread',
  'verifyPerSecond',
  'timesVerify',
  'timesVerifySpread',
  'withHeaderPerSecond',
  'withHeaderRatio',
  ...cpuFigures.map((part) => `cpuUsPerRequest.${part}`),
  ...latencyFigures,
  'walBytesPerRequest',
  'walBytesPerRequestWithPages',
  'gasPerRequest',
  'citus',
]

export const goals = (): Goals => ({
  timesVerify: atLeast(1.4),
  ratioToFloor: atLeast(0.55),
  p99ToP50: atMost(4),
  walBytesPerRequest: atMost(400),
  'gasPerRequest.20x10': atMost(310),
  'gasPerRequest.20x50': atMost(62),
  'gasPerRequest.1x50': atMost(1_000),
  // The coordinator's share of Postgres' CPU time on Citus.
  'citus.coordinatorShare': atMost(0.15),
})

export async function run({ rounds, requests }: typeof options, say: Say): Promise<object> {
  const gasPerRequest = await measureTabGas()
  await using rig = await startRig({ buyers, settings })
  const shops: Shop[] = []
  for (let i = 0; i < shopCount; i++)
    shops.push(await rig.openShop(numberToHex(0x5e20 + i, { size: 20 }), price))
  await rememberSettlements(rig)
  const bench = await prepare(rig, shops, requests)
  const counts = { counted: rounds, warmUps: 2 }
  const { perSecond, ratios, cpuUs } = await measureRates(counts, bench.measureRound, say)
  const requestsPerSecond = perSecond('tabs')
  const latencies = await measureLatencies(requestsPerSecond / 2, rounds, bench.measurePaced, say)
  const walBytesPerRequestWithPages = await bench.measureWal('on')
  const walBytesPerRequest = await bench.measureWal('off')
  await bench.requireAllStored()
  return {
    requestsPerSecond,
    floorPerSecond: perSecond('floor'),
    ...medianAndSpread('ratioToFloor', ratios('tabs', 'floor')),
    verifyPerSecond: perSecond('oneSignature'),
    ...medianAndSpread('timesVerify', ratios('tabs', 'oneSignature')),
    withHeaderPerSecond: perSecond('withHeader'),
    withHeaderRatio: round2(median(ratios('withHeader', 'tabs'))),
    cpuUsPerRequest: {
      api: cpuUs('tabs', 'api'),
      apiMain: cpuUs('tabs', 'apiMain'),
      postgres: cpuUs('tabs', 'postgres'),
      load: cpuUs('tabs', 'load'),
      floor: cpuUs('floor', 'floor'),
      verifyApi: cpuUs('oneSignature', 'api'),
      verifyPostgres: cpuUs('oneSignature', 'postgres'),
    },
    ...latencies,
    walBytesPerRequest,
    walBytesPerRequestWithPages,
    gasPerRequest,
    citus: hasCitus ? await measureCitus(rig, shops, { rounds, requests }, say) : null,
  }
}

/** Records an earlier settlement for each buyer. Otherwise all requests would wait for each other, because new buyers share one budget. */
async function rememberSettlements({ database, buyers: payers, shop }: Rig): Promise<void> {
  await database`
    insert into payer_revenue (provider_id, period, starts_at, chain_id, payer, payments, gross, settled_net, last_accepted_at)
    select ${shop.providerId}, 'all', 'epoch', ${networks.localhost.chainId}, payer, 1, 1, 1, now()
    from unnest(${payers.map(({ address }) => address)}::text[]) payer`
}

async function prepare(rig: Rig, shops: Shop[], requests: number) {
  const { apiPort: port, database } = rig
  const payments = createPayments(rig)
  const tabs = createTabRequests(rig, shops, requestsPerTab, port)
  const { answers } = await send({ ...(await tabs.sign(1)), port, connections })
  const { receipt, ...beside } = JSON.parse(answers[0]?.body.toString() ?? '') as { receipt: string }
  const floor = await rig.startServer('floorServer.ts', ['0', String(JSON.stringify(beside).length)])
  const { rate, pacedRound } = createMeter(rig, floor)

  return {
    async measureRound() {
      const { challenges } = await payments.challenge(requests)
      const one = payments.sign(challenges, 'oneSignature')
      const [onTabs, withHeader] = [await tabs.sign(requests), await tabs.sign(requests, true)]
      return {
        tabs: await rate(onTabs),
        floor: await rate({ requests: onTabs.floorRequests }, floor.port),
        oneSignature: await rate(one),
        withHeader: await rate(withHeader),
      }
    },
    async measurePaced(perSecond: number) {
      const signed = await tabs.sign(requests)
      return pacedRound(perSecond, signed, signed.floorRequests)
    },
    /** Returns how many bytes a request adds to Postgres' WAL after a checkpoint, with `full_page_writes` on or off. */
    async measureWal(pages: 'on' | 'off') {
      await database`alter system set full_page_writes = ${database.unsafe(pages)}`
      await database`select pg_reload_conf()`
      await delay(200)
      const signed = await tabs.sign(5 * requests)
      await database`checkpoint`
      const before = await readWal(database)
      await send({ ...signed, port, connections })
      return Math.round(((await readWal(database)) - before) / signed.requests.length)
    },
    /** Requires that the tab store contains each served request once, and no others. */
    async requireAllStored(): Promise<void> {
      const [{ stored, counted }] = await database<[{ stored: number; counted: number }]>`
        select (select count(*)::int from tabs.request) as stored, (select sum(requests)::int from tabs.tab) as counted`
      if (stored !== tabs.made() || counted !== stored)
        throw new Error(`${tabs.made()} requests were served, ${stored} are stored, ${counted} counted`)
    },
  }
}

/**
 * Measures the same requests with the tab store on a coordinator and two workers. All three run on this machine, so only their shares of the
 * work matter.
 */
async function measureCitus(rig: Rig, shops: Shop[], { rounds, requests }: typeof options, say: Say) {
  await using opened = new AsyncDisposableStack()
  const citus = await startCitus()
  opened.defer(citus.close)
  const { service, port } = await rig.startApi('api-citus', { TABS_DATABASE_URL: citus.url })
  opened.defer(() => service.stop())
  const tabs = createTabRequests(rig, shops, requestsPerTab, port)
  const urls = citus.workers.map((worker) => Object.assign(new URL(citus.url), { port: worker }).href)
  const coordinator = await findPostmaster(rig.open(citus.url, 1))
  const workers = await Promise.all(urls.map((url) => findPostmaster(rig.open(url, 1))))
  const rateOf = createRateOf(async () => ({
    coordinator: await cpuTimeOfTree(coordinator),
    workers: sumOf(await Promise.all(workers.map(cpuTimeOfTree))),
  }))
  const measureRound = async () => {
    const signed = await tabs.sign(requests)
    return { citus: await rateOf(requests, () => send({ ...signed, port, connections })) }
  }
  const { perSecond, cpuUs } = await measureRates({ counted: rounds, warmUps: 2 }, measureRound, say)
  const [coordinatorCpuUs, workerCpuUs] = [cpuUs('citus', 'coordinator'), cpuUs('citus', 'workers')]
  return {
    workers: workers.length,
    requestsPerSecond: perSecond('citus'),
    coordinatorCpuUs,
    workerCpuUs,
    coordinatorShare: round2(coordinatorCpuUs / (coordinatorCpuUs + workerCpuUs)),
  }
}
