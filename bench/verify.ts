/**
 * How fast `/verify` and `/challenge` are, beside the floor under each (the cryptography alone behind Hono) and the x402
 * reference facilitator, in one run: short rounds that take turns, so that whatever else the machine does falls on all.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { pace, saturate } from './gateway/load.ts'
import { connections, createPayments, requireAll, requireReference } from './gateway/payments.ts'
import { type Rig, startRig } from './gateway/rig.ts'
import { inTurns, median, medianOf, percentile, round2, spread } from './support/statistics.ts'

const buyers = 1_000

type Rate = { perSecond: number; cpuUs: Record<string, number> }
/** A round of each kind, beside one another. */
type Round = Record<
  'challenge' | 'challengeFloor' | 'verify' | 'floor' | 'oneSignature' | 'reference' | 'randomNonce',
  Rate
>

export const options = { rounds: 7, requests: 2_000 }

export async function run(
  { rounds: count, requests }: typeof options,
  say: (line: string) => void,
): Promise<object> {
  await using rig = await startRig({ buyers })
  const kinds = await prepare(rig, requests)
  const { all } = await inTurns(['all'], { counted: count, warmUps: 1 }, async (_, round) => {
    const measured = await kinds.measureRound()
    say(`round ${round + 1}: ${describe(measured)}`)
    return measured
  })
  const rates = summarize(all)
  const latencies = await measureLatencies(rates.verifyPerSecond / 2, all.length, kinds, say)
  return { ...rates, ...latencies, peakRssMb: await rig.apiPeakRssMb() }
}

type Kinds = Awaited<ReturnType<typeof prepare>>

async function prepare(rig: Rig, requests: number) {
  const payments = createPayments(rig)
  const sample = await payments.challenge(connections)
  const challengeLength = JSON.stringify(sample.challenges[0]).length
  const floorServer = await rig.startServer('floorServer.ts', [String(challengeLength)])
  const referenceServer = await rig.startServer('referenceServer.ts', [rig.rpcUrl])
  const referenceRequests = payments.forReference(Math.ceil(requests / 10))
  const few = Math.ceil(requests / 4)
  const cpu = async () => ({ ...(await rig.cpu()), floor: await floorServer.cpu() })

  /** @returns the rate, and the CPU time a request of each process that had a part in it. */
  async function rate(count: number, work: () => Promise<number>): Promise<Rate> {
    const before = await cpu()
    const perSecond = await work()
    const after = await cpu()
    const parts = Object.keys(after) as (keyof typeof after)[]
    const used = parts.map((part) => [part, (after[part] - before[part]) / count] as const)
    return { perSecond, cpuUs: Object.fromEntries(used.filter(([, us]) => us > 0)) }
  }
  async function floorRate(sent: Buffer[]): Promise<Rate> {
    return rate(sent.length, async () => {
      const { perSecond, answers } = await saturate({ port: floorServer.port, requests: sent, connections })
      requireAll(answers, 200, 'the floor')
      return perSecond
    })
  }

  async function measureRound(): Promise<Round> {
    const needed = 2 * requests + few
    let challenges: Awaited<ReturnType<typeof payments.challenge>>['challenges'] = []
    const challenge = await rate(needed, async () => {
      const asked = await payments.challenge(needed)
      challenges = asked.challenges
      return asked.perSecond
    })
    const challengeFloor = await floorRate(payments.challengeRequests(needed))
    const bound = payments.sign(challenges.slice(0, requests), 'bound')
    const one = payments.sign(challenges.slice(requests, 2 * requests), 'oneSignature')
    const random = payments.sign(challenges.slice(2 * requests), 'random')
    return {
      challenge,
      challengeFloor,
      verify: await rate(requests, () => payments.verify(bound)),
      floor: await floorRate(bound.requests),
      oneSignature: await rate(requests, () => payments.verify(one)),
      reference: await rate(referenceRequests.length, async () => {
        const sent = { port: referenceServer.port, requests: referenceRequests, connections }
        const { perSecond, answers } = await saturate(sent)
        requireReference(answers)
        return perSecond
      }),
      randomNonce: await rate(few, () => payments.verify(random)),
    }
  }

  /** How long each took at a fixed rate after a rest, in their order, by our gateway and by the floor, ms. */
  async function measurePaced(perSecond: number): Promise<{ verify: number[]; floor: number[] }> {
    const { challenges } = await payments.challenge(requests)
    const signed = payments.sign(challenges, 'bound')
    const load = { requests: signed.requests, connections, perSecond }
    await delay(restMs)
    const ours = await pace({ ...load, port: rig.apiPort })
    signed.require(ours.answers)
    await delay(restMs)
    const floor = await pace({ ...load, port: floorServer.port })
    return { verify: ours.ms, floor: floor.ms }
  }
  return { measureRound, measurePaced }
}

