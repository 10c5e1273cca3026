/** What a payment's life writes to Postgres' log (WAL) and takes of its CPU, stage by stage, by the ledger's own functions. */
import { setTimeout as wait } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import type { Evidence } from '#chain/evidence'
import { acceptPayments, type Candidate } from '#ledger/acceptance/acceptPayments'
import type { BatchRow } from '#ledger/batches/batches'
import type { Lease } from '#ledger/batches/leases'
import { type Database, openDatabase } from '#ledger/store/database'
import { migrate } from '#ledger/store/migrate'
import { startPostgres } from '../local/stack/postgres.ts'
import { seedChainId, seedProvider } from '../test/support/seedPayments.ts'
import { makeCandidate, randomHex, type Seller } from './data/makeCandidate.ts'
import { cpuTimeOfTree, parentOf } from './support/cpuTime.ts'
import { createLives, type Mined, type Sent } from './support/lives.ts'
import { median } from './support/statistics.ts'

/** Told, and what vacuuming writes, are apart: a payment's life is the five before them. */
const life = ['accepted', 'claimed', 'sent', 'recorded', 'ended'] as const
const stages = [...life, 'told', 'vacuumed'] as const
type Stage = (typeof stages)[number]
type Used = Record<Stage, { walBytes: number; cpuUs: number }>

const scope = { chainId: seedChainId, token: randomHex(20) }
const batchSize = 173
/** As ledger/acceptance/acceptance.ts has them. */
const [groupSize, groupsUnderWay] = [48, 3]
const buyers = Array.from({ length: 1_000 }, () => randomHex(20))
/** A checkpoint makes the first change of each page write all of it; a server that was just started has few pages. */
const warmUps = 3

export async function run(args: string[]): Promise<object> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      payments: { type: 'string', default: '10000' },
      rounds: { type: 'string', default: '3' },
    },
  })
  const say = (line: string) => (values.json ? console.error(line) : console.log(line))
  const server = await startPostgres()
  const sql = openDatabase({
    ...{
      url: await server.createDatabase('life'),
      max: groupsUnderWay,
      applicationName: 'bench',
      limited: false,
    },
  })
  try {
    await migrate(sql)
    const sellers: Seller[] = []
    for (let i = 0; i < 20; i++) {
      const { providerId, wallet, endpointIds } = await seedProvider(sql, 5)
      sellers.push(...endpointIds.map((endpointId) => ({ providerId, endpointId, payee: wallet })))
    }
    await sql`alter system set autovacuum = off`
    const [{ pid }] = await sql<[{ pid: number }]>`select pg_backend_pid() as pid`
    const postmaster = await parentOf(pid)
    const rounds: Record<'on' | 'off', Used[]> = { on: [], off: [] }
    const live = createRound(sql, postmaster, sellers, Number(values.payments))
    for (let round = -warmUps; round < Number(values.rounds); round++) {
      for (const pages of round < 0 ? (['on'] as const) : (['on', 'off'] as const)) {
        await sql`alter system set full_page_writes = ${sql.unsafe(pages)}`
        await sql`select pg_reload_conf()`
        await wait(200)
        const used = await live()
        say(
          `round ${round}, whole pages ${pages}: ${stages.map((stage) => `${stage} ${Math.round(used[stage].walBytes)} B ${Math.round(used[stage].cpuUs)} µs`).join(', ')}`,
        )
        if (round >= 0) rounds[pages].push(used)
        if (round === -1) await sql`analyze`
      }
    }
    const of = (some: Used[], what: 'walBytes' | 'cpuUs') =>
      Object.fromEntries(
        stages.map((stage) => [stage, Math.round(median(some.map((one) => one[stage][what])))]),
      ) as Record<Stage, number>
    const sum = (byStage: Record<Stage, number>) => life.reduce((total, stage) => total + byStage[stage], 0)
    const [walBytes, withoutPages] = [of(rounds.on, 'walBytes'), of(rounds.off, 'walBytes')]
    const cpuUs = of([...rounds.on, ...rounds.off], 'cpuUs')
    return {
      walBytesPerLife: sum(walBytes),
      walBytesPerLifeWithoutPages: sum(withoutPages),
      cpuUsPerAcceptance: cpuUs.accepted,
      cpuUsPerLife: sum(cpuUs),
      ...{ walBytes, walBytesWithoutPages: withoutPages, cpuUs },
    }
  } finally {
    await sql.end({ timeout: 1 })
    await server.close()
  }
}

