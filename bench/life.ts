/** What a payment's life writes to Postgres' log (WAL) and takes of its CPU, stage by stage, by the ledger's own functions. */
import { setTimeout as wait } from 'node:timers/promises'
import type { Evidence } from '#chain/evidence'
import { acceptPayments, type Candidate } from '#ledger/acceptance/acceptPayments'
import type { BatchRow } from '#ledger/batches/batches'
import type { Lease } from '#ledger/batches/leases'
import { type Database, openDatabase } from '#ledger/store/database'
import { migrate } from '#ledger/store/migrate'
import { startPostgres } from '../local/stack/postgres.ts'
import { seedChainId, seedProvider } from '../test/support/seedPayments.ts'
import { makeCandidate, randomHex, type Seller } from './data/makeCandidate.ts'
import { cpuTimeOfTree } from './support/cpuTime.ts'
import { findPostmaster } from './support/ground.ts'
import { createLives, type Mined, type Sent } from './support/lives.ts'
import { inTurns, mapValues, medianOf } from './support/statistics.ts'

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

export const options = { payments: 10_000, rounds: 3 }

export async function run(
  { payments, rounds }: typeof options,
  say: (line: string) => void,
): Promise<object> {
  await using opened = new AsyncDisposableStack()
  const server = await startPostgres()
  opened.defer(server.close)
  const url = await server.createDatabase('life')
  const sql = openDatabase({ url, max: groupsUnderWay, applicationName: 'bench', limited: false })
  opened.defer(() => sql.end({ timeout: 1 }))
  await migrate(sql)
  const sellers: Seller[] = []
  for (let i = 0; i < 20; i++) {
    const { providerId, wallet, endpointIds } = await seedProvider(sql, 5)
    sellers.push(...endpointIds.map((endpointId) => ({ providerId, endpointId, payee: wallet })))
  }
  await sql`alter system set autovacuum = off`
  const live = createRound(sql, await findPostmaster(sql), sellers, payments)
  const measure = async (pages: 'on' | 'off', round: number) => {
    await sql`alter system set full_page_writes = ${sql.unsafe(pages)}`
    await sql`select pg_reload_conf()`
    await wait(200)
    const one = await live()
    const byStage = stages.map(
      (stage) => `${stage} ${Math.round(one[stage].walBytes)} B ${Math.round(one[stage].cpuUs)} µs`,
    )
    say(`round ${round + 1}, whole pages ${pages}: ${byStage.join(', ')}`)
    return one
  }
  await inTurns(['on'], { counted: 0, warmUps }, measure)
  await sql`analyze`
  const used = await inTurns(['on', 'off'], { counted: rounds }, measure)
  const of = (some: Used[], what: 'walBytes' | 'cpuUs') =>
    mapValues(used.on[0] as Used, (_, stage) => Math.round(medianOf(some, (one) => one[stage][what])))
  const sum = (byStage: Record<Stage, number>) => life.reduce((total, stage) => total + byStage[stage], 0)
  const [walBytes, walBytesWithoutPages] = [of(used.on, 'walBytes'), of(used.off, 'walBytes')]
  const cpuUs = of([...used.on, ...used.off], 'cpuUs')
  return {
    walBytesPerLife: sum(walBytes),
    walBytesPerLifeWithoutPages: sum(walBytesWithoutPages),
    cpuUsPerAcceptance: cpuUs.accepted,
    cpuUsPerLife: sum(cpuUs),
    ...{ walBytes, walBytesWithoutPages, cpuUs },
  }
}

/** Lets payments live from a checkpoint on: all of them reach a stage before any reaches the next one. */
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
