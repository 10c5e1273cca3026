/**
 * How fast other people's sellers settle here, beside the x402 reference facilitator on the same chain, once as it is
 * published and once with viem's nonce manager: processes of their own behind HTTP, each with one gas wallet; rounds take turns.
 */
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { type Hex, toHex } from 'viem'
import { issueApiKey } from '#api/registry/apiKeys'
import type { ServedNetwork } from '#chain/servedNetworks'
import { openDatabase } from '#ledger/store/database'
import { migrate } from '#ledger/store/migrate'
import { createAuthorizer, createBuyers, insertProvider } from './data/signPayments.ts'
import { type Answer, renderPost, saturate } from './gateway/load.ts'
import { createX402Body } from './gateway/x402Body.ts'
import { openGround, platform, payees as sellers } from './support/ground.ts'
import { inTurns, median, medianOf, percentile, round1, round2 } from './support/statistics.ts'

const blockTimeMs = 2_000
const price = 10_000n

const names = ['reference', 'managed', 'ours'] as const
/** `managed`: the reference, with a nonce manager. */
type Name = (typeof names)[number]

/** What sellers ask. */
type Facilitator = { port: number; headers: Record<string, string> }

type Rig = Awaited<ReturnType<typeof startRig>>

/** `settled` of the verified payments are settled; the others' reservations run out. */
type Load = { verified: number; settled: number; concurrency: number }

export const options = { rounds: 3, verified: 1_000, settled: 256, concurrency: 64 }

export async function run(
  { rounds, verified, settled, concurrency }: typeof options,
  say: (line: string) => void,
): Promise<object> {
  await using rig = await startRig()
  // The first round also gives each seller a balance.
  const runs = await inTurns(names, { counted: rounds, warmUps: 1 }, async (name, round) => {
    // The reference is asked fewer times, as it takes longer.
    const load = { verified: name === 'ours' ? Math.max(verified, settled) : settled, settled, concurrency }
    const result = await measure(rig, rig.facilitators[name], load)
    if (name !== 'reference' && result.settled < settled)
      throw new Error(`${name}: ${settled - result.settled} good payments were not settled`)
    say(`round ${round + 1}: ${name.padEnd(9)} ${describe(result)}`)
    if (round < 0 && name === names.at(-1)) await rig.analyze()
    return result
  })
  return summarize(runs)
}

type Run = {
  verifyPerSecond: number
  /** How many settlements succeeded. */
  settled: number
  settlePerSecond: number
  gasPerPayment: number
  transactions: number
  settleMs: number[]
  blockMs: number
}

/** Verifies payments, then settles some of them from the beginning of a block on. */
async function measure(rig: Rig, { port, headers }: Facilitator, load: Load): Promise<Run> {
  const { verified, settled, concurrency: connections } = load
  const payments = rig.sign(verified)
  const verification = await saturate({
    port,
    connections,
    requests: payments.map((payment) => renderPost('/verify', payment, headers)),
  })
  for (const answer of verification.answers) requireValid(answer)

  const client = rig.served.client
  const first = await nextBlock(client)
  const settlement = await saturate({
    port,
    connections,
    requests: payments.slice(0, settled).map((payment) => renderPost('/settle', payment, headers)),
  })
  const last = await nextBlock(client)
  const answers = settlement.answers.map(({ body }) => JSON.parse(body.toString()) as Record<string, unknown>)
  const successes = answers.flatMap((answer, index) =>
    answer.success === true ? { hash: answer.transaction as Hex, ms: settlement.ms[index] as number } : [],
  )
  const transactions = [...new Set(successes.map(({ hash }) => hash))]
  let gas = 0n
  for (const hash of transactions) {
    const { status, gasUsed } = await client.getTransactionReceipt({ hash })
    if (status !== 'success') throw new Error(`${hash} was answered as settled, and reverted`)
    gas += gasUsed
  }
  return {
    verifyPerSecond: verification.perSecond,
    settled: successes.length,
    settlePerSecond: (settlement.perSecond * successes.length) / settled,
    gasPerPayment: Number(gas) / successes.length,
    transactions: transactions.length,
    settleMs: successes.map(({ ms }) => ms),
    // The node's own period: it grows with what it executes, beside all else on the machine.
    blockMs: (last.seenAt - first.seenAt) / Number(last.number - first.number),
  }
}

function requireValid({ status, body }: Answer): void {
  const text = body.toString()
  if (status !== 200 || (JSON.parse(text) as { isValid?: unknown }).isValid !== true)
    throw new Error(`a good payment was answered ${status}: ${text.slice(0, 500)}`)
}

