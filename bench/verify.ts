/**
 * Measures how fast `/verify` and `/challenge` are. It compares them with the x402 reference facilitator, and with "floors": Hono servers that do
 * only the same cryptography. All are measured in short rounds that take turns, so that other load on the machine affects each of them.
 */
import type { Challenge } from '@tollkeeper/sdk/protocol/challenge'
import { connections, createPayments } from './gateway/payments.ts'
import { type Rig, startRig } from './gateway/rig.ts'
import { createMeter, latencyFigures, measureLatencies, measureRates } from './gateway/rounds.ts'
import { atLeast, atMost, type Goals } from './support/goals.ts'
import { median, medianAndSpread, round2, type Say } from './support/statistics.ts'

const buyers = 1_000

export const options = { rounds: 7, requests: 2_000 }

const cpuFigures = [
  'api',
  'apiMain',
  'postgres',
  'load',
  'floor',
  'oneSignatureApi',
  'oneSignaturePostgres',
  'challengeApi',
  'challengeFloor',
]

export const figures = () => [
  'verifyPerSecond',
  'floorPerSecond',
  'ratioToFloor',
  'ratioToFloorSpread',
  'tracedPerSecond',
  'tracedRatio',
  'tracedRatioSpread',
  'oneSignaturePerSecond',
  'oneSignatureRatio',
  'oneSignatureRatioSpread',
  'challengePerSecond',
  'challengeFloorPerSecond',
  'challengeRatioToFloor',
  'challengeRatioToFloorSpread',
  'referencePerSecond',
  'timesReference',
  'verifyPerSecondRandomNonce',
  ...cpuFigures.map((part) => `cpuUsPerRequest.${part}`),
  ...latencyFigures,
  'peakRssMb',
]

export const goals = (): Goals => ({
  ratioToFloor: atLeast(0.6),
  p99ToP50Max: atMost(4),
  oneSignatureRatio: atLeast(1.4),
  challengeRatioToFloor: atLeast(0.6),
  timesReference: atLeast(6),
})

export async function run({ rounds, requests }: typeof options, say: Say): Promise<object> {
  await using rig = await startRig({ buyers })
  const { measureRound, measurePaced } = await prepare(rig, requests)
  const counts = { counted: rounds, warmUps: 1 }
  const { perSecond, ratios, cpuUs } = await measureRates(counts, measureRound, say)
  const verifyPerSecond = perSecond('verify')
  return {
    verifyPerSecond,
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
    ...(await measureLatencies(verifyPerSecond / 2, rounds, measurePaced, say)),
    peakRssMb: await rig.apiPeakRssMb(),
  }
}

async function prepare(rig: Rig, requests: number) {
  const payments = createPayments(rig)
  const sample = await payments.challenge(connections)
  const challengeLength = JSON.stringify(sample.challenges[0]).length
  const floor = await rig.startServer('floorServer.ts', [String(challengeLength)])
  const collector = await rig.startServer('collectorServer.ts')
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${collector.port}` }
  // This is the same api, but it traces each request.
  const traced = await rig.startApi('api-traced', endpoint)
  const reference = await rig.startServer('referenceServer.ts', [rig.chain.url])
  const forReference = payments.forReference(Math.ceil(requests / 10))
  const few = Math.ceil(requests / 4)
  const { rate, rateOf, pacedRound } = createMeter(rig, floor)

  async function measureRound() {
    const needed = 3 * requests + few
    let challenges: Challenge[] = []
    const challenge = await rateOf(needed, async () => {
      const asked = await payments.challenge(needed)
      challenges = asked.challenges
      return asked
    })
    const challengeFloor = await rate({ requests: payments.challengeRequests(needed) }, floor.port)
    const bound = payments.sign(challenges.slice(0, requests), 'bound')
    const one = payments.sign(challenges.slice(requests, 2 * requests), 'oneSignature')
    const toTrace = payments.sign(challenges.slice(2 * requests, 3 * requests), 'bound')
    const random = payments.sign(challenges.slice(3 * requests), 'random')
    return {
      challenge,
      challengeFloor,
      traced: await rate(toTrace, traced.port),
      verify: await rate(bound),
      floor: await rate({ requests: bound.requests }, floor.port),
      oneSignature: await rate(one),
      reference: await rate(forReference, reference.port),
      randomNonce: await rate(random),
    }
  }

  async function measurePaced(perSecond: number) {
    const { challenges } = await payments.challenge(requests)
    return pacedRound(perSecond, payments.sign(challenges, 'bound'))
  }
  return { measureRound, measurePaced }
}
