import { execFile } from 'node:child_process'
import { appendFile, chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { loopback } from '@tollkeeper/runtime/port'

const run = promisify(execFile)

/**
 * Where the tests on Citus find a cluster: `TEST_CITUS_SCRIPT` is a script that starts one on this machine (`start <folder>
 * <first port>`, `stop <folder>`), with Debian's Postgres 15. It isn't part of this repository.
 */
const script = process.env.TEST_CITUS_SCRIPT ?? ''
export const hasCitus = script !== ''

const binaries = '/usr/lib/postgresql/15/bin'

export type Citus = {
  /** Of the coordinator. */
  url: string
  workers: readonly number[]
  /** Ends a worker at once, as a crash does. */
  kill(port: number): Promise<void>
  start(port: number): Promise<void>
  /** Adds a third worker, empty. */
  addWorker(): Promise<number>
  /** Moves shards until all workers have as many. Writes to one that moves wait. */
  rebalance(): Promise<void>
  close(): Promise<void>
}

/** A coordinator and two workers, on three ports in a row. */
export async function startCitus(): Promise<Citus> {
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-citus-'))
  await chmod(folder, 0o755)
  // Random, since a port that is free now may not have free neighbours.
  const first = 20_000 + Math.floor(Math.random() * 10_000)
  await run('bash', [script, 'start', folder, String(first)], { timeout: 120_000 })
  const workers = [first + 1, first + 2]

  async function control(port: number, ...args: string[]): Promise<void> {
    await asPostgres(`${binaries}/pg_ctl -D ${folder}/${port} -l ${folder}/${port}.log ${args.join(' ')}`)
  }

  return {
    url: `postgres://postgres@${loopback}:${first}/postgres`,
    workers,
    kill: (port) => control(port, '-m', 'immediate', '-w', 'stop'),
    start: (port) => control(port, '-w', 'start'),
    async addWorker() {
      const port = first + 3
      await asPostgres(`${binaries}/initdb -D ${folder}/${port} -A trust -U postgres`)
      await appendFile(
        join(folder, String(port), 'postgresql.conf'),
        `port = ${port}\nlisten_addresses = '${loopback}'\nunix_socket_directories = '${folder}'\nshared_preload_libraries = 'citus'\n`,
      )
      await control(port, '-w', 'start')
      await execute(port, 'create extension citus')
      await execute(first, `select citus_add_node('${loopback}', ${port})`)
      return port
    },
    rebalance: () =>
      execute(first, "select rebalance_table_shards('tabs.tab', shard_transfer_mode => 'block_writes')"),
    async close() {
      await run('bash', [script, 'stop', folder]).catch(() => {})
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** A server of Postgres refuses to be root's. */
async function asPostgres(command: string): Promise<void> {
  const isRoot = process.getuid?.() === 0
  await (isRoot ? run('su', ['postgres', '-c', command]) : run('bash', ['-c', command]))
}

async function execute(port: number, statement: string): Promise<void> {
  const sql = openDatabase({
    url: `postgres://postgres@${loopback}:${port}/postgres`,
    max: 1,
    applicationName: 'test',
    limited: false,
  })
  await sql.unsafe(statement).finally(() => sql.end({ timeout: 1 }))
}
