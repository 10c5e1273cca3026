/**
 * Measures how long a buyer waits for a complete paid call (SDK, middleware, gateway, handler, answer), compared with the same call without
 * payment, and with x402's client, seller and facilitator on the same chain of two-second blocks. Rounds of all kinds take turns.
 */
import { alignColumns } from '@tollkeeper/runtime/alignColumns'
import type { BuyerKind } from './gateway/callBuyer.ts'
import { type CallRig, startCallRig } from './gateway/callRig.ts'
import { atMost, type Goals } from './support/goals.ts'
import { inTurns, mapValues, median, percentile, round2, type Say } from './support/statistics.ts'

const callerCounts = [1, 16, 128] as const
const kinds = [
  'free',
  'tab',
  'oneSignature',
  'twoSignatures',
  'settleFirst',
  'facilitator',
  'reference',
] as const
type Kind = (typeof kinds)[number]
/** Kinds whose calls wait for a block. The bench makes fewer of them. */
const waitsForChain: readonly Kind[] = ['settleFirst', 'facilitator', 'reference']
const parts = ['buyer', 'seller', 'gateway', 'postgres', 'keeper', 'reference'] as const

/**
 * Maximum milliseconds that a payment may add at p50 with one caller. With 16 callers, the maximum is three times as high. A call that is
 * settled before it is served may wait for at most two blocks, with any number of callers. At p50 and at p95, such a call may not take
 * longer than a call that x402's own programs serve and settle; `timesReference` is the maximum ratio.
 */
const limits = { tab: 5, twoSignatures: 12, timesAt16: 3, settleFirst: 4_000, timesReference: 1 } as const

export const options = { calls: 200, settled: 8, rounds: 3, mostCallers: 128 }

/** Leaves out settleFirst for 128 callers: a wallet settles 16 such payments per block, so most callers would wait for other callers. */
const kindsOf = (callers: number) => kinds.filter((kind) => kind !== 'settleFirst' || callers <= 16)
const countsUpTo = (most: number) => callerCounts.filter((count) => count <= most)

export const figures = ({ mostCallers }: typeof options) => [
  ...countsUpTo(mostCallers).flatMap((callers) =>
    kindsOf(callers).flatMap((kind) => {
      const own = [
        ...['p50Ms', 'p95Ms', 'p99Ms'],
        ...(kind === 'free' ? [] : ['addedMs', 'failed']),
        ...(kind === 'settleFirst' ? ['timesReference.p50', 'timesReference.p95'] : []),
      ]
      return own.map((figure) => `callers.${callers}.${kind}.${figure}`)
    }),
  ),
  'cpuUsPerCall',
]

export const goals = ({ mostCallers }: typeof options): Goals =>
  Object.fromEntries(
    countsUpTo(Math.min(mostCallers, 16)).flatMap((callers) => {
      const times = callers === 1 ? 1 : limits.timesAt16
      const own = {
        tab: limits.tab * times,
        twoSignatures: limits.twoSignatures * times,
        settleFirst: limits.settleFirst,
      }
      return [
        ...Object.entries(own).map(([kind, ms]) => [`callers.${callers}.${kind}.addedMs`, atMost(ms)]),
        ...['p50', 'p95'].map((at) => [
          `callers.${callers}.settleFirst.timesReference.${at}`,
          atMost(limits.timesReference),
        ]),
      ]
    }),
  )

type Measured = { ms: number[]; failed: number; cpuUs: Record<string, number> }