function describe(round: Round): string {
  const kinds = Object.entries(round).map(([kind, { perSecond, cpuUs }]) => {
    const parts = Object.entries(cpuUs).map(([part, us]) => `${part} ${us.toFixed()}`)
    return `\n  ${kind.padEnd(15)} ${perSecond.toFixed().padStart(6)}/s, CPU µs a request: ${parts.join(', ')}`
  })
  return `${(round.verify.perSecond / round.floor.perSecond).toFixed(2)} of the floor${kinds.join('')}`
}

function summarize(rounds: Round[]) {
  const perSecond = (kind: keyof Round) => Math.round(medianOf(rounds, (round) => round[kind].perSecond))
  // Of neighbours, so that a minute in which the machine is slower falls on both.
  const ratios = (kind: keyof Round, to: keyof Round) =>
    rounds.map((round) => round[kind].perSecond / round[to].perSecond)
  const cpuUs = (kind: keyof Round, part: string) =>
    Math.round(medianOf(rounds, (round) => round[kind].cpuUs[part] ?? 0))
  const [toFloor, challengeToFloor] = [ratios('verify', 'floor'), ratios('challenge', 'challengeFloor')]
  const oneToTwo = ratios('oneSignature', 'verify')
  return {
    verifyPerSecond: perSecond('verify'),
    floorPerSecond: perSecond('floor'),
    ratioToFloor: round2(median(toFloor)),
    ratioToFloorSpread: spread(toFloor),
    oneSignaturePerSecond: perSecond('oneSignature'),
    oneSignatureRatio: round2(median(oneToTwo)),
    oneSignatureRatioSpread: spread(oneToTwo),
    challengePerSecond: perSecond('challenge'),
    challengeFloorPerSecond: perSecond('challengeFloor'),
    challengeRatioToFloor: round2(median(challengeToFloor)),
    challengeRatioToFloorSpread: spread(challengeToFloor),
    referencePerSecond: perSecond('reference'),
    timesReference: round2(median(ratios('verify', 'reference'))),
    verifyPerSecondRandomNonce: perSecond('randomNonce'),
    cpuUsPerRequest: {
      api: cpuUs('verify', 'api'),
      apiMain: cpuUs('verify', 'apiMain'),
      postgres: cpuUs('verify', 'postgres'),
      load: cpuUs('verify', 'load'),
      floor: cpuUs('floor', 'floor'),
      oneSignatureApi: cpuUs('oneSignature', 'api'),
      oneSignaturePostgres: cpuUs('oneSignature', 'postgres'),
      challengeApi: cpuUs('challenge', 'api'),
      challengeFloor: cpuUs('challengeFloor', 'floor'),
    },
  }
}

/** Before each paced round, of the gateway and of the floor alike. */
const restMs = 3_000
/** What comes within this time after a rest has a figure of its own. */
const afterRestMs = 150
/** The first share of a round's requests, which doesn't count as steady. */
const unsteadyShare = 0.1

async function measureLatencies(
  perSecond: number,
  rounds: number,
  kinds: Kinds,
  say: (line: string) => void,
) {
  const [verify, floor] = [[], []] as [number[][], number[][]]
  for (let round = 0; round < rounds; round++) {
    const measured = await kinds.measurePaced(perSecond)
    say(
      `paced round ${round + 1} at ${perSecond.toFixed()}/s: p99 ${percentile(measured.verify, 0.99).toFixed(1)} ms`,
    )
    verify.push(measured.verify)
    floor.push(measured.floor)
  }
  const steady = (round: number[]) => round.slice(Math.ceil(round.length * unsteadyShare))
  const first = (round: number[]) => round.slice(0, Math.ceil((perSecond * afterRestMs) / 1000))
  const [ours, theirs] = [latencies(verify.map(steady)), latencies(floor.map(steady))]
  return {
    ...{ p50Ms: ours.p50, p99Ms: ours.p99, p99Spread: ours.p99Spread, p99ToP50: ours.p99ToP50 },
    ...{ floorP50Ms: theirs.p50, floorP99Ms: theirs.p99, floorP99ToP50: theirs.p99ToP50 },
    afterRest: { verify: latencies(verify.map(first)), floor: latencies(floor.map(first)) },
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
