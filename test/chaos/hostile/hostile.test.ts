import { setTimeout as wait } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { drawFrom } from '../../support/draw.ts'
import { hasPgbouncer } from '../../support/pgbouncer.ts'
import { until } from '../../support/until.ts'
import { replayable, seeds } from '../seeds.ts'
import { type AdversaryName, adversaries } from './adversaries.ts'
import { openTrade, type Trade } from './honest.ts'
import { openScene, type Scene } from './scene.ts'
import { tabCheats } from './tabCheats.ts'
import { playTopology } from './topology.ts'
import { judge, nothingWrong, settleSeconds } from './verdict.ts'
import { watchHeld, watchReadiness } from './watch.ts'
import { writers } from './writers.ts'

// On one whole stack, first topology.ts, and then everybody at once: honest buyers, on tabs and not, and an x402 seller, and beside
// them wallets that lie, buyers who cancel or move their money, or settle an old state of their tab, payments of strangers to
// themselves, sellers who want to hear success twice, callers that hold connections, webhooks that never answer, junk, gas that nobody
// can pay, keeper hosts that freeze, databases that fall silent or break off, and nodes that are gone. `npm run test:chaos -- hostile` is the long form: an hour, or
// `--minutes N`, or `--only liars,tarpits`.

const { CHAOS_RUNS, HOSTILE_MINUTES, HOSTILE_ONLY } = process.env
const minutes = Number(HOSTILE_MINUTES ?? 0.3)
const all = Object.keys(adversaries) as AdversaryName[]
/** What befalls our hosts, nodes and the price of gas, whoever trades. */
const weather: readonly AdversaryName[] = [
  'gasSpikes',
  'frozenHosts',
  'silentDatabases',
  'cutSessions',
  'faultyNodes',
]
/** Plays that prove nothing unless they get as far as trying. */
const cheats: readonly string[] = ['oldStates', ...Object.keys(tabCheats), ...Object.keys(writers)]
const strangers = all.filter((name) => !weather.includes(name))
type Play = { invited: readonly AdversaryName[]; minutes: number }
const plays: Play[] =
  HOSTILE_ONLY === undefined
    ? [
        { invited: strangers, minutes: Math.max(0.2, minutes / 6) },
        { invited: all, minutes },
      ]
    : [{ invited: HOSTILE_ONLY.split(',') as AdversaryName[], minutes }]

let scene: Scene
beforeAll(async () => {
  scene = await openScene(seeds([1]).length * Math.ceil(160 + minutes * 200))
})
afterAll(() => scene?.close())

// Where the long form is asked for one of these two, it leaves the other out by its name.
describe.skipIf(!hasPgbouncer)('topology', () => {
  test.each(seeds([1]))(
    'behavior: each process is killed in turn under load by seed %i: nothing is lost, nobody pays twice, nobody else fails',
    (seed) =>
      replayable(seed, CHAOS_RUNS ? 'topology --runs 1' : 'topology', () => playTopology(scene, seed)),
    600_000 + settleSeconds * 1_000,
  )
})

describe('hostile', () => {
  for (const { invited, minutes } of plays)
    test.each(seeds([1]))(
      `behavior: ${minutes} minutes of ${invited.join(', ')} by seed %i: everybody honest is served and paid in turn`,
      (seed) =>
        replayable(seed, `hostile --minutes ${minutes} --only ${invited}`, () =>
          play(seed, { invited, minutes }),
        ),
      minutes * 60_000 + 60_000 + 3 * settleSeconds * 1_000,
    )
})

async function play(seed: number, { invited, minutes }: Play): Promise<void> {
  scene.events.length = 0
  scene.won.length = 0
  scene.acted.clear()
  const [over, left, closed] = [new AbortController(), new AbortController(), new AbortController()]
  const ready = await Promise.all(
    invited.map((name) => adversaries[name](scene, drawFrom(`${seed} ${name}`))),
  )
  const readiness = watchReadiness(scene, closed.signal)
  const holds = watchHeld(scene, closed.signal)
  const trade = await openTrade(scene, left.signal, { sellsByX402: true, onTabs: true })
  const others = ready.map((play) => play(over.signal))
  const isWeathered = invited.some((name) => weather.includes(name))
  const findIdle = () => invited.filter((name) => cheats.includes(name) && !scene.acted.has(name))
  try {
    await wait(minutes * 60_000)
    // What is still missing when the time is up is reported below.
    if (!isWeathered)
      await until('all have tried', () => findIdle().length === 0, settleSeconds * 1_000).catch(() => {})
    over.abort()
    await Promise.all(others)
    left.abort()
    await trade.done
    const verdict = await judge(scene, trade)
    closed.abort()
    console.log(summaryOf(trade))
    // Of what is accepted while a host stands still, the database hears later, and strangers may not get far meanwhile.
    expect({ ...verdict, idle: findIdle(), lies: await readiness, dead: scene.readDead() }).toEqual({
      ...nothingWrong,
      overlooked: isWeathered ? expect.any(Array) : [],
      idle: isWeathered ? expect.any(Array) : [],
      // The lists come from the database, which may be away.
      unread: isWeathered ? verdict.unread.filter((one) => one.endsWith(': 503')) : [],
      lies: [],
      dead: [],
    })
  } finally {
    for (const each of [over, left, closed]) each.abort()
    await Promise.allSettled([readiness, holds, trade.done, ...others])
    await trade.close()
  }
}

function summaryOf({ purchases, sales }: Trade): string {
  const outcomes = Map.groupBy(purchases, ({ refusal }) => refusal ?? 'served')
  const counts = [...outcomes].map(([outcome, { length }]) => `${length} ${outcome}`)
  const heads = [
    `honest: ${counts.join(', ')}; ${sales.length} sold by x402; hostile payers: ${scene.liars.size}`,
    ...countEvents(scene.events),
  ]
  return heads.join('\n')
}

/** The same happened many times: told once, with its number. */
function countEvents(events: readonly string[]): string[] {
  return [...Map.groupBy(events, (one) => one)].map(([one, { length }]) =>
    length > 1 ? `${length} times: ${one}` : one,
  )
}
