import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { reservePort } from '#process/port'
import { Service } from '../../local/stack/service.ts'
import { createTestDatabase } from '../support/database.ts'
import { drawFrom } from '../support/draw.ts'
import { hasPgbouncer, type PgBouncer, startPgbouncer } from '../support/pgbouncer.ts'
import { root } from '../support/processes.ts'
import { type Front, startFront } from '../support/roundRobin.ts'
import { startTestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { openTrade } from './hostile/honest.ts'
import { addKeeper, clockwork, keeperEnv, type Market, openMarket } from './hostile/scene.ts'
import { judge, settleSeconds } from './hostile/verdict.ts'
import { replayable, seeds } from './seeds.ts'

// compose.yaml's processes on one machine: two gateways behind a round-robin proxy, two keepers, both behind PgBouncer, an
// indexer and a reader of its index. Under load, each is killed and started again. `npm test` kills them in three groups;
// `npm run test:chaos -- topology --runs N` one by one, N times over.

const groups = [['api 1', 'keeper 1', 'indexer'], ['PgBouncer'], ['api 2', 'keeper 2', 'reader']] as const
type Name = (typeof groups)[number][number]
/** What is killed and started anew. */
type Part = { kill: () => Promise<void>; start: () => Promise<void> }
/** An answer of a server's own failure, and who was dead at the time. */
type Failure = { status: number; from: string; path: string; dead: Name[] }

let market: Market
let pooler: PgBouncer
let front: Front
let reader: Service
let parts: Record<Name, Part>
const dead = new Set<Name>()
const failures: Failure[] = []
const nameOf = new Map<string, Name>()

beforeAll(async () => {
  if (!hasPgbouncer) return
  const databaseUrl = await createTestDatabase()
  pooler = await startPgbouncer(databaseUrl, { keeperIdleInTransactionMs: Number(keeperEnv.KEEPER_LEASE_MS) })
  front = await startFront(({ status, target, path }) => {
    if (status >= 500) failures.push({ status, from: nameOf.get(target) ?? 'front', path, dead: [...dead] })
  })
  const pooled = (name: 'api' | 'keeper') => ({
    DATABASE_URL: pooler.urlOf(name),
    DATABASE_DIRECT_URL: databaseUrl,
  })
  const apiEnv = { ...pooled('api'), PUBLIC_URL: front.url, WEBHOOK_ALLOW_PRIVATE: 'true' }
  const stack = await startTestStack({
    databaseUrl,
    chain: clockwork,
    env: { api: apiEnv, keeper: { ...keeperEnv, ...pooled('keeper') } },
  })
  const otherApi = await stack.createService('api', apiEnv)
  await otherApi.start()
  const keepers = await addKeeper(stack, { ...keeperEnv, ...pooled('keeper') })
  const port = await reservePort()
  reader = new Service({
    name: 'reader',
    program: [join(root, 'indexer/main.ts'), '--serve'],
    env: { ...stack.env, INDEXER_PORT: String(port) },
    url: `http://127.0.0.1:${port}`,
    readyPath: '/ready',
    logFile: join(stack.logFolder, 'reader.log'),
  })
  await reader.start()
  nameOf.set(stack.api.url, 'api 1').set(otherApi.url, 'api 2')
  front.targets.push(...nameOf.keys())
  market = await openMarket(stack, keepers, 10, front.url)
  const service = (one: Service): Part => ({ kill: () => one.kill(), start: () => one.start() })
  parts = {
    'api 1': service(stack.api),
    'api 2': service(otherApi),
    'keeper 1': service(keepers[0].service),
    'keeper 2': service(keepers[1].service),
    indexer: {
      kill: async () => {
        process.kill(stack.indexer.pid, 'SIGKILL')
        await stack.indexer.exited
      },
      start: () => stack.restartIndexer(),
    },
    reader: service(reader),
    PgBouncer: {
      kill: () => pooler.kill(),
      start: async () => {
        await pooler.start()
        for (const { url } of [stack.api, otherApi, ...keepers.map((one) => one.service)])
          await until('it has its database again', async () => (await fetch(`${url}/readyz`)).ok)
      },
    },
  }
})
afterAll(async () => {
  await reader?.kill()
  await market?.close()
  await front?.close()
  await pooler?.close()
})

describe.skipIf(!hasPgbouncer)('two of each', () => {
  test.each(seeds([1]))(
    'behavior: each process is killed in turn under load by seed %i: nothing is lost, nobody pays twice, nobody else fails',
    (seed) => replayable(seed, 'topology', () => play(wavesOf(seed))),
    600_000 + settleSeconds * 1_000,
  )
})

function wavesOf(seed: number): (readonly Name[])[] {
  if (process.env.CHAOS_RUNS === undefined) return [...groups]
  const draw = drawFrom(`${seed} topology`)
  return groups
    .flat()
    .map((name) => ({ name, at: draw() }))
    .sort((one, other) => one.at - other.at)
    .map(({ name }) => [name])
}

async function play(waves: readonly (readonly Name[])[]): Promise<void> {
  failures.length = 0
  const over = new AbortController()
  const trade = await openTrade(market, over.signal)
  const looking = look(over.signal)
  const served = () => trade.purchases.filter(({ paymentId }) => paymentId !== undefined).length
  const serve = async (more: number) => {
    const goal = served() + more
    await until(`${more} more are served`, () => served() >= goal)
  }
  try {
    await serve(6)
    for (const wave of waves) {
      for (const name of wave) dead.add(name)
      await Promise.all(wave.map((name) => parts[name].kill()))
      // Nobody is served without the database; everybody is without anything else.
      if (wave.includes('PgBouncer')) {
        await until('it is missed', () => failures.some((failure) => failure.dead.includes('PgBouncer')))
      } else await serve(6)
      await Promise.all(wave.map((name) => parts[name].start()))
      for (const name of wave) dead.delete(name)
      await serve(6)
    }
    over.abort()
    await Promise.all([trade.done, looking])
    const verdict = await judge(market, trade)
    console.log(summaryOf(trade.purchases.length, served()))
    expect({ ...verdict, failed: failures.filter((failure) => !isExplained(failure)) }).toEqual({
      ...{
        refused: [],
        unsettled: [],
        starved: [],
        blamed: [],
        misplaced: [],
        unannounced: [],
        costly: [],
        drained: [],
      },
      ...{ held: [], lent: [], retold: [], turnedAway: [], admitted: [], unswept: [] },
      ...{ unread: [], stuck: [], unready: [], failed: [] },
      // Keepers die: what one had claimed waits for its lease.
      overlooked: expect.any(Array),
    })
  } finally {
    over.abort()
    await Promise.allSettled([trade.done, looking])
    await trade.close()
  }
}

/** By whoever had died: a gateway in the middle of a request; the pooler, without which none has a database. */
function isExplained({ from, status, dead: gone }: Failure): boolean {
  if (gone.includes('PgBouncer')) return status === 502 || status === 503
  return status === 502 && gone.some((name) => name === from)
}

/** Somebody who looks at the gateways' views, and at the reader's, all the time. */
async function look(over: AbortSignal): Promise<void> {
  const query = JSON.stringify({ query: '{ batchs(limit: 1) { items { sequence } } }' })
  while (!over.aborted) {
    const path = `/settlements/status?wallet=${market.stack.platformWallet}`
    // What the front answers it reports by itself; no answer at all is worse.
    await fetch(`${front.url}${path}`).then(
      (answer) => answer.text(),
      () => failures.push({ status: 0, from: 'front', path, dead: [...dead] }),
    )
    const gone = [...dead]
    const answer = await fetch(`${reader.url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: query,
    }).catch(() => undefined)
    const { data } = (await answer?.json().catch(() => undefined)) ?? {}
    if (!data && !gone.includes('reader') && !dead.has('reader'))
      failures.push({ status: answer?.status ?? 0, from: 'reader', path: '/graphql', dead: gone })
    await new Promise((resolve) => setTimeout(resolve, 250))
  }
}

function summaryOf(asked: number, served: number): string {
  const counts = Map.groupBy(
    failures,
    ({ from, status, dead: gone }) => `${status} from ${from} while ${gone} was dead`,
  )
  return [
    `${served} of ${asked} served`,
    ...[...counts].map(([what, { length }]) => `${length} × ${what}`),
  ].join('\n')
}
