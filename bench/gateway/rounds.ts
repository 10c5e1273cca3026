/** What a round of a bench measures of the gateway and of the floor under it: a rate with its CPU time, and latencies at a fixed rate. */
import { setTimeout as delay } from 'node:timers/promises'
import { median, medianOf, percentile, round2, spread } from '../support/statistics.ts'
import { pace, saturate } from './load.ts'
import { connections, requireAll } from './payments.ts'
import type { Rig } from './rig.ts'

export type Rate = {
  perSecond: number
  /** A request, of each process that had a part in it. */
  cpuUs: Record<string, number>
}

type Floor = Awaited<ReturnType<Rig['startServer']>>
type Answers = Awaited<ReturnType<typeof saturate>>['answers']

export function createMeter(rig: Rig, floorServer: Floor) {
  const cpu = async () => ({ ...(await rig.cpu()), floor: await floorServer.cpu() })

  async function rate(count: number, work: () => Promise<number>): Promise<Rate> {
    const before = await cpu()
    const perSecond = await work()
    const after = await cpu()
    const parts = Object.keys(after) as (keyof typeof after)[]
    const used = parts.map((part) => [part, (after[part] - before[part]) / count] as const)
    return { perSecond, cpuUs: Object.fromEntries(used.filter(([, us]) => us > 0)) }
  }

  return {
    rate,
    floorRate: (requests: Buffer[]) =>
      rate(requests.length, async () => {
        const { perSecond, answers } = await saturate({ port: floorServer.port, requests, connections })
        requireAll(answers, 200, 'the floor')
        return perSecond
      }),
    /** How long each took at a fixed rate after a rest, in their order, by our gateway and by the floor, ms. */
    async pacedRound(perSecond: number, sent: PacedRequests): Promise<Paced> {
      const load = { connections, perSecond }
      await delay(restMs)
      const ours = await pace({ ...load, requests: sent.requests, port: rig.apiPort })
      sent.require(ours.answers)
      await delay(restMs)
      const floor = await pace({ ...load, requests: sent.floorRequests, port: floorServer.port })
      return { ours: ours.ms, floor: floor.ms }
    },
  }
}

type PacedRequests = {
  requests: Buffer[]
  floorRequests: Buffer[]
  require: (answers: Answers) => void
}
type Paced = { ours: number[]; floor: number[] }

/** One line for each kind. */
export function describeRates(round: Record<string, Rate>): string {
  const kinds = Object.entries(round).map(([kind, { perSecond, cpuUs }]) => {
    const parts = Object.entries(cpuUs).map(([part, us]) => `${part} ${us.toFixed()}`)
    return `\n  ${kind.padEnd(15)} ${perSecond.toFixed().padStart(6)}/s, CPU µs a request: ${parts.join(', ')}`
  })
  return kinds.join('')
}

/** Medians of rounds, and the ratios of neighbours, so that a minute in which the machine is slower falls on both. */
export const summaryOf = <Kind extends string>(rounds: Record<Kind, Rate>[]) => ({
  perSecond: (kind: Kind) => Math.round(medianOf(rounds, (round) => round[kind].perSecond)),
  ratios: (kind: Kind, to: Kind) => rounds.map((round) => round[kind].perSecond / round[to].perSecond),
  cpuUs: (kind: Kind, part: string) => Math.round(medianOf(rounds, (round) => round[kind].cpuUs[part] ?? 0)),
})

/** Before each paced round, of the gateway and of the floor alike. */
const restMs = 3_000
/** What comes within this time after a rest has a figure of its own. */
const afterRestMs = 150
/** The first share of a round's requests, which doesn't count as steady. */
const unsteadyShare = 0.1

export async function measureLatencies(
  perSecond: number,
  rounds: number,
  measurePaced: (perSecond: number) => Promise<Paced>,
  say: (line: string) => void,
) {
  const paced: Paced[] = []
  for (let round = 0; round < rounds; round++) {
    const measured = await measurePaced(perSecond)
    const p99 = percentile(measured.ours, 0.99).toFixed(1)
    say(`paced round ${round + 1} at ${perSecond.toFixed()}/s: p99 ${p99} ms`)
    paced.push(measured)
  }
  const steady = (round: number[]) => round.slice(Math.ceil(round.length * unsteadyShare))
  const first = (round: number[]) => round.slice(0, Math.ceil((perSecond * afterRestMs) / 1000))
  const of = (side: keyof Paced, part: typeof steady) => latencies(paced.map((round) => part(round[side])))
  const [ours, floor] = [of('ours', steady), of('floor', steady)]
  return {
    ...{ p50Ms: ours.p50, p99Ms: ours.p99, p99Spread: ours.p99Spread, p99ToP50: ours.p99ToP50 },
    ...{ floorP50Ms: floor.p50, floorP99Ms: floor.p99, floorP99ToP50: floor.p99ToP50 },
    afterRest: { ours: of('ours', first), floor: of('floor', first) },
  }
}

/** Medians of the rounds. */
function latencies(rounds: number[][]) {
  const p99 = rounds.map((ms) => percentile(ms, 0.99))
  return {
    p50: round2(median(rounds.map(median))),
    p99: round2(median(p99)),
    p99Spread: spread(p99),
    p99ToP50: round2(median(rounds.map((ms) => percentile(ms, 0.99) / median(ms)))),
  }
}
