/**
 * How fast other people's sellers settle here, beside the x402 reference facilitator on the same chain, once as it is
 * published and once with viem's nonce manager: processes of their own behind HTTP, each with one gas wallet; rounds take turns.
 */
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { type Address, type Hex, numberToHex, toHex } from 'viem'
import { issueApiKey } from '#api/registry/apiKeys'
import { openServedNetworks, type ServedNetwork } from '#chain/servedNetworks'
import { openDatabase } from '#ledger/store/database'
import { migrate } from '#ledger/store/migrate'
import { loopback, reservePort } from '#process/port'
import { networks } from '#protocol/networks'
import { startIndexer } from '../indexer/launch.ts'
import { devPrivateKey } from '../local/chain/accounts.ts'
import { startLocalChain } from '../local/chain/startLocalChain.ts'
import { startPostgres } from '../local/stack/postgres.ts'
import { Service } from '../local/stack/service.ts'
import { createBuyers, insertProvider } from './data/signPayments.ts'
import { type Answer, renderPost, saturate } from './gateway/load.ts'
import { createAuthorizer } from './gateway/rig.ts'
import { createX402Body } from './gateway/x402Body.ts'
import { median, percentile } from './support/statistics.ts'

const blockTimeMs = 2_000
const platform: Address = '0x00000000000000000000000000000000000fee00'
const sellers = Array.from({ length: 20 }, (_, i): Address => numberToHex(0xa000 + i, { size: 20 }))
const price = 10_000n

const names = ['reference', 'managed', 'ours'] as const
/** `managed`: the reference, with a nonce manager. */
type Name = (typeof names)[number]

/** What sellers ask. */
type Facilitator = { port: number; headers: Record<string, string> }

type Rig = {
  served: ServedNetwork
  facilitators: Record<Name, Facilitator>
  /** Lets Postgres learn how its tables have filled, as it does by itself once a minute. */
  analyze: () => Promise<void>
  /** Signs new payments, as the bodies that `/verify` and `/settle` take. */
  sign: (count: number) => unknown[]
  close: () => Promise<void>
}

/** `settled` of the verified payments are settled; the others' reservations run out. */
type Load = { verified: number; settled: number; concurrency: number }

export async function run(args: string[]): Promise<object> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      rounds: { type: 'string', default: '3' },
      verified: { type: 'string', default: '1000' },
      settled: { type: 'string', default: '256' },
      concurrency: { type: 'string', default: '64' },
    },
  })
  // With --json, standard output is the one line at the end.
  const say = (line: string) => (values.json ? console.error(line) : console.log(line))
  const [settled, concurrency] = [Number(values.settled), Number(values.concurrency)]
  const verified = Math.max(Number(values.verified), settled)
  const rig = await startRig()
  try {
    const runs: Record<Name, Run[]> = { ours: [], reference: [], managed: [] }
    // The first round warms everything up, gives each seller a balance, and isn't counted.
    for (let round = 0; round <= Number(values.rounds); round++) {
      for (const name of names) {
        // The reference is asked fewer times, as it takes longer.
        const load = { verified: name === 'ours' ? verified : settled, settled, concurrency }
        const result = await measure(rig, rig.facilitators[name], load)
        if (name !== 'reference' && result.settled < settled)
          throw new Error(`${name}: ${settled - result.settled} good payments were not settled`)
        say(`round ${round}: ${name.padEnd(9)} ${describe(result)}`)
        if (round > 0) runs[name].push(result)
      }
      if (round === 0) await rig.analyze()
    }
    return summarize(runs)
  } finally {
    await rig.close()
  }
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
  const of = (runs: Run[], name: Exclude<keyof Run, 'settleMs'>) => median(runs.map((one) => one[name]))
  const [settlePerSecond, referenceSettlePerSecond, managedSettlePerSecond] = [ours, reference, managed].map(
    (runs) => of(runs, 'settlePerSecond'),
  ) as [number, number, number]
  const ratio = (peer: number) => Math.round((settlePerSecond / peer) * 100) / 100
  return {
    settlePerSecond: round1(settlePerSecond),
    referenceSettlePerSecond: round1(referenceSettlePerSecond),
    timesReference: ratio(referenceSettlePerSecond),
    gasPerPayment: Math.round(of(ours, 'gasPerPayment')),
    referenceGasPerPayment: Math.round(of(reference, 'gasPerPayment')),
    verifyPerSecond: round1(of(ours, 'verifyPerSecond')),
    referenceVerifyPerSecond: round1(of(reference, 'verifyPerSecond')),
    settleMsP50: Math.round(median(ours.map(({ settleMs }) => median(settleMs)))),
    settleMsP95: Math.round(median(ours.map(({ settleMs }) => percentile(settleMs, 0.95)))),
    blockMs: Math.round(of(ours, 'blockMs')),
    settled: of(ours, 'settled'),
    referenceSettled: of(reference, 'settled'),
    managedReferenceSettled: of(managed, 'settled'),
    managedReferenceSettlePerSecond: round1(managedSettlePerSecond),
    timesManagedReference: ratio(managedSettlePerSecond),
  }
}

