import { execFile } from 'node:child_process'
import { appendFile, chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { loopback } from '@tollkeeper/runtime/port'

const run = promisify(execFile)

/**
 * Path of the script that starts a Citus cluster for the tests on this machine (`start <folder> <first port>`, `stop <folder>`),
 * with Debian's Postgres 15. The script isn't part of this repository.
 */
const script = process.env.TEST_CITUS_SCRIPT ?? ''
export const hasCitus = script !== ''

const binaries = '/usr/lib/postgresql/15/bin'

export type Citus = {
  /** URL of the coordinator. */
  url: string
  workers: readonly number[]
  /** Stops a worker immediately, like a crash. */
  kill(port: number): Promise<void>
  start(port: number): Promise<void>
  /** Adds an empty third worker. */
  addWorker(): Promise<number>
  /** Moves shards until all workers have the same number. Writes to a moving shard wait. */
  rebalance(): Promise<void>
  close(): Promise<void>
}

/** Starts a coordinator and two workers, on three consecutive ports. */
export async function startCitus(): Promise<Citus> {
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-citus-'))
  await chmod(folder, 0o755)
  // The ports are random, because a port that is free now may not have free neighbors.
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

/** Runs a command as another user than root, because a Postgres server refuses to run as root. */
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
