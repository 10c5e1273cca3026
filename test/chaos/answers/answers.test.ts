import { ClientError } from '@tollkeeper/sdk/client/errors'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { drawFrom } from '../../support/draw.ts'
import { type Cut, cuts } from './cutter.ts'
import {
  type AnswersScene,
  type Asked,
  type Buyer,
  openAnswersScene,
  readLedger,
  type Seller,
} from './scene.ts'
import { kinds, lies } from './sellers.ts'

// An answer is never paid twice: connections that are cut at every point, sellers and gateways that lie, by every client and
// middleware, on tabs and not. What is judged is what the gateway's ledger charges, not what anybody says.
// `npm run test:chaos -- answers --runs 100000 --seed 1` is the long form.

const runs = Number(process.env.CHAOS_RUNS ?? 200)
const seed = Number(process.env.CHAOS_SEED ?? 1)
/** Runs that share a gateway. Its ledger is judged before the next ones get a new one. */
const most = 5_000
const parts = Math.ceil(runs / most)
const size = Math.ceil(runs / parts)
/** A long form has more of them wait beside each other. */
const atOnce = runs >= most ? 128 : 32
/** How long a buyer waits, milliseconds: for as long as nothing is wrong but a busy machine. */
const patience = 15_000
/** What takes so long on a busy machine may end in other ways, as long as nobody pays twice, milliseconds. */
const late = 3_000
/** How often a program asks again, as programs do, whose request has failed for a reason that isn't clear. */
const calls = 4

/** How a run ended: by its buyer's word, and with what. */
type Ended = { outcome: 'served' | 'not_charged' | 'unknown'; error?: unknown; wrong?: true }
type Run = { n: number; seller: Seller; buyer: Buyer; what: string; url: string; ended: Ended }

let scene: AnswersScene
let opened = 0
beforeEach(async () => {
  scene = await openAnswersScene(drawFrom(`${seed} gateway ${opened++}`))
})
afterEach(() => scene?.close())

/** Of all parts so far. */
const table: Table = new Map()

test.each(
  Array.from({ length: parts }, (_, part) => ({
    first: part * size,
    end: Math.min(runs, (part + 1) * size),
  })),
)(
  'behavior: runs $first to $end of seed ' +
    `${seed}: none is paid twice, and none stays unanswered whose answer was kept`,
  async ({ first, end }) => {
    const all: Run[] = []
    let next = first
    const startedAt = performance.now()
    // What all share is compiled and connected before they come at once.
    while (next < Math.min(end, first + 10)) all.push(await play(next++))
    await Promise.all(
      Array.from({ length: atOnce }, async () => {
        while (next < end) all.push(await play(next++))
      }),
    )
    const perSecond = (all.length / (performance.now() - startedAt)) * 1000
    const charged = await readLedger(scene.gateway)
    const verdicts = await Promise.all(all.map((run) => judge(run, charged)))
    const faults = verdicts.flatMap((verdict) => verdict.faults)
    addTo(table, all, verdicts)
    const progress = `${end} of ${runs} runs, ${perSecond.toFixed(0)} a second, ${faults.length} faults in these`
    process.stdout.write(`${[progress, ...faults, tell(table)].join('\n')}\n`)
    expect(faults).toEqual([])
    // What a liar takes of a tab while others buy on it, they may be refused for. It costs nothing, and is rare.
    expect(verdicts.filter(({ isBehind }) => isBehind).length).toBeLessThanOrEqual(
      Math.ceil(all.length / 200),
    )
    expect(new Set(all.map(({ ended }) => ended.outcome))).toEqual(
      new Set(['served', 'not_charged', 'unknown']),
    )
  },
  86_400_000,
)

/** Plays one purchase: a program that asks until it has an answer, or is told not to. */
async function play(n: number): Promise<Run> {
  const draw = drawFrom(`${seed} ${n}`)
  const pick = <Item>(items: readonly Item[]): Item => items[Math.floor(draw() * items.length)] as Item
  const { sellers, buyers, seen } = scene
  const seller = pick(sellers)
  const buyer = pick(buyers)
  const path = buyer.keepsTabs && draw() < 0.5 ? '/small' : '/own'
  const query = new URLSearchParams({ run: String(n), kind: pick(kinds) })
  if (seller.isHostile) query.set('lie', pick(lies))
  const cutting: (Cut | undefined)[] = []
  while (!seller.isHostile && draw() < 0.55 && cutting.length < 5)
    cutting.push(draw() < 0.9 ? pick(cuts) : undefined)
  seen.set(n, { presented: new Set(), cuts: cutting, story: [], slowest: 0 })
  const what = seller.isHostile
    ? String(query.get('lie'))
    : cutting.length === 0
      ? 'whole'
      : `cut ${cutting[0] ?? 'later'}`
  const url = `${seller.url}${path}?${query}`
  const isPost = draw() < 0.3
  const init = { method: isPost ? 'POST' : 'GET', ...(isPost && { body: `{"n":${n}}` }), timeout: patience }
  let ended: Ended = { outcome: 'unknown' }
  for (let call = 0; call < calls; call++) {
    try {
      ended = readAnswer(await buyer.ask(url, init), n)
    } catch (error) {
      ended = { outcome: error instanceof ClientError ? error.outcome : 'unknown', error }
    }
    if (ended.outcome !== 'unknown' || isFinal(ended.error)) break
  }
  return { n, seller, buyer, what, url, ended }
}