/** Both facilitators begin right after a block, so that neither is lucky with its first one. */
async function nextBlock(client: ServedNetwork['client']): Promise<{ number: bigint; seenAt: number }> {
  const before = await client.getBlockNumber({ cacheTime: 0 })
  for (;;) {
    const number = await client.getBlockNumber({ cacheTime: 0 })
    if (number > before) return { number, seenAt: performance.now() }
    await wait(20)
  }
}

/** The reference's figures are those of the published one; it settles only some of what it is asked to. */
function summarize({ ours, reference, managed }: Record<Name, Run[]>) {
  const of = (runs: Run[], name: Exclude<keyof Run, 'settleMs'>) => medianOf(runs, (one) => one[name])
  const [settlePerSecond, referenceSettlePerSecond, managedSettlePerSecond] = [ours, reference, managed].map(
    (runs) => of(runs, 'settlePerSecond'),
  ) as [number, number, number]
  return {
    settlePerSecond: round1(settlePerSecond),
    referenceSettlePerSecond: round1(referenceSettlePerSecond),
    timesReference: round2(settlePerSecond / referenceSettlePerSecond),
    gasPerPayment: Math.round(of(ours, 'gasPerPayment')),
    referenceGasPerPayment: Math.round(of(reference, 'gasPerPayment')),
    verifyPerSecond: round1(of(ours, 'verifyPerSecond')),
    referenceVerifyPerSecond: round1(of(reference, 'verifyPerSecond')),
    settleMsP50: Math.round(medianOf(ours, ({ settleMs }) => median(settleMs))),
    settleMsP95: Math.round(medianOf(ours, ({ settleMs }) => percentile(settleMs, 0.95))),
    blockMs: Math.round(of(ours, 'blockMs')),
    settled: of(ours, 'settled'),
    referenceSettled: of(reference, 'settled'),
    managedReferenceSettled: of(managed, 'settled'),
    managedReferenceSettlePerSecond: round1(managedSettlePerSecond),
    timesManagedReference: round2(settlePerSecond / managedSettlePerSecond),
  }
}

function describe({ settleMs, ...numbers }: Run): string {
  const rounded = Object.entries(numbers).map(([name, value]) => `${name} ${round1(value)}`)
  return `${rounded.join(', ')}, settleMs p50 ${round1(median(settleMs))} p95 ${round1(percentile(settleMs, 0.95))}`
}

/** A chain, a durable Postgres, Ponder, our keeper and the reference, each as a process of its own. */
async function startRig() {
  await using starting = new AsyncDisposableStack()
  const ground = starting.use(await openGround())
  const { chain, served, startService } = ground
  const databaseUrl = await ground.postgres.createDatabase('facilitator')
  const indexer = await ground.startIndexer(databaseUrl)
  const database = openDatabase({ url: databaseUrl, max: 1, applicationName: 'bench', limited: false })
  ground.defer(() => database.end({ timeout: 1 }))
  await migrate(database)
  await insertProvider(database, served.network.chainId, sellers[0] ?? platform)
  const [provider] = await database<[{ id: string }]>`select id from provider`
  const { apiKey } = await issueApiKey(database, provider.id)
  const buyers = createBuyers(1_000)
  await chain.mintUsdc(
    buyers.map(({ address }) => address),
    1_000_000_000_000n,
  )
  await indexer.ready
  await chain.setMining(blockTimeMs)

  const program = join(import.meta.dirname, 'gateway/referenceServer.ts')
  const reference = await startService({ name: 'reference', program: [program, chain.url] })
  const managed = await startService({ name: 'managed', program: [program, chain.url, 'manages-nonces'] })
  // One seller asks for all that a thousand would.
  const keeper = await ground.startKeeper(databaseUrl, 1, { GAS_ALLOWANCE_USD: '1000000' })
  starting.move()

  const authorize = createAuthorizer(served.token)
  let made = 0
  return {
    served,
    facilitators: {
      ours: { port: keeper.port, headers: { authorization: `Bearer ${apiKey}` } },
      reference: { port: reference.port, headers: {} },
      managed: { port: managed.port, headers: {} },
    },
    /** Lets Postgres learn how its tables have filled, as it does by itself once a minute. */
    analyze: () => database`analyze`,
    /** Signs new payments, as the bodies that `/verify` and `/settle` take. */
    sign: (count: number) =>
      Array.from({ length: count }, () => {
        const [buyer, seller] = [buyers[made % buyers.length], sellers[made % sellers.length]]
        if (!buyer || !seller) throw new Error('no buyers, or nobody to pay')
        made += 1
        const payment = authorize(buyer, seller, price, toHex(randomBytes(32)))
        return createX402Body(served.token, 'https://seller.example/', payment)
      }),
    [Symbol.asyncDispose]: ground[Symbol.asyncDispose],
  }
}
