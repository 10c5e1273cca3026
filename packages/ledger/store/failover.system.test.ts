import { execFileSync } from 'node:child_process'
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { moveRecordHead } from '@tollkeeper/ledger/facts/record'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { type Postgres, startPostgres } from '../../../apps/devstack/stack/postgres.ts'
import { startCutProxy } from '../../../test/support/cutProxy.ts'
import { openShop } from '../../../test/support/gateway.ts'
import { createIndexTables, setIndexedHead } from '../../../test/support/indexTables.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { until } from '../../../test/support/until.ts'
import { useGateway } from '../../../test/support/useGateway.ts'
import { openDatabase } from './database.ts'
import { migrateAt } from './migrate.ts'

// Runs a real primary with the settings of docs/deployment.md, and a real standby, which is promoted when the primary's host is lost.

const gateway = useGateway()
const servers: Postgres[] = []
afterAll(() => Promise.all(servers.map((server) => server.close())))

const replication = { wal_level: 'replica', max_wal_senders: '4' }
const synchronous = {
  ...replication,
  synchronous_standby_names: 'ANY 1 (standby1, standby2)',
  synchronous_commit: 'on',
}

async function start(folder: string, settings: Record<string, string>): Promise<Postgres> {
  const server = await startPostgres({ folder, settings })
  servers.push(server)
  return server
}

async function startPair() {
  const parent = await mkdtemp(join(tmpdir(), 'tollkeeper-failover-'))
  onTestFinished(() => rm(parent, { recursive: true, force: true }))
  await chmod(parent, 0o755)
  const folders = { primary: join(parent, 'primary'), standby: join(parent, 'standby') }
  const first = await start(folders.primary, replication)
  await migrateAt(await first.createDatabase('tollkeeper'))
  await first.close()
  // Keep the files' owner: if the tests run as root, Postgres runs as another user, who must own the files.
  execFileSync('cp', ['-a', folders.primary, folders.standby])
  const primary = await start(folders.primary, synchronous)
  const { password, port } = new URL(primary.url)
  const info = `host=127.0.0.1 port=${port} user=postgres password=${password} application_name=standby1`
  const standbyData = join(folders.standby, 'data')
  await writeFile(join(standbyData, 'standby.signal'), '')
  await writeFile(join(standbyData, 'postgresql.auto.conf'), `primary_conninfo = '${info}'\n`)
  const startStandby = () => start(folders.standby, synchronous)
  /** Stops the primary the way a lost host does. */
  const losePrimary = async () => {
    const [pid = ''] = (await readFile(join(folders.primary, 'data/postmaster.pid'), 'utf8')).split('\n')
    process.kill(Number(pid), 'SIGKILL')
    await primary.exited
  }
  return { primary, startStandby, losePrimary }
}

/** Opens a gateway on a database, for a buyer's tab. */
async function openGateway(url: string) {
  const sql = openDatabase({ url, applicationName: 'api' })
  onTestFinished(() => sql.end({ timeout: 0 }))
  const { served } = gateway
  const { number, timestamp } = await served.client.getBlock()
  const { chainId } = served.network
  const app = gateway.withOptions({ sql })
  return {
    sql,
    app,
    prepare: async () => {
      await createIndexTables(sql)
      await setIndexedHead(sql, { chainId, blockNumber: Number(number), blockTime: Number(timestamp) })
      await moveRecordHead(sql, chainId, { blockNumber: number, readNumber: number, blockTime: timestamp })
      return openShop(app)
    },
  }
}

test('behavior: with a synchronous standby, a lost primary loses no receipt, and a receipt is issued only once a standby has it', async () => {
  const { primary, startStandby, losePrimary } = await startPair()
  const standby = await startStandby()
  const at = new URL(primary.url)
  const proxy = await startCutProxy(at.hostname, Number(at.port))
  onTestFinished(() => proxy.close())
  at.host = `127.0.0.1:${proxy.port}`
  at.pathname = '/tollkeeper'
  const { app, sql, prepare } = await openGateway(at.href)
  const shop = await prepare()
  const buyers = await Promise.all(
    Array.from({ length: 4 }, async () => openTab(gateway, await gateway.buyer(50_000_000n))),
  )
  const receipts: { tabId: string; sequence: number }[] = []
  let isLost = false
  const buying = buyers.map(async (tab) => {
    while (!isLost) {
      const body = await tab.sign(shop, {}, await tab.challenge(shop, app)).catch(() => undefined)
      if (body === undefined) return
      const { status, body: answer } = await tab.present(body, { app })
      if (status !== 200) return
      receipts.push({ tabId: tab.tabId, sequence: answer.tab.sequence })
    }
  })
  await until('receipts are given', () => receipts.length >= 40)
  await losePrimary()
  isLost = true
  proxy.cut()
  await Promise.all(buying)

  const promoted = new URL(standby.url)
  promoted.pathname = '/tollkeeper'
  const after = await openGateway(promoted.href)
  await after.sql`select pg_promote(true, 30)`
  const stored = await after.sql<{ tabId: string; sequence: number }[]>`
    select 'tab_' || encode(tab_id, 'hex') as "tabId", sequence::float8 as sequence from tabs.request`
  const known = new Set(stored.map(({ tabId, sequence }) => `${tabId} ${sequence}`))
  expect(receipts.filter(({ tabId, sequence }) => !known.has(`${tabId} ${sequence}`))).toEqual([])

  // The new primary has no standby yet.
  const tab = openTab(gateway, await gateway.buyer(1_000_000n))
  const challenge = await tab.challenge(shop, after.app)
  const body = await tab.sign(shop, {}, challenge)
  expect((await tab.present(body, { app: after.app })).status).toBe(503)
  await after.sql`alter system reset synchronous_standby_names`.catch(() => {})
  await sql.end({ timeout: 0 })
})
