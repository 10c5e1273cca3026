/**
 * How fast `/verify` and `/challenge` are, beside the floor under each (the cryptography alone behind Hono) and the x402
 * reference facilitator, in one run: short rounds that take turns, so that whatever else the machine does falls on all.
 */
import { saturate } from './gateway/load.ts'
import { connections, createPayments, requireReference } from './gateway/payments.ts'
import { type Rig, startRig } from './gateway/rig.ts'
import { createMeter, describeRates, measureLatencies, type Rate, summaryOf } from './gateway/rounds.ts'
import { inTurns, median, medianAndSpread, round2 } from './support/statistics.ts'

const buyers = 1_000

/** A round of each kind, beside one another. */
type Round = Record<
  | 'challenge'
  | 'challengeFloor'
  | 'verify'
  | 'floor'
  | 'traced'
  | 'oneSignature'
  | 'reference'
  | 'randomNonce',
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
  const latencies = await measureLatencies(rates.verifyPerSecond / 2, all.length, kinds.measurePaced, say)
  return { ...rates, ...latencies, peakRssMb: await rig.apiPeakRssMb() }
}

async function prepare(rig: Rig, requests: number) {
  const payments = createPayments(rig)
  const sample = await payments.challenge(connections)
  const challengeLength = JSON.stringify(sample.challenges[0]).length
  const floorServer = await rig.startServer('floorServer.ts', [String(challengeLength)])
  const collector = await rig.startServer('collectorServer.ts')
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${collector.port}` }
  // The same api, which traces each request.
  const traced = await rig.startApi('api-traced', endpoint)
  const referenceServer = await rig.startServer('referenceServer.ts', [rig.rpcUrl])
  const referenceRequests = payments.forReference(Math.ceil(requests / 10))
  const few = Math.ceil(requests / 4)
  const { rate, floorRate, pacedRound } = createMeter(rig, floorServer)

  async function measureRound(): Promise<Round> {
    const needed = 3 * requests + few
    let challenges: Awaited<ReturnType<typeof payments.challenge>>['challenges'] = []
    const challenge = await rate(needed, async () => {
      const asked = await payments.challenge(needed)
      challenges = asked.challenges
      return asked.perSecond
    })
    const challengeFloor = await floorRate(payments.challengeRequests(needed))
    const bound = payments.sign(challenges.slice(0, requests), 'bound')
    const one = payments.sign(challenges.slice(requests, 2 * requests), 'oneSignature')
    const toTrace = payments.sign(challenges.slice(2 * requests, 3 * requests), 'bound')
    const random = payments.sign(challenges.slice(3 * requests), 'random')
    return {
      challenge,
      challengeFloor,
      traced: await rate(requests, () => payments.verify(toTrace, traced.port)),
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

  async function measurePaced(perSecond: number) {
    const { challenges } = await payments.challenge(requests)
    const signed = payments.sign(challenges, 'bound')
    return pacedRound(perSecond, { ...signed, floorRequests: signed.requests })
  }
  return { measureRound, measurePaced }
}

function describe(round: Round): string {
  return `${(round.verify.perSecond / round.floor.perSecond).toFixed(2)} of the floor${describeRates(round)}`
}

function summarize(rounds: Round[]) {
  const { perSecond, ratios, cpuUs } = summaryOf(rounds)
  return {
    verifyPerSecond: perSecond('verify'),
    floorPerSecond: perSecond('floor'),
    ...medianAndSpread('ratioToFloor', ratios('verify', 'floor')),
    tracedPerSecond: perSecond('traced'),
    ...medianAndSpread('tracedRatio', ratios('traced', 'verify')),
    oneSignaturePerSecond: perSecond('oneSignature'),
    ...medianAndSpread('oneSignatureRatio', ratios('oneSignature', 'verify')),
    challengePerSecond: perSecond('challenge'),
    challengeFloorPerSecond: perSecond('challengeFloor'),
    ...medianAndSpread('challengeRatioToFloor', ratios('challenge', 'challengeFloor')),
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
