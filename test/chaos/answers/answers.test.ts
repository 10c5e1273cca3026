import { afterAll, beforeAll, expect, test } from 'vitest'
import { ClientError } from '#sdk/client/errors'
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
// `npm run test:chaos -- answers --runs 100000 --seed 1` is the long form; without it, so many runs:

const runs = Number(process.env.CHAOS_RUNS ?? 400)
const seed = Number(process.env.CHAOS_SEED ?? 1)
/** A long form has more of them wait beside each other. */
const atOnce = runs > 5_000 ? 128 : 32
/** How long a buyer waits, milliseconds: for as long as nothing is wrong but a busy machine. */
const patience = 15_000
/** How often a program asks again, as programs do, whose request has failed for a reason that isn't clear. */
const calls = 4

/** How a run ended: by its buyer's word, and with what. */
type Ended = { outcome: 'served' | 'not_charged' | 'unknown'; error?: unknown; wrong?: true }
type Run = { n: number; seller: Seller; buyer: Buyer; what: string; url: string; ended: Ended }

let scene: AnswersScene
beforeAll(async () => {
  scene = await openAnswersScene(drawFrom(`${seed} gateway`))
})
afterAll(() => scene?.close())

test(`behavior: ${runs} runs from seed ${seed}: none is paid twice, and none stays unanswered whose answer was kept`, async () => {
  const all: Run[] = []
  let next = 0
  const startedAt = performance.now()
  // What all share is compiled and connected before they come at once.
  while (next < Math.min(runs, 10)) all.push(await play(next++))
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (next < runs) {
        all.push(await play(next++))
        if (all.length % 5_000 === 0) report(all.length, startedAt)
      }
    }),
  )
  report(all.length, startedAt)
  const charged = await readLedger(scene.gateway)
  const verdicts = await Promise.all(all.map((run) => judge(run, charged)))
  process.stdout.write(`${tableOf(all, verdicts)}\n`)
  expect(verdicts.flatMap(({ faults }) => faults)).toEqual([])
  // What a liar takes of a tab while others buy on it, they may be refused for. It costs nothing, and is rare.
  expect(verdicts.filter(({ isBehind }) => isBehind).length).toBeLessThanOrEqual(Math.ceil(runs / 200))
  expect(new Set(all.map(({ ended }) => ended.outcome))).toEqual(
    new Set(['served', 'not_charged', 'unknown']),
  )
}, 86_400_000)

function report(done: number, startedAt: number): void {
  const perSecond = (done / (performance.now() - startedAt)) * 1000
  process.stdout.write(`${done} runs, ${perSecond.toFixed(0)} a second\n`)
}

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
  seen.set(n, { presented: new Set(), cuts: cutting })
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
  if (times > 1) say(`paid ${times} times`)
  if (ended.outcome === 'not_charged' && times > 0) say('charged, although its client says that it is not')
  if (seller.isHostile) return { times, faults }
  if (ended.wrong) say('answered with something else')
  const expected = new URL(run.url).searchParams.get('kind') === 'failing' ? 'not_charged' : 'served'
  const isLate = ended.error instanceof ClientError && ['timeout', 'aborted'].includes(ended.error.code)
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

/** Outcomes by seller and what befell the run. */
function tableOf(all: readonly Run[], verdicts: readonly { times: number }[]): string {
  const rows = new Map<string, number[]>()
  for (const [index, { seller, what, ended }] of all.entries()) {
    const times = verdicts[index]?.times ?? 0
    const name = seller.isHostile ? `hostile: ${what}` : `${seller.name}: ${what}`
    const row = rows.get(name) ?? [0, 0, 0, 0, 0, 0, 0]
    rows.set(name, row)
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
  const heads = ['runs', 'served', 'not charged', 'unknown', 'paid once', 'of them unanswered', 'paid twice']
  const total = [...rows.values()].reduce((sum, row) =>
    sum.map((count, column) => count + (row[column] ?? 0)),
  )
  const lines = [...[...rows].sort(([a], [b]) => (a < b ? -1 : 1)), ['all', total] as const]
  return [`| | ${heads.join(' | ')} |`, `|---|${heads.map(() => '---').join('|')}|`]
    .concat(lines.map(([name, row]) => `| ${name} | ${row.join(' | ')} |`))
    .join('\n')
}