/** Whether asking again is no use: somebody has said no. */
function isFinal(error: unknown): boolean {
  const status =
    error instanceof ClientError ? error.status : (error as { status?: number } | undefined)?.status
  return status !== undefined && status < 500
}

/** What an answer of either client says: `wrapFetch` gives errors as answers. */
function readAnswer({ status, body, isVoided }: Asked, n: number): Ended {
  const isOwn = (body as { run?: unknown } | null)?.run === n
  if (status < 400) return { outcome: 'served', ...(!isOwn && { wrong: true }) }
  // A failure that couldn't be voided, where the gateway is faulty say, says that it is charged.
  if (isOwn) return { outcome: isVoided ? 'not_charged' : 'served' }
  return { outcome: 'unknown', error: { status } }
}

type Verdict = { times: number; faults: string[]; isBehind?: boolean }

/** Holds a run against the ledger. */
async function judge(run: Run, charged: Set<string>): Promise<Verdict> {
  const { n, seller, buyer, what, ended } = run
  const { presented = new Set<string>(), last } = scene.seen.get(n) ?? {}
  const times = [...presented].filter((key) => charged.has(key)).length
  const faults: string[] = []
  const say = (fault: string) =>
    faults.push(`run ${n} (seed ${seed}), ${seller.name}, ${buyer.name}, ${what}: ${fault} ${run.url}`)
  if (times > 1) say([`paid ${times} times`, ...(scene.seen.get(n)?.story ?? [])].join('\n  '))
  if (ended.outcome === 'not_charged' && times > 0) say('charged, although its client says that it is not')
  if (seller.isHostile) return { times, faults }
  if (ended.wrong) say('answered with something else')
  const expected = new URL(run.url).searchParams.get('kind') === 'failing' ? 'not_charged' : 'served'
  const isLate = (scene.seen.get(n)?.slowest ?? 0) > late
  const isUnserved =
    what === 'whole' && seller.name !== 'faulty gateway' && ended.outcome !== expected && !isLate
  const { status } = (ended.error ?? {}) as { status?: number }
  const isBehind = isUnserved && buyer.keepsTabs && times === 0 && status === 402
  if (isUnserved && !isBehind) say(`not served, although nothing befell it: ${ended.error}`)
  if (ended.outcome === 'served' || times === 0 || !last) return { times, faults, isBehind }
  // Paid, and not answered: was the answer to be had?
  const again = await fetch(last.url, last.init)
  await again.text()
  if (again.headers.get('idempotent-replayed') !== null)
    say(`not answered (${ended.error}), although the answer was kept`)
  return { times, faults }
}

/** Counts by seller and what befell the run. */
type Table = Map<string, number[]>

const heads = ['runs', 'served', 'not charged', 'unknown', 'paid once', 'of them unanswered', 'paid twice']

function addTo(table: Table, all: readonly Run[], verdicts: readonly { times: number }[]): void {
  for (const [index, { seller, what, ended }] of all.entries()) {
    const times = verdicts[index]?.times ?? 0
    const name = seller.isHostile ? `hostile: ${what}` : `${seller.name}: ${what}`
    const row = table.get(name) ?? heads.map(() => 0)
    table.set(name, row)
    const columns = [
      true,
      ended.outcome === 'served',
      ended.outcome === 'not_charged',
      ended.outcome === 'unknown',
      times === 1,
      times === 1 && ended.outcome !== 'served',
      times > 1,
    ]
    for (const [column, counts] of columns.entries()) if (counts) row[column] = (row[column] ?? 0) + 1
  }
}

function tell(table: Table): string {
  const total = heads.map((_, column) =>
    [...table.values()].reduce((sum, row) => sum + (row[column] ?? 0), 0),
  )
  const lines = [...[...table].sort(([a], [b]) => (a < b ? -1 : 1)), ['all', total] as const]
  return [`| | ${heads.join(' | ')} |`, `|---|${heads.map(() => '---').join('|')}|`]
    .concat(lines.map(([name, row]) => `| ${name} | ${row.join(' | ')} |`))
    .join('\n')
}
