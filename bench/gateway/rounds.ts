/** Measures the gateway and its floor in rounds: rates with their CPU time, and latencies at a fixed rate. */
import { setTimeout as delay } from 'node:timers/promises'
import {
  inTurns,
  mapValues,
  median,
  medianOf,
  percentile,
  round2,
  type Say,
  spread,
} from '../support/statistics.ts'
import { type Requests, send } from './load.ts'
import { connections } from './payments.ts'
import type { Rig, Server } from './rig.ts'

export type Rate = {
  perSecond: number
  /** CPU time per request, by process. */
  cpuUs: Record<string, number>
}

/** Creates a function that measures a rate and its CPU time. @param cpu returns the time that each process has used so far, in µs */
export function createRateOf<Part extends string>(cpu: () => Promise<Record<Part, number>>) {
  return async (count: number, work: () => Promise<{ perSecond: number }>): Promise<Rate> => {
    const before = await cpu()
    const { perSecond } = await work()
    const after = await cpu()
    const used = mapValues(after, (us, part) => (us - before[part]) / count)
    return { perSecond, cpuUs: Object.fromEntries(Object.entries<number>(used).filter(([, us]) => us > 0)) }
  }
}

export function createMeter(rig: Rig, floor: Server) {
  const rateOf = createRateOf(async () => ({ ...(await rig.cpu()), floor: await floor.cpu() }))
  return {
    rateOf,
    rate: (asked: Requests, port = rig.apiPort) =>
      rateOf(asked.requests.length, () => send({ ...asked, port, connections })),
    /**
     * After a pause, sends requests at a fixed rate to our gateway; after another pause, sends them at the same rate to the floor. Returns the
     * durations in ms, in the order of the requests.
     */
    async pacedRound(perSecond: number, asked: Requests, floorRequests = asked.requests): Promise<Paced> {
      await delay(restMs)
      const ours = await send({ ...asked, port: rig.apiPort, connections, perSecond })
      await delay(restMs)
      const { ms } = await send({ requests: floorRequests, port: floor.port, connections, perSecond })
      return { ours: ours.ms, floor: ms }
    },
  }
}

type Paced = { ours: number[]; floor: number[] }

/** Measures all kinds of requests in each round. */
export async function measureRates<Kind extends string>(
  counts: { counted: number; warmUps: number },
  measureRound: () => Promise<Record<Kind, Rate>>,
  say: Say,
) {
  const { all: rounds } = await inTurns(['all'], { ...counts, say }, measureRound)
  return {
    perSecond: (kind: Kind) => Math.round(medianOf(rounds, (round) => round[kind].perSecond)),
    /** Returns the ratios of two kinds within the same round, so that a slow minute of the machine affects both kinds. */
    ratios: (kind: Kind, to: Kind) => rounds.map((round) => round[kind].perSecond / round[to].perSecond),
    cpuUs: (kind: Kind, part: string) =>
      Math.round(medianOf(rounds, (round) => round[kind].cpuUs[part] ?? 0)),
  }
}

/** Pause in ms before each paced round of the gateway and of the floor. */
const restMs = 3_000
/** Requests that are sent within this many ms after a pause have separate figures. */
const afterRestMs = 150
/** Share of a round's requests that don't count as steady, because they are the first ones. */
const unsteadyShare = 0.1

const afterRestFigures = ['p50', 'p99', 'p99Spread', 'p99ToP50', 'p99ToP50Max']

/** The keys of the object that {@link measureLatencies} returns. */
export const latencyFigures = [
  'p50Ms',
  'p99Ms',
  'p99Spread',
  'p99ToP50',
  'p99ToP50Max',
  'floorP50Ms',
  'floorP99Ms',
  'floorP99ToP50',
  ...afterRestFigures.map((figure) => `afterRest.ours.${figure}`),
  ...afterRestFigures.map((figure) => `afterRest.floor.${figure}`),
]

export async function measureLatencies(
  perSecond: number,
  rounds: number,
  measurePaced: (perSecond: number) => Promise<Paced>,
  say: Say,
) {
  const { paced } = await inTurns(['paced'], { counted: rounds }, async (_, round) => {
    const measured = await measurePaced(perSecond)
    const p99 = percentile(measured.ours, 0.99).toFixed(1)
    say(`paced round ${round + 1} at ${perSecond.toFixed()}/s: p99 ${p99} ms`)
    return measured
  })
  const steady = (round: number[]) => round.slice(Math.ceil(round.length * unsteadyShare))
  const first = (round: number[]) => round.slice(0, Math.ceil((perSecond * afterRestMs) / 1000))
  const of = (side: keyof Paced, part: typeof steady) => latencies(paced.map((round) => part(round[side])))
  const [ours, floor] = [of('ours', steady), of('floor', steady)]
  return {
    p50Ms: ours.p50,
    p99Ms: ours.p99,
    p99Spread: ours.p99Spread,
    p99ToP50: ours.p99ToP50,
    p99ToP50Max: ours.p99ToP50Max,
    floorP50Ms: floor.p50,
    floorP99Ms: floor.p99,
    floorP99ToP50: floor.p99ToP50,
    afterRest: { ours: of('ours', first), floor: of('floor', first) },
  }
}

/** Returns medians of the rounds, except for `p99ToP50Max`, which is the maximum. */
function latencies(rounds: number[][]) {
  const p99 = rounds.map((ms) => percentile(ms, 0.99))
  const p99ToP50 = rounds.map((ms) => percentile(ms, 0.99) / median(ms))
  return {
    p50: round2(median(rounds.map(median))),
    p99: round2(median(p99)),
    p99Spread: spread(p99),
    p99ToP50: round2(median(p99ToP50)),
    p99ToP50Max: round2(Math.max(...p99ToP50)),
  }
}
