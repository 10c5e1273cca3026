/**
 * How fast `/verify` is, beside the floor under it (the cryptography alone behind Hono) and the x402 reference
 * facilitator, in one run: short rounds that take turns, so that whatever else the machine does falls on all of them.
 */
import { randomUUID } from 'node:crypto'
import { parseArgs } from 'node:util'
import { toHex } from 'viem'
import type { Challenge } from '#protocol/challenge'
import { type Answer, pace, renderPost, saturate } from './gateway/load.ts'
import { type Buyer, createSigner, type Nonces, type Rig, startRig, usdcPerUnit } from './gateway/rig.ts'
import { createX402Body } from './gateway/x402Body.ts'
import { median, percentile } from './support/statistics.ts'

const connections = 50
const buyers = 1_000
/** One in so many payments carries a signature that is not its payer's. */
const badEvery = 100

export type VerifyReport = {
  verifyPerSecond: number
  floorPerSecond: number
  ratioToFloor: number
  referencePerSecond: number
  timesReference: number
  p50Ms: number
  p99Ms: number
  challengePerSecond: number
  peakRssMb: number
  verifyPerSecondRandomNonce: number
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      rounds: { type: 'string', default: '7' },
      requests: { type: 'string', default: '2000' },
    },
  })
  const say = (line: string) => {
    if (!values.json) console.log(line)
  }
  const rig = await startRig({ buyers })
  try {
    const report = await measure(rig, Number(values.rounds), Number(values.requests), say)
    if (values.json) console.log(JSON.stringify(report))
    else console.table(report)
  } finally {
    await rig.close()
  }
}

type Rates = { verify: number[]; floor: number[]; reference: number[]; challenge: number[]; random: number[] }

async function measure(
  rig: Rig,
  rounds: number,
  requests: number,
  say: (line: string) => void,
): Promise<VerifyReport> {
  const payments = createPayments(rig)
  const floorServer = await rig.startServer('floorServer.ts')
  const referenceServer = await rig.startServer('referenceServer.ts', [rig.rpcUrl])
  const referenceRequests = payments.forReference(Math.ceil(requests / 10))
  const rates: Rates = { verify: [], floor: [], reference: [], challenge: [], random: [] }

  const few = Math.ceil(requests / 4)
  // The first round warms everything up and isn't counted.
  for (let round = 0; round <= rounds; round++) {
    const { challenges, perSecond: challenge } = await payments.challenge(requests + few)
    const bound = payments.sign(challenges.slice(0, requests), 'bound')
    const random = payments.sign(challenges.slice(requests), 'random')

    const before = { ...(await rig.cpu()), floor: await floorServer.cpu() }
    const verify = await payments.verify(bound)
    const after = await rig.cpu()
    const floor = await saturate({ port: floorServer.port, requests: bound.requests, connections })
    const used = { ...after, floor: await floorServer.cpu() }
    const cpu = (part: keyof typeof used) => `${part} ${((used[part] - before[part]) / requests).toFixed()}`
    say(
      `  CPU µs a request: ${cpu('api')} (${cpu('floor')}), ${cpu('postgres')}, ${cpu('chain')}, ${cpu('load')}`,
    )
    requireAll(floor.answers, 200, 'the floor')
    const reference = await saturate({ port: referenceServer.port, requests: referenceRequests, connections })
    requireReference(reference.answers)
    const randomRate = await payments.verify(random)

    say(
      `round ${round}: verify ${verify.toFixed()}/s, floor ${floor.perSecond.toFixed()}/s (${(verify / floor.perSecond).toFixed(2)}), ` +
        `reference ${reference.perSecond.toFixed()}/s, challenge ${challenge.toFixed()}/s, random nonces ${randomRate.toFixed()}/s`,
    )
    if (round === 0) continue
    rates.verify.push(verify)
    rates.floor.push(floor.perSecond)
    rates.reference.push(reference.perSecond)
    rates.challenge.push(challenge)
    rates.random.push(randomRate)
  }

  const verifyPerSecond = median(rates.verify)
  const p50: number[] = []
  const p99: number[] = []
  for (let round = 0; round < Math.max(3, Math.ceil(rounds / 2)); round++) {
    const { challenges } = await payments.challenge(requests)
    const signed = payments.sign(challenges, 'bound')
    const { ms, answers } = await pace({
      port: rig.apiPort,
      requests: signed.requests,
      connections,
      perSecond: verifyPerSecond / 2,
    })
    signed.require(answers)
    p50.push(median(ms))
    p99.push(percentile(ms, 0.99))
    say(`at half of that rate: p50 ${p50.at(-1)?.toFixed(2)} ms, p99 ${p99.at(-1)?.toFixed(2)} ms`)
  }
  const floorPerSecond = median(rates.floor)
  const referencePerSecond = median(rates.reference)
  const round2 = (value: number) => Math.round(value * 100) / 100
  return {
    verifyPerSecond: Math.round(verifyPerSecond),
    floorPerSecond: Math.round(floorPerSecond),
    ratioToFloor: round2(verifyPerSecond / floorPerSecond),
    referencePerSecond: Math.round(referencePerSecond),
    timesReference: round2(verifyPerSecond / referencePerSecond),
    p50Ms: round2(median(p50)),
    p99Ms: round2(median(p99)),
    challengePerSecond: Math.round(median(rates.challenge)),
    peakRssMb: await rig.apiPeakRssMb(),
    verifyPerSecondRandomNonce: Math.round(median(rates.random)),
  }
}

