/**
 * Measures how fast x402 sellers settle through our facilitator, compared with the x402 reference facilitator on the same chain, once as it
 * is published and once with viem's nonce manager. Each of the three is a separate process behind HTTP with one gas wallet, and their rounds
 * take turns.
 */
import { setTimeout as wait } from 'node:timers/promises'
import { issueApiKey } from '@tollkeeper/api/registry/apiKeys'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Address, Hex } from 'viem'
import { seedProvider } from '../test/support/seedPayments.ts'
import { randomHex } from '../test/support/usdc.ts'
import { type Buyer, createAuthorizer, payees as sellers } from './data/signPayments.ts'
import { renderPost, send } from './gateway/load.ts'
import { createX402Body, isValid } from './gateway/payments.ts'
import { type Bench, blockTimeMs, openSettling } from './settle.ts'
import { atLeast, atMost, type Goals } from './support/goals.ts'
import {
  inTurns,
  mapValues,
  median,
  mediansOf,
  percentile,
  round1,
  round2,
  type Say,
} from './support/statistics.ts'

const price = 10_000n

const names = ['reference', 'managed', 'ours'] as const
/** `managed` is the reference with a nonce manager. */
type Name = (typeof names)[number]

type Rig = Awaited<ReturnType<typeof startRig>>
type Run = Awaited<ReturnType<typeof measure>>

export const options = {
  rounds: 3,
  verified: 1_000,
  settled: 256,
  concurrency: 64,
  /**
   * Number of payments that another seller's API key settles while the honest settlements are measured. Each connection sends its next payment
   * after the answer to the previous payment.
   */
  crowd: 3_000,
  probes: 16,
  /** Whether to measure only the honest settlements, alone and during the crowd's settlements. */
  onlyCrowd: false,
}

const crowdFigures = ['settleMsAlone', 'settleMsBesideCrowd', 'timesAlone']

export const figures = ({ onlyCrowd }: typeof options) => (onlyCrowd ? crowdFigures : allFigures)

export const goals = ({ onlyCrowd }: typeof options): Goals => ({
  ...(onlyCrowd ? {} : ownGoals),
  // An honest seller's settlement takes at most twice as long during the crowd's settlements.
  timesAlone: atMost(2),
})

const ownGoals: Goals = {
  // Each caller waits for its block, so at most one payment per caller and block can settle. The goal is a share of that maximum.
  shareOfCallersBound: atLeast(0.9),
  timesManagedReference: atLeast(0.95),
  gasRatioToReference: atMost(0.6),
  timesReferenceVerify: atLeast(5),
  settleMsP95: atMost(3_545),
}

const allFigures = [
  'settlePerSecond',
  'referenceSettlePerSecond',
  'timesReference',
  'gasPerPayment',
  'referenceGasPerPayment',
  'verifyPerSecond',
  'referenceVerifyPerSecond',
  'settleMsP50',
  'settleMsP95',
  'blockMs',
  'settled',
  'referenceSettled',
  'managedReferenceSettled',
  'managedReferenceSettlePerSecond',
  'timesManagedReference',
  'shareOfCallersBound',
  'timesReferenceVerify',
  'gasRatioToReference',
  ...crowdFigures,
]

export async function run(load: typeof options, say: Say): Promise<object> {
  const { rounds, verified, settled } = load
  await using bench = await openSettling(1_000)
  const rig = await startRig(bench)
  const crowded = await measureCrowd(rig, load, say)
  if (load.onlyCrowd) return crowded
  // The first round isn't counted, because it also gives each seller a balance.
  const runs = await inTurns(names, { counted: rounds, warmUps: 1, say }, async (name, round) => {
    // The reference gets fewer requests, because it takes longer.
    const asked = name === 'ours' ? Math.max(verified, settled) : settled
    const result = await measure(rig, name, { ...load, verified: asked })
    // Updates Postgres' statistics after the tables have filled. Autovacuum would do this once a minute.
    if (round < 0 && name === names.at(-1)) await bench.database`analyze`
    return result
  })
  return { ...summarize(runs, load), ...crowded }
}

