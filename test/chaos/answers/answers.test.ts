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

// Checks that no answer is paid twice, even if connections are cut at any point, and sellers and gateways lie. The runs use every client and
// middleware, with and without tabs. What counts as paid is what the gateway's ledger charges, not what any party reports. `npm run test:chaos --
// answers --runs 100000 --seed 1` is the long form.

const runs = Number(process.env.CHAOS_RUNS ?? 200)
const seed = Number(process.env.CHAOS_SEED ?? 1)
/**
 * Maximum number of runs that share a gateway. After these runs, the test checks the gateway's ledger and starts a
 * new gateway.
 */
const most = 5_000
const parts = Math.ceil(runs / most)
const size = Math.ceil(runs / parts)
/** Number of concurrent runs, more in the long form. */
const atOnce = runs >= most ? 128 : 32
/** Timeout of a request in ms, long enough that only a busy machine exceeds it. */
const patience = 15_000
/** If one of a run's answers takes longer than this many ms, the run may end in any way, as long as no one pays twice. */
const late = 3_000
/** Maximum number of times that a buyer's program sends a request that failed for an unclear reason. */
const calls = 4

/** How a run ended, according to its buyer. */
type Ended = { outcome: 'served' | 'not_charged' | 'unknown'; error?: unknown; wrong?: true }
type Run = { n: number; seller: Seller; buyer: Buyer; what: string; url: string; ended: Ended }

let scene: AnswersScene
let opened = 0
beforeEach(async () => {
  scene = await openAnswersScene(drawFrom(`${seed} gateway ${opened++}`))
})
afterEach(() => scene?.close())

/** Counts of all runs so far, including those of earlier tests. */
const table: Table = new Map()

test.each(
  Array.from({ length: parts }, (_, part) => ({
    first: part * size,
    end: Math.min(runs, (part + 1) * size),
  })),
)(
  'behavior: buyers pay for each answer at most once and receive every stored answer, in runs $first to $end of seed ' +
    seed,
  async ({ first, end }) => {
    const all: Run[] = []
    let next = first
    const startedAt = performance.now()
    // The first runs are sequential, so that shared code is compiled and connections are open before the concurrent
    // ones.
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
    process.stdout.write(`${[progress, ...faults, formatTable(table)].join('\n')}\n`)
    expect(faults).toEqual([])
    // If a lying seller accepts a tab's state while other purchases use the same tab, those purchases may be refused. Such a refusal costs
    // nothing, and is rare.
    expect(verdicts.filter(({ isBehind }) => isBehind).length).toBeLessThanOrEqual(
      Math.ceil(all.length / 200),
    )
    expect(new Set(all.map(({ ended }) => ended.outcome))).toEqual(
      new Set(['served', 'not_charged', 'unknown']),
    )
  },
  86_400_000,
)

/** Plays one purchase, in which a program retries until it has an answer or a final refusal. */
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

/** Returns whether a retry is useless, because a server has refused the request. */
function isFinal(error: unknown): boolean {
  const status =
    error instanceof ClientError ? error.status : (error as { status?: number } | undefined)?.status
  return status !== undefined && status < 500
}

/** Reads the result from either client's answer. `wrapFetch` returns errors as answers. */
function readAnswer({ status, body, isVoided }: Asked, n: number): Ended {
  const isOwn = (body as { run?: unknown } | null)?.run === n
  if (status < 400) return { outcome: 'served', ...(!isOwn && { wrong: true }) }
  // If a failed request couldn't be voided, for example because the gateway is faulty, its buyer is charged. So it counts as served.
  if (isOwn) return { outcome: isVoided ? 'not_charged' : 'served' }
  return { outcome: 'unknown', error: { status } }
}

type Verdict = { times: number; faults: string[]; isBehind?: boolean }

/** Compares a run with the ledger. */
async function judge(run: Run, charged: Set<string>): Promise<Verdict> {
  const { n, seller, buyer, what, ended } = run
  const { presented = new Set<string>(), last } = scene.seen.get(n) ?? {}
  const times = [...presented].filter((key) => charged.has(key)).length
  const faults: string[] = []
  const say = (fault: string) =>
    faults.push(`run ${n} (seed ${seed}), ${seller.name}, ${buyer.name}, ${what}: ${fault} ${run.url}`)
  if (times > 1) say([`paid ${times} times`, ...(scene.seen.get(n)?.story ?? [])].join('\n  '))
  if (ended.outcome === 'not_charged' && times > 0) say('charged, although its client reports that it is not')
  if (seller.isHostile) return { times, faults }
  if (ended.wrong) say('answered with another run’s body')
  const expected = new URL(run.url).searchParams.get('kind') === 'failing' ? 'not_charged' : 'served'
  const isLate = (scene.seen.get(n)?.slowest ?? 0) > late
  const isUnserved =
    what === 'whole' && seller.name !== 'faulty gateway' && ended.outcome !== expected && !isLate
  const { status } = (ended.error ?? {}) as { status?: number }
  const isBehind = isUnserved && buyer.keepsTabs && times === 0 && status === 402
  if (isUnserved && !isBehind) say(`not served, although no fault was injected: ${ended.error}`)
  if (ended.outcome === 'served' || times === 0 || !last) return { times, faults, isBehind }
  // The run is paid but has no answer. Check whether the server had kept the answer.
  const again = await fetch(last.url, last.init)
  await again.text()
  if (again.headers.get('idempotent-replayed') !== null)
    say(`not answered (${ended.error}), although the answer was kept`)
  return { times, faults }
}

/** Counts by seller and by the fault that was injected into the run. */
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

function formatTable(table: Table): string {
  const total = heads.map((_, column) =>
    [...table.values()].reduce((sum, row) => sum + (row[column] ?? 0), 0),
  )
  const lines = [...[...table].sort(([a], [b]) => (a < b ? -1 : 1)), ['all', total] as const]
  return [`| | ${heads.join(' | ')} |`, `|---|${heads.map(() => '---').join('|')}|`]
    .concat(lines.map(([name, row]) => `| ${name} | ${row.join(' | ')} |`))
    .join('\n')
}