function describe({ settleMs, ...numbers }: Run): string {
  const rounded = Object.entries(numbers).map(([name, value]) => `${name} ${round1(value)}`)
  return `${rounded.join(', ')}, settleMs p50 ${round1(median(settleMs))} p95 ${round1(percentile(settleMs, 0.95))}`
}

const round1 = (value: number) => Math.round(value * 10) / 10

/** A chain, a durable Postgres, Ponder, our keeper and the reference, each as a process of its own. */
async function startRig(): Promise<Rig> {
  const closers: (() => Promise<unknown>)[] = []
  const close = async () => {
    for (const closer of closers.splice(0).reverse()) await closer()
  }
  try {
    const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-bench-'))
    closers.push(() => rm(folder, { recursive: true, force: true }))
    const postgres = await startPostgres()
    closers.push(postgres.close)
    const chain = await startLocalChain({ blockTimeMs: 0 })
    closers.push(chain.close)
    const deploymentsFile = join(folder, 'deployments.json')
    await writeFile(deploymentsFile, JSON.stringify(chain.deployments))
    const deployment = chain.deployments.localhost
    if (!deployment) throw new Error('the local chain has no deployment')
    const [served] = await openServedNetworks([
      { network: networks.localhost, deployment, rpcUrls: [chain.url] },
    ])
    if (!served) throw new Error('the local chain is not served')

    const databaseUrl = await postgres.createDatabase('facilitator')
    const indexer = await startIndexer({
      databaseUrl,
      rpcUrls: { localhost: chain.url },
      platformWallets: [platform],
      deploymentsFile,
    })
    closers.push(indexer.close)
    const apiKey = await register(databaseUrl, served.network.chainId)
    const buyers = createBuyers(1_000)
    await chain.mintUsdc(
      buyers.map(({ address }) => address),
      1_000_000_000_000n,
    )
    await indexer.ready
    await chain.setMining(blockTimeMs)

    const start = async (name: string, port: number, program: string[], env = {}) => {
      const service = new Service({
        ...{ name, program, env },
        url: `http://${loopback}:${port}`,
        readyPath: '/healthz',
        logFile: join(folder, `${name}.log`),
      })
      closers.push(() => service.stop())
      await service.start()
    }
    const ports = {
      ours: await reservePort(),
      reference: await reservePort(),
      managed: await reservePort(),
    }
    const referenceProgram = join(import.meta.dirname, 'gateway/referenceServer.ts')
    for (const name of ['reference', 'managed'] as const) {
      const options = name === 'managed' ? ['manages-nonces'] : []
      await start(name, ports[name], [referenceProgram, String(ports[name]), chain.url, ...options])
    }
    await start('keeper', ports.ours, [join(import.meta.dirname, '../keeper/main.ts')], {
      KEEPER_PORT: String(ports.ours),
      DATABASE_URL: databaseUrl,
      NETWORKS: 'localhost',
      RPC_URL_LOCALHOST: chain.url,
      DEPLOYMENTS_FILE: deploymentsFile,
      PLATFORM_WALLET: platform,
      KEEPER_PRIVATE_KEYS: devPrivateKey(10),
      LOG_LEVEL: 'info',
      // One seller asks for all that a thousand would.
      GAS_ALLOWANCE_USD: '1000000',
    })

    const authorize = createAuthorizer(served.token)
    let made = 0
    return {
      served,
      facilitators: {
        ours: { port: ports.ours, headers: { authorization: `Bearer ${apiKey}` } },
        reference: { port: ports.reference, headers: {} },
        managed: { port: ports.managed, headers: {} },
      },
      analyze: async () => {
        const sql = openDatabase({ url: databaseUrl, max: 1, applicationName: 'bench', limited: false })
        await sql`analyze`
        await sql.end({ timeout: 1 })
      },
      sign: (count) =>
        Array.from({ length: count }, () => {
          const [buyer, seller] = [buyers[made % buyers.length], sellers[made % sellers.length]]
          if (!buyer || !seller) throw new Error('no buyers, or nobody to pay')
          made += 1
          const payment = authorize(buyer, seller, price, toHex(randomBytes(32)))
          return createX402Body(served.token, 'https://seller.example/', payment)
        }),
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

/** @returns the API key of a new provider. */
async function register(databaseUrl: string, chainId: number): Promise<string> {
  const sql = openDatabase({ url: databaseUrl, max: 1, applicationName: 'bench', limited: false })
  try {
    await migrate(sql)
    await insertProvider(sql, chainId, sellers[0] as Address)
    const [provider] = await sql<[{ id: string }]>`select id from provider`
    return (await issueApiKey(sql, provider.id)).apiKey
  } finally {
    await sql.end({ timeout: 1 })
  }
}