/** Verifies payments, and then settles some of them, starting right after a block. The reservations of the other payments expire. */
async function measure({ client, facilitators, sign }: Rig, name: Name, load: typeof options) {
  const { verified, settled, concurrency: connections } = load
  const { port, headersOf } = facilitators[name]
  const payments = sign(verified)
  const render =
    (path: string) =>
    ({ seller, body }: (typeof payments)[number]) =>
      renderPost(path, body, headersOf(seller))
  const toVerify = { requests: payments.map(render('/verify')), isRight: isValid }
  const verification = await send({ ...toVerify, port, connections })

  const first = await nextBlock(client)
  const toSettle = { requests: payments.slice(0, settled).map(render('/settle')), isRight: () => true }
  const settlement = await send({ ...toSettle, port, connections })
  const last = await nextBlock(client)
  const answers = settlement.answers.map(({ body }) => JSON.parse(body.toString()) as Record<string, unknown>)
  const successes = answers.flatMap((answer, index) =>
    answer.success === true ? { hash: answer.transaction as Hex, ms: settlement.ms[index] as number } : [],
  )
  // The reference may fail to settle some payments, and the bench reports how many. Our facilitator must settle all payments.
  const refused = answers.filter((answer) => answer.success !== true)
  if (name === 'ours' && refused.length > 0)
    throw new Error(`${refused.length} good payments were not settled: ${JSON.stringify(refused[0])}`)
  const transactions = [...new Set(successes.map(({ hash }) => hash))]
  let gas = 0n
  for (const hash of transactions) {
    const { status, gasUsed } = await client.getTransactionReceipt({ hash })
    if (status !== 'success') throw new Error(`${hash} was reported as settled, but reverted`)
    gas += gasUsed
  }
  const settleMs = successes.map(({ ms }) => ms)
  return {
    verifyPerSecond: verification.perSecond,
    /** Number of successful settlements. */
    settled: successes.length,
    settlePerSecond: (settlement.perSecond * successes.length) / settled,
    gasPerPayment: Number(gas) / successes.length,
    transactions: transactions.length,
    settleMsP50: median(settleMs),
    settleMsP95: percentile(settleMs, 0.95),
    // The node's actual block interval. It grows with the node's work and with the load of the machine.
    blockMs: (last.seenAt - first.seenAt) / Number(last.number - first.number),
  }
}

/** Waits for the next block. Each facilitator starts right after a block, so that all have the same time until their first block. */
async function nextBlock(client: ServedNetwork['client']): Promise<{ number: bigint; seenAt: number }> {
  const before = await client.getBlockNumber({ cacheTime: 0 })
  for (;;) {
    const number = await client.getBlockNumber({ cacheTime: 0 })
    if (number > before) return { number, seenAt: performance.now() }
    await wait(20)
  }
}

/** Summarizes the rounds. `reference` is the published version, which settles only some of the payments. */
function summarize(runs: Record<Name, Run[]>, { concurrency }: typeof options) {
  const { ours, reference, managed } = mapValues(runs, mediansOf<keyof Run>)
  return {
    settlePerSecond: round1(ours.settlePerSecond),
    referenceSettlePerSecond: round1(reference.settlePerSecond),
    timesReference: round2(ours.settlePerSecond / reference.settlePerSecond),
    gasPerPayment: Math.round(ours.gasPerPayment),
    referenceGasPerPayment: Math.round(reference.gasPerPayment),
    verifyPerSecond: round1(ours.verifyPerSecond),
    referenceVerifyPerSecond: round1(reference.verifyPerSecond),
    settleMsP50: Math.round(ours.settleMsP50),
    settleMsP95: Math.round(ours.settleMsP95),
    blockMs: Math.round(ours.blockMs),
    settled: ours.settled,
    referenceSettled: reference.settled,
    managedReferenceSettled: managed.settled,
    managedReferenceSettlePerSecond: round1(managed.settlePerSecond),
    timesManagedReference: round2(ours.settlePerSecond / managed.settlePerSecond),
    shareOfCallersBound: round2((ours.settlePerSecond * ours.blockMs) / 1_000 / concurrency),
    timesReferenceVerify: round2(ours.verifyPerSecond / reference.verifyPerSecond),
    gasRatioToReference: round2(ours.gasPerPayment / reference.gasPerPayment),
  }
}