export async function run({ calls, settled, rounds, mostCallers }: typeof options, say: Say) {
  const counts = countsUpTo(mostCallers)
  await using rig = await startCallRig({
    buyers: Math.max(...counts),
    prices: { '/two': '0.01', '/one': '0.01', '/settled': '10' },
  })
  const exact = await rig.startExactSeller('reference', '10000')
  const oursExact = await rig.startExactSeller('ours', '10000')
  const ways: Record<Kind, { kind: BuyerKind; path: string; seller: CallRig['ours'] }> = {
    free: { kind: 'free', path: '/free', seller: rig.ours },
    tab: { kind: 'tab', path: '/one', seller: rig.ours },
    oneSignature: { kind: 'ours', path: '/one', seller: rig.ours },
    twoSignatures: { kind: 'ours', path: '/two', seller: rig.ours },
    settleFirst: { kind: 'ours', path: '/settled', seller: rig.ours },
    facilitator: { kind: 'x402', path: '/exact', seller: oursExact },
    reference: { kind: 'x402', path: '/exact', seller: exact },
  }

  async function measure(kind: Kind, callers: number): Promise<Measured> {
    const { path, seller, kind: buyer } = ways[kind]
    const count = waitsForChain.includes(kind) ? Math.max(settled, callers) : Math.max(calls, 2 * callers)
    const before = await rig.cpu(seller)
    const { ms, failures } = await rig.run({
      kind: buyer,
      url: `${seller.url}${path}`,
      callers,
      calls: count,
    })
    const after = await rig.cpu(seller)
    // x402's own programs fail some concurrent calls, and the bench reports how many. Our gateway must serve all calls.
    if (failures.length > 0 && kind !== 'reference' && kind !== 'facilitator')
      throw new Error(`${failures.length} of ${count} calls of ${kind} failed: ${failures[0]}`)
    const cpuUs = mapValues(after, (us, part) => (us - before[part]) / count)
    return { ms, failed: failures.length, cpuUs }
  }

  const callersFigures: Record<number, Summary> = {}
  let cpuUsPerCall: Partial<Record<Kind, Record<string, number>>> = {}
  for (const callers of counts) {
    // The first round isn't counted, because it opens connections and tabs, and gives the seller a balance.
    const found = await inTurns(kindsOf(callers), { counted: rounds, warmUps: 1 }, async (kind, round) => {
      // Calls that wait for blocks take the longest and vary little, so one round suffices.
      if (waitsForChain.includes(kind) && round !== 0) return undefined
      const measured = await measure(kind, callers)
      if (round >= 0) say(`${callers} callers, ${kind}: p50 ${median(measured.ms).toFixed(1)} ms`)
      return measured
    })
    const measured = mapValues(found, (all) => all.filter((one) => one !== undefined))
    callersFigures[callers] = summarize(measured)
    if (callers <= 16)
      cpuUsPerCall = mapValues(measured, (all) => {
        const of = (part: string) => Math.round(median(all.map(({ cpuUs }) => cpuUs[part] ?? 0)))
        return Object.fromEntries(parts.map((part) => [part, of(part)]))
      })
  }
  return { callers: callersFigures, cpuUsPerCall }
}

type Figures = {
  p50Ms: number
  p95Ms: number
  p99Ms: number
  addedMs?: number
  failed?: number
  /** Duration of the call, divided by the duration of the same call with x402's own programs. */
  timesReference?: { p50: number; p95: number }
}
type Summary = Partial<Record<Kind, Figures>>

/** Summarizes the rounds. `addedMs` is how much longer a call takes at p50 than the same call without payment. */
function summarize(measured: Partial<Record<Kind, Measured[]>>): Summary {
  const at = (kind: Kind, share: number) =>
    median((measured[kind] ?? []).map(({ ms }) => percentile(ms, share)))
  const toReference = (share: number) => round2(at('settleFirst', share) / at('reference', share))
  return mapValues(measured as Record<Kind, Measured[]>, (all, kind): Figures => {
    const own = {
      p50Ms: round2(at(kind, 0.5)),
      p95Ms: round2(at(kind, 0.95)),
      p99Ms: round2(at(kind, 0.99)),
    }
    if (kind === 'free') return own
    return {
      ...own,
      addedMs: round2(own.p50Ms - at('free', 0.5)),
      failed: all.reduce((sum, one) => sum + one.failed, 0),
      ...(kind === 'settleFirst' && { timesReference: { p50: toReference(0.5), p95: toReference(0.95) } }),
    }
  })
}

export function format({ callers, cpuUsPerCall }: Awaited<ReturnType<typeof run>>): string {
  const names: Record<Kind, string> = {
    free: 'unpaid',
    tab: 'tab',
    oneSignature: 'one signature',
    twoSignatures: 'two signatures',
    settleFirst: 'settled before it is served',
    facilitator: "x402's client and seller, our facilitator",
    reference: "x402's client, seller and facilitator",
  }
  const lines = Object.entries(callers).flatMap(([count, figures]) => [
    `${count} callers`,
    ...alignColumns(
      ['', 'p50 ms', 'p95 ms', 'p99 ms', 'added ms', 'failed'],
      kinds.flatMap((kind) => {
        const own = figures[kind]
        if (own === undefined) return []
        const cells = [own.p50Ms, own.p95Ms, own.p99Ms, own.addedMs ?? '', own.failed ?? '']
        return [[`  ${names[kind]}`, ...cells.map(String)]]
      }),
    ),
    '',
  ])
  const cpu = alignColumns(
    ['', ...parts],
    kinds.map((kind) => [
      `  ${names[kind]}`,
      ...parts.map((part) => String(cpuUsPerCall[kind]?.[part] ?? '')),
    ]),
  )
  return [...lines, 'µs of CPU per call, 16 callers', ...cpu].join('\n')
}
