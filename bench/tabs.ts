/**
 * How fast requests on tabs are, beside the floor under them (HTTP, one recovery, one receipt) and payments of their own, in one run:
 * short rounds that take turns. What they write to Postgres' log, what their settlement costs in gas, and, where a cluster of Citus
 * can be started (test/support/citus.ts), who does the work there.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { numberToHex } from 'viem'
import { networks } from '#protocol/networks'
import { startLocalChain } from '../local/chain/startLocalChain.ts'
import { hasCitus, startCitus } from '../test/support/citus.ts'
import { saturate } from './gateway/load.ts'
import { connections, createPayments } from './gateway/payments.ts'
import { type Rig, startRig } from './gateway/rig.ts'
import { createMeter, describeRates, measureLatencies, type Rate, summaryOf } from './gateway/rounds.ts'
import { createTabRequests } from './gateway/tabs.ts'
import { cpuTimeOfTree } from './support/cpuTime.ts'
import { measureTabGas } from './support/gasTabs.ts'
import { findPostmasterAt } from './support/ground.ts'
import { inTurns, median, medianAndSpread, medianOf, round2 } from './support/statistics.ts'

const buyers = 400
const shopCount = 5
/** To each of the five shops fifty. */
const requestsPerTab = 250
const price = '0.0005'
/** So high that no limit of credit is reached: reserving a step of credit is part of the measurement. */
const settings = { TAB_CREDIT_USDC: '10000', TAB_BUDGET_USDC: '10000000' }

export const options = { rounds: 7, requests: 2_000, 'without-citus': false }

type Round = Record<'tabs' | 'floor' | 'oneSignature' | 'withHeader', Rate>

export async function run(
  { rounds, requests, 'without-citus': withoutCitus }: typeof options,
  say: (line: string) => void,
): Promise<object> {
  const gasPerRequest = await measureGas()
  await using rig = await startRig({ buyers, settings })
  const shops: Awaited<ReturnType<Rig['openShop']>>[] = []
  for (let i = 0; i < shopCount; i++)
    shops.push(await rig.openShop(numberToHex(0x5e20 + i, { size: 20 }), price))
  await rememberSettlements(rig)
  const kinds = await prepare(rig, shops, requests)
  const { all } = await inTurns(['all'], { counted: rounds, warmUps: 2 }, async (_, round) => {
    const measured = await kinds.measureRound()
    say(`round ${round + 1}: ${describe(measured)}`)
    return measured
  })
  const rates = summarize(all)
  const latencies = await measureLatencies(rates.requestsPerSecond / 2, rounds, kinds.measurePaced, say)
  const wal = await kinds.measureWal()
  await kinds.requireAllStored()
  return {
    ...rates,
    ...latencies,
    ...wal,
    gasPerRequest,
    citus: !withoutCitus && hasCitus ? await measureCitus(rig, shops, { rounds, requests }, say) : null,
  }
}

/** Something of each buyer settled before: who is new draws on a budget that all new ones share, one after the other. */
async function rememberSettlements({ database, buyers: payers, shop }: Rig): Promise<void> {
  await database`
    insert into payer_revenue (provider_id, period, starts_at, chain_id, payer, payments, gross, settled_net, last_accepted_at)
    select ${shop.providerId}, 'all', 'epoch', ${networks.localhost.chainId}, payer, 1, 1, 1, now()
    from unnest(${payers.map(({ address }) => address)}::text[]) payer`
}

async function measureGas() {
  await using chain = await startLocalChain({ blockTimeMs: 0 })
  return await measureTabGas(chain)
}