/** Measures the time of honest settlements one by one, first alone and then while another seller's API key settles very many payments. */
export async function measureCrowd(
  { facilitators, sign }: Rig,
  { crowd, probes }: Pick<typeof options, 'crowd' | 'probes'>,
  say: Say,
) {
  const { port, headersOf } = facilitators.ours
  const render = ({ seller, body }: ReturnType<Rig['sign']>[number]) =>
    renderPost('/settle', body, headersOf(seller))
  const settleOneByOne = async () => {
    const ms: number[] = []
    for (const payment of sign(probes)) {
      const honest = { ...payment, seller: 0 }
      const sent = await send({ requests: [render(honest)], isRight: isSettled, port, connections: 1 })
      ms.push(...sent.ms)
      // Each settlement starts at a random time within a block's interval.
      await wait(Math.random() * blockTimeMs)
    }
    say(`honest settlements, ms: ${ms.map(Math.round).join(' ')}`)
    return median(ms)
  }
  const alone = await settleOneByOne()
  const requests = sign(crowd).map((payment) => render({ ...payment, seller: 1 }))
  // Accept any answer, because the facilitator refuses payments above the limit of one API key. Use fewer connections than payments, because
  // the server limits the number of connections.
  const crowded = send({ requests, isRight: () => true, port, connections: Math.min(crowd, 900) })
  await wait(500)
  const beside = await settleOneByOne()
  await crowded
  return {
    settleMsAlone: Math.round(alone),
    settleMsBesideCrowd: Math.round(beside),
    timesAlone: round2(beside / alone),
  }
}

function isSettled({ body }: { body: Buffer }): boolean {
  return (JSON.parse(body.toString()) as { success?: boolean }).success === true
}

/** Starts our keeper and the reference as separate processes, and signs payments for them. */
export async function startRig(bench: Bench) {
  const { chain, served, buyers, database } = bench
  // Each seller is a separate provider with an API key, because the facilitator limits the open payments of a provider, and most payments
  // that are verified here stay open until their reservations expire.
  const apiKeys = await Promise.all(
    sellers.map(async () => (await issueApiKey(database, (await seedProvider(database)).providerId)).apiKey),
  )
  const reference = await bench.startServer('referenceServer.ts', [chain.url])
  const managed = await bench.startServer('referenceServer.ts', [chain.url, 'manages-nonces'], 'managed')
  // The allowance is high, because one seller here sends as many payments as a thousand would.
  const keeper = await bench.startKeeper(bench.databaseUrl, 1, { GAS_ALLOWANCE_USD: '1000000' })
  const authorize = createAuthorizer(served.token)
  let made = 0
  return {
    client: served.client,
    facilitators: {
      ours: {
        port: keeper.port,
        headersOf: (seller: number) => ({ authorization: `Bearer ${apiKeys[seller]}` }),
      },
      reference: { port: reference.port, headersOf: () => ({}) },
      managed: { port: managed.port, headersOf: () => ({}) },
    },
    /** Signs new payments for the sellers in turn. Returns the request bodies for `/verify` and `/settle`. */
    sign: (count: number) =>
      Array.from({ length: count }, () => {
        const buyer = buyers[made % buyers.length] as Buyer
        const seller = made % sellers.length
        made += 1
        const payment = authorize(buyer, sellers[seller] as Address, price, randomHex(32))
        return { seller, body: createX402Body(payment, served.token, 'https://seller.example/') }
      }),
  }
}