/** Lets payments live, each stage of all of them before the next one, from a checkpoint on. */
function createRound(sql: Database, postmaster: number, sellers: Seller[], payments: number) {
  const lives = createLives(sql, scope)
  const wallets = Array.from({ length: Math.ceil(payments / batchSize) }, () => randomHex(20))
  let made = 0
  let block = 1_000n

  /** A buyer pays ten times in a row, and ten others meanwhile. */
  function nextCandidate(): Candidate {
    const run = Math.floor(made / 110) * 11 + (made % 11)
    made += 1
    const [payer, seller] = [buyers[run % buyers.length], sellers[(run * 7_919) % sellers.length]]
    if (!payer || !seller) throw new Error('no buyers, or nobody to pay')
    return makeCandidate(Date.now(), seller, { payer, ...scope })
  }
  async function look() {
    const [row] = await sql<[{ wal: number }]>`select (pg_current_wal_insert_lsn() - '0/0')::float8 as wal`
    return { wal: row.wal, cpu: await cpuTimeOfTree(postmaster) }
  }

  return async (): Promise<Used> => {
    const leases: Lease[] = []
    for (const wallet of wallets) leases.push(await lives.lease(wallet))
    const candidates = Array.from({ length: payments }, nextCandidate)
    const ids = candidates.map(({ id }) => id)
    await sql`checkpoint`
    const used: Partial<Used> = {}
    const measure = async <Result>(stage: Stage, work: () => Promise<Result>): Promise<Result> => {
      const before = await look()
      const result = await work()
      const after = await look()
      used[stage] = {
        walBytes: (after.wal - before.wal) / payments,
        cpuUs: (after.cpu - before.cpu) / payments,
      }
      return result
    }

    await measure('accepted', async () => {
      const accept = async () => {
        for (;;) {
          const group = candidates.splice(0, groupSize)
          if (group.length === 0) return
          const verdicts = await acceptPayments(sql, group)
          if (verdicts.some((verdict) => verdict !== 'accepted')) throw new Error(`refused: ${verdicts}`)
        }
      }
      await Promise.all(Array.from({ length: groupsUnderWay }, accept))
    })
    const claimed = await measure('claimed', async () => {
      const batches: [Lease, BatchRow][] = []
      for (const [i, lease] of leases.entries())
        batches.push([
          lease,
          await lives.claim(lease, ids.slice(i * batchSize, (i + 1) * batchSize), new Date()),
        ])
      return batches
    })
    const sent = await measure('sent', async () => {
      const some: Sent[] = []
      for (const [lease, batch] of claimed) some.push(await lives.send(lease, batch))
      return some
    })
    const mined: [Mined, Evidence[]][] = []
    for (const one of sent) {
      block += 1n
      const blockTime = BigInt(Math.floor(Date.now() / 1000))
      const batch = { ...one, block: { blockNumber: block, blockHash: randomHex(32), blockTime } }
      mined.push([batch, await lives.readEvents(batch)])
    }
    await measure('recorded', async () => {
      for (const [batch, events] of mined) await lives.record(batch, events)
    })
    await measure('told', async () => {
      for (const [batch] of mined) await lives.confirm(batch, new Date())
    })
    await measure('ended', async () => {
      for (const [batch] of mined) await lives.end(batch, new Date())
    })
    await measure(
      'vacuumed',
      () => sql`vacuum queue, payer, outcome, batch, batch_item, transaction, revenue, payer_revenue`,
    )
    const [row] = await sql<[{ left: number }]>`select count(*)::int as left from queue`
    if (row.left > 0) throw new Error(`${row.left} payments did not end`)
    return used as Used
  }
}