type Signed = { requests: Buffer[]; require: (answers: Answer[]) => void }

/** Makes payments and sees to it that each is answered as it must be. */
export function createPayments(rig: Rig) {
  const { shop, apiPort, database } = rig
  const { providerId } = shop
  const signer = createSigner(rig)
  const { endpointId } = signer
  let made = 0
  const nextBuyer = () => rig.buyers[made++ % rig.buyers.length] as Buyer

  /** A transaction gets a number of its own when it writes something, and not before. */
  async function transactionsThatWrote(): Promise<number> {
    const [row] = await database`select pg_snapshot_xmax(pg_current_snapshot())::text as next`
    return Number(row?.next)
  }

  return {
    /** Asks for challenges; fails if they write to the database. */
    async challenge(count: number): Promise<{ challenges: Challenge[]; perSecond: number }> {
      const body = { providerId, endpointId, resource: shop.url, pricing: { usdcPerUnit } }
      const request = renderPost('/challenge', body)
      const before = await transactionsThatWrote()
      const { perSecond, answers } = await saturate({
        port: apiPort,
        requests: new Array(count).fill(request),
        connections,
      })
      requireAll(answers, 200, '/challenge')
      const writes = (await transactionsThatWrote()) - before
      // The api's usage counters and Postgres' own upkeep write now and then, whatever is asked.
      if (writes > 5 + count / 100)
        throw new Error(`${count} challenges wrote to the database ${writes} times`)
      return { perSecond, challenges: answers.map(({ body }) => JSON.parse(body.toString()) as Challenge) }
    },
    sign(challenges: Challenge[], nonces: Nonces): Signed {
      const bodies = challenges.map((challenge) => signer.sign(nextBuyer(), challenge, nonces))
      const isBad = (index: number) => index % badEvery === badEvery - 1
      bodies.forEach((body, index) => {
        if (isBad(index)) body.payloads[index % 2] = spoil(body.payloads[index % 2] as string)
      })
      return {
        requests: bodies.map((body) => renderPost('/verify', body, { 'idempotency-key': randomUUID() })),
        require(answers) {
          answers.forEach(({ status, body }, index) => {
            if (status === (isBad(index) ? 402 : 200)) return
            const which = isBad(index) ? 'with a bad signature' : 'with good signatures'
            throw new Error(`a payment ${which} was answered ${status}: ${body.toString().slice(0, 500)}`)
          })
        },
      }
    },

    async verify(signed: Signed): Promise<number> {
      const { perSecond, answers } = await saturate({
        port: apiPort,
        requests: signed.requests,
        connections,
      })
      signed.require(answers)
      return perSecond
    },

    forReference(count: number): Buffer[] {
      return Array.from({ length: count }, () => {
        const buyer = nextBuyer()
        const nonce = toHex(crypto.getRandomValues(new Uint8Array(32)))
        return renderPost(
          '/verify',
          createX402Body(rig.usdc, shop.url, signer.authorize(buyer, shop.address, 47_500n, nonce)),
        )
      })
    },
  }
}

/** Another digit in the signature: it recovers to somebody else, or to nobody. */
function spoil(payload: string): string {
  const at = payload.lastIndexOf(',') + 20
  const digit = payload[at] === '0' ? '1' : '0'
  return `${payload.slice(0, at)}${digit}${payload.slice(at + 1)}`
}

function requireAll(answers: Answer[], status: number, what: string): void {
  for (const answer of answers) {
    if (answer.status === status) continue
    throw new Error(`${what} answered ${answer.status}: ${answer.body.toString().slice(0, 500)}`)
  }
}

function requireReference(answers: Answer[]): void {
  for (const { body } of answers) {
    const verdict = JSON.parse(body.toString()) as { isValid: boolean }
    if (!verdict.isValid) throw new Error(`the reference refused: ${body.toString()}`)
  }
}
