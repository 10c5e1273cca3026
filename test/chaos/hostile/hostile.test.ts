import { setTimeout as wait } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { drawFrom } from '../../support/draw.ts'
import { hasPgbouncer } from '../../support/pgbouncer.ts'
import { until } from '../../support/until.ts'
import { replayable, seeds } from '../seeds.ts'
import { type AdversaryName, adversaries } from './adversaries.ts'
import { openTrade, type Trade } from './honest.ts'
import { hooks } from './hooks.ts'
import { networkCheats } from './networkForgers.ts'
import { passCheats } from './passThieves.ts'
import { openScene, type Scene } from './scene.ts'
import { tabCheats } from './tabCheats.ts'
import { playTopology } from './topology.ts'
import { judge, nothingWrong, settleSeconds } from './verdict.ts'
import { watchQueue, watchReadiness } from './watch.ts'
import { writers } from './writers.ts'

// Runs two tests on one complete stack: first topology.ts, then all players at once. The players are honest buyers, with and without tabs, an
// x402 seller, and every adversary of adversaries.ts. `npm run test:chaos -- hostile` is the long form: it takes an hour, or `--minutes N`.
// `--only liars,tarpits` limits it to these adversaries.
//
// Each cheat below was tried without the code's protection against it, and then succeeded. The list says what the code did without it:
// - emptyTabs: concurrent requests with the same tab ID share one reservation of credit even if their payers differ, so empty wallets are served;
// - poisonedTabs: a tab opens although another payer has its ID or a payment has its nonce, or such a tab is never added to the ledger because
//   `take_tabs` throws for it;
// - ownPlatforms: the ledger doesn't compare the platform in the event with ours, so the tab counts as settled without a fee;
// - newcomers: a new tab's first step is 32 prices instead of one, so that the budget for new payers runs out, or test money is drawn from the
//   budget for real money;
// - longTabs: the gateway and `tabs.accept` don't limit the lines that bought nothing;
// - oddDeclarations: the facilitator calls `String()` on a declared value without a catch, so /settle answers 500;
// - oddCalls: the tool seller converts a tool's name to a string, and its promise has no catch, so its process ends;
// - listers: an answer contains the whole document of each endpoint, however long.

const { CHAOS_RUNS, HOSTILE_MINUTES, HOSTILE_ONLY } = process.env
const minutes = Number(HOSTILE_MINUTES ?? 0.3)
const all = Object.keys(adversaries) as AdversaryName[]
/** Faults of our hosts and nodes, and of the gas price, as opposed to hostile parties. */
const weather: readonly AdversaryName[] = [
  'gasSpikes',
  'frozenHosts',
  'silentDatabases',
  'cutSessions',
  'faultyNodes',
]
/** Adversaries that must make at least one attempt; otherwise their play proves nothing. */
const cheats: readonly string[] = [
  'oldStates',
  ...Object.keys(tabCheats),
  ...Object.keys(writers),
  ...Object.keys(hooks),
  ...Object.keys(networkCheats),
  ...Object.keys(passCheats),
]
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
  scene = await openScene(seeds([1]).length * Math.ceil(220 + minutes * 200))
})
afterAll(() => scene?.close())

// test/longForm.ts selects one of these two tests by its name.
describe.skipIf(!hasPgbouncer)('topology', () => {
  test.each(seeds([1]))(
    'behavior: while each process is killed in turn, the system loses nothing, charges no one twice and fails only requests that need the killed process, seed %i',
    (seed) =>
      replayable(seed, CHAOS_RUNS ? 'topology --runs 1' : 'topology', () => playTopology(scene, seed)),
    600_000 + settleSeconds * 1_000,
  )
})

describe('hostile', () => {
  for (const { invited, minutes } of plays)
    test.each(seeds([1]))(
      `behavior: the system serves and pays all honest parties in time despite ${minutes} minutes of ${invited.join(', ')}, seed %i`,
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
  const holds = watchQueue(scene, closed.signal)
  const trade = await openTrade(scene, left.signal, { sellsByX402: true, onTabs: true })
  const others = ready.map((play) => play(over.signal))
  const isWeathered = invited.some((name) => weather.includes(name))
  const findIdle = () => invited.filter((name) => cheats.includes(name) && !scene.acted.has(name))
  try {
    await wait(minutes * 60_000)
    // If the time runs out, the verdict below names what is missing.
    if (!isWeathered)
      await until('all cheats have tried', () => findIdle().length === 0, settleSeconds * 1_000).catch(
        () => {},
      )
    over.abort()
    await Promise.all(others)
    left.abort()
    await trade.done
    const verdict = await judge(scene, trade)
    closed.abort()
    console.log(summaryOf(trade))
    // While a host is frozen, payments reach the database late, and some strangers don't get as far as an attempt.
    expect({ ...verdict, idle: findIdle(), lies: await readiness, dead: scene.readDead() }).toEqual({
      ...nothingWrong,
      overlooked: isWeathered ? expect.any(Array) : [],
      idle: isWeathered ? expect.any(Array) : [],
      // The lists come from the database, which may be down.
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

/** Merges equal events into one line with their number. */
function countEvents(events: readonly string[]): string[] {
  return [...Map.groupBy(events, (one) => one)].map(([one, { length }]) =>
    length > 1 ? `${length} times: ${one}` : one,
  )
}
