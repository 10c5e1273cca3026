import { expect } from 'vitest'
import { drawFrom } from '../../support/draw.ts'
import { until } from '../../support/until.ts'
import { openTrade } from './honest.ts'
import type { Scene } from './scene.ts'
import { judge, nothingWrong } from './verdict.ts'

// Kills and restarts each process of the scene under honest load. `npm test` kills them in three groups. `npm run
// test:chaos -- topology --runs N` kills them one by one, N times.

const groups = [['api 1', 'keeper 1', 'indexer'], ['PgBouncer'], ['api 2', 'keeper 2', 'reader']] as const
type Name = (typeof groups)[number][number]
/** A process that the test kills and restarts. */
type Part = { kill: () => Promise<void>; start: () => Promise<void> }
/** An answer with a server error, and the processes that were dead at the time. */
type Failure = { status: number; from: string; path: string; dead: string[] }

function partsOf({ hosts, processes, stack, pooler }: Scene): Record<Name, Part> {
  if (!pooler) throw new Error('no PgBouncer')
  const services = processes.map(({ name, service }): [string, Part] => [name, service])
  return {
    ...(Object.fromEntries(services) as Record<Exclude<Name, 'indexer' | 'PgBouncer'>, Part>),
    indexer: {
      kill: async () => {
        process.kill(stack.indexer.pid, 'SIGKILL')
        await stack.indexer.exited
      },
      start: () => stack.restartIndexer(),
    },
    PgBouncer: {
      kill: () => pooler.kill(),
      start: async () => {
        await pooler.start()
        for (const { service } of hosts)
          await until(
            'the gateway or keeper has its database again',
            async () => (await fetch(`${service.url}/readyz`)).ok,
          )
      },
    },
  }
}

function wavesOf(seed: number): (readonly Name[])[] {
  if (process.env.CHAOS_RUNS === undefined) return [...groups]
  const draw = drawFrom(`${seed} topology`)
  return groups
    .flat()
    .map((name) => ({ name, at: draw() }))
    .sort((one, other) => one.at - other.at)
    .map(({ name }) => [name])
}

export async function playTopology(scene: Scene, seed: number): Promise<void> {
  const { front, killed } = scene
  const parts = partsOf(scene)
  const nameOf = new Map(scene.hosts.map(({ name, service }) => [service.url, name]))
  const failures: Failure[] = []
  const fail = (failure: Omit<Failure, 'dead'>, dead = [...killed]) => failures.push({ ...failure, dead })
  front.onAnswer = ({ status, target, path }) => {
    if (status >= 500) fail({ status, from: nameOf.get(target) ?? 'front', path })
  }
  const over = new AbortController()
  const trade = await openTrade(scene, over.signal)
  const looking = look(scene, over.signal, fail)
  const served = () => trade.purchases.filter(({ paymentId }) => paymentId !== undefined).length
  const serve = async (more: number) => {
    const goal = served() + more
    await until(`${more} more are served`, () => served() >= goal)
  }
  try {
    await serve(6)
    for (const wave of wavesOf(seed)) {
      for (const name of wave) killed.add(name)
      await Promise.all(wave.map((name) => parts[name].kill()))
      // Without PgBouncer no process reaches the database, so requests fail. Without any other process, buyers are served.
      if (wave.includes('PgBouncer')) {
        await until('a request fails for lack of the database', () =>
          failures.some((failure) => failure.dead.includes('PgBouncer')),
        )
      } else await serve(6)
      await Promise.all(wave.map((name) => parts[name].start()))
      for (const name of wave) killed.delete(name)
      await serve(6)
    }
    over.abort()
    await Promise.all([trade.done, looking])
    const verdict = await judge(scene, trade)
    console.log(summaryOf(failures, trade.purchases.length, served()))
    const failed = failures.filter((failure) => !isExplained(failure))
    // A killed keeper's claimed payments wait until its lease expires. In the meantime, batches are claimed without them.
    expect({ ...verdict, failed, dead: scene.readDead() }).toEqual({
      ...nothingWrong,
      overlooked: expect.any(Array),
      failed: [],
      dead: [],
    })
  } finally {
    over.abort()
    await Promise.allSettled([trade.done, looking])
    await trade.close()
  }
}

/**
 * Returns whether a dead process explains a failure: a gateway that died during a request, or the pooler, without which
 * no process has a database.
 */
function isExplained({ from, status, dead: gone }: Failure): boolean {
  if (gone.includes('PgBouncer')) return status === 502 || status === 503
  return status === 502 && gone.some((name) => name === from)
}

/** Reads the gateways' and the reader's views repeatedly. */
async function look(
  { gatewayUrl, reader, stack, killed }: Scene,
  over: AbortSignal,
  fail: (failure: Omit<Failure, 'dead'>, dead?: string[]) => void,
): Promise<void> {
  const query = JSON.stringify({ query: '{ batchs(limit: 1) { items { sequence } } }' })
  while (!over.aborted) {
    const path = `/settlements/status?wallet=${stack.platformWallet}`
    // The front server reports error answers itself, so report only a missing answer here.
    await fetch(`${gatewayUrl}${path}`).then(
      (answer) => answer.text(),
      () => fail({ status: 0, from: 'front', path }),
    )
    const gone = [...killed]
    const answer = await fetch(`${reader.url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: query,
    }).catch(() => undefined)
    const { data } = (await answer?.json().catch(() => undefined)) ?? {}
    if (!data && !gone.includes('reader') && !killed.has('reader'))
      fail({ status: answer?.status ?? 0, from: 'reader', path: '/graphql' }, gone)
    await new Promise((resolve) => setTimeout(resolve, 250))
  }
}

function summaryOf(failures: readonly Failure[], asked: number, served: number): string {
  const counts = Map.groupBy(
    failures,
    ({ from, status, dead: gone }) => `${status} from ${from} while ${gone} was dead`,
  )
  return [
    `${served} of ${asked} served`,
    ...[...counts].map(([what, { length }]) => `${length} × ${what}`),
  ].join('\n')
}