async function prepare(rig: Rig, shops: Parameters<typeof createTabRequests>[1], requests: number) {
  const payments = createPayments(rig)
  const tabs = createTabRequests(rig, shops, { buyers: rig.buyers, requestsPerTab, port: rig.apiPort })
  const first = await tabs.sign(1)
  const { answers } = await saturate({ port: rig.apiPort, requests: first.requests, connections })
  first.require(answers)
  const { receipt, ...beside } = JSON.parse(answers[0]?.body.toString() ?? '') as { receipt: string }
  const floorServer = await rig.startServer('floorServer.ts', ['0', String(JSON.stringify(beside).length)])
  const { rate, floorRate, pacedRound } = createMeter(rig, floorServer)

  async function measureRound(): Promise<Round> {
    const { challenges } = await payments.challenge(requests)
    const one = payments.sign(challenges, 'oneSignature')
    const [onTabs, withHeader] = [await tabs.sign(requests), await tabs.sign(requests, true)]
    return {
      tabs: await rate(requests, () => tabs.send(onTabs)),
      floor: await floorRate(onTabs.floorRequests),
      oneSignature: await rate(requests, () => payments.verify(one)),
      withHeader: await rate(requests, () => tabs.send(withHeader)),
    }
  }

  return {
    measureRound,
    measurePaced: async (perSecond: number) => pacedRound(perSecond, await tabs.sign(requests)),
    /** What is written to Postgres' log a request: from a checkpoint on, and without the whole pages that follow on it. */
    async measureWal() {
      const { database } = rig
      const measure = async (pages: 'on' | 'off') => {
        await database`alter system set full_page_writes = ${database.unsafe(pages)}`
        await database`select pg_reload_conf()`
        await delay(200)
        const signed = await tabs.sign(5 * requests)
        await database`checkpoint`
        const position = async () => {
          const [row] = await database<[{ wal: number }]>`
            select (pg_current_wal_insert_lsn() - '0/0')::float8 as wal`
          return row.wal
        }
        const before = await position()
        await tabs.send(signed)
        return Math.round(((await position()) - before) / signed.requests.length)
      }
      const walBytesPerRequestWithPages = await measure('on')
      return { walBytesPerRequest: await measure('off'), walBytesPerRequestWithPages }
    },
    /** Each request that was served is there once, and none that wasn't. */
    async requireAllStored(): Promise<void> {
      const [row] = await rig.database<[{ stored: number; counted: number }]>`
        select (select count(*)::int from tabs.request) as stored, (select sum(requests)::int from tabs.tab) as counted`
      const { stored, counted } = row
      if (stored !== tabs.made() || counted !== stored)
        throw new Error(`${tabs.made()} requests were served, ${stored} are stored, ${counted} counted`)
    },
  }
}

function describe(round: Round): string {
  const times = (kind: keyof Round) => (round.tabs.perSecond / round[kind].perSecond).toFixed(2)
  return `${times('floor')} of the floor, ${times('oneSignature')} of payments of their own${describeRates(round)}`
}

function summarize(rounds: Round[]) {
  const { perSecond, ratios, cpuUs } = summaryOf(rounds)
  return {
    requestsPerSecond: perSecond('tabs'),
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
  }
}

/** The same requests with the tab store on a coordinator and two workers, all on this machine, so that only the shares count. */
async function measureCitus(
  rig: Rig,
  shops: Parameters<typeof createTabRequests>[1],
  { rounds, requests }: { rounds: number; requests: number },
  say: (line: string) => void,
) {
  const citus = await startCitus()
  try {
    const api = await rig.startApi('api-citus', { TABS_DATABASE_URL: citus.url })
    try {
      const tabs = createTabRequests(rig, shops, { buyers: rig.buyers, requestsPerTab, port: api.port })
      const [coordinator = 0, ...workers] = await Promise.all(
        [citus.url, ...citus.workers.map((port) => withPort(citus.url, port))].map(findPostmasterAt),
      )
      const sumOf = async (pids: readonly number[]) =>
        (await Promise.all(pids.map(cpuTimeOfTree))).reduce((sum, us) => sum + us, 0)
      const cpu = async () => ({ coordinator: await sumOf([coordinator]), workers: await sumOf(workers) })
      const { all } = await inTurns(['all'], { counted: rounds, warmUps: 2 }, async (_, round) => {
        const signed = await tabs.sign(requests)
        const before = await cpu()
        const perSecond = await tabs.send(signed)
        const after = await cpu()
        const used = {
          perSecond,
          coordinatorUs: (after.coordinator - before.coordinator) / requests,
          workerUs: (after.workers - before.workers) / requests,
        }
        say(
          `Citus, round ${round + 1}: ${perSecond.toFixed()}/s, CPU µs a request: coordinator ${used.coordinatorUs.toFixed()}, workers ${used.workerUs.toFixed()}`,
        )
        return used
      })
      return {
        workers: workers.length,
        requestsPerSecond: Math.round(medianOf(all, ({ perSecond }) => perSecond)),
        coordinatorCpuUs: Math.round(medianOf(all, ({ coordinatorUs }) => coordinatorUs)),
        workerCpuUs: Math.round(medianOf(all, ({ workerUs }) => workerUs)),
        coordinatorShare: round2(
          medianOf(all, ({ coordinatorUs, workerUs }) => coordinatorUs / (coordinatorUs + workerUs)),
        ),
      }
    } finally {
      await api.service.stop()
    }
  } finally {
    await citus.close()
  }
}

function withPort(url: string, port: number): string {
  const at = new URL(url)
  at.port = String(port)
  return at.href
}
