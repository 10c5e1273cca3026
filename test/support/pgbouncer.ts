import { spawn, spawnSync } from 'node:child_process'
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { sessionSettings } from '@tollkeeper/ledger/store/database'
import { connectQuery } from '@tollkeeper/ledger/store/pooler'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { reapWithUs, removeWithUs } from '@tollkeeper/runtime/reaper'

/** Whether this machine has PgBouncer. CI requires it. */
export const hasPgbouncer =
  spawnSync('pgbouncer', ['--version']).error === undefined || Boolean(process.env.CI)
if (!hasPgbouncer) {
  process.stderr.write(
    '\nLEFT OUT: tests behind PgBouncer: no pgbouncer in the PATH (Debian: apt-get install pgbouncer)\n\n',
  )
}

const committed = new URL('../../deploy/pgbouncer.ini', import.meta.url)

export type PgBouncer = {
  /** Returns the URL by which a process of this name reaches the database through the pooler. */
  urlOf: (name: 'api' | 'keeper') => string
  pid: () => number | undefined
  start: () => Promise<void>
  kill: () => Promise<void>
  close: () => Promise<void>
}

export type PgBouncerOptions = {
  /**
   * Maximum time in ms for which a keeper's session may be idle in a transaction. Set it if the keeper's lease is shorter than the default of
   * five seconds.
   */
  keeperIdleInTransactionMs?: number
  /** Changes the settings, after all other changes to them. */
  edit?: (settings: string) => string
}

/** Starts Debian's PgBouncer with the committed settings in front of a database. */
export async function startPgbouncer(
  databaseUrl: string,
  options: PgBouncerOptions = {},
): Promise<PgBouncer> {
  const database = new URL(databaseUrl)
  const folder = await mkdtemp('/tmp/tollkeeper-pgbouncer-')
  removeWithUs(folder)
  // PgBouncer refuses to run as root.
  await chmod(folder, 0o755)
  const port = await reservePort()
  const usersFile = join(folder, 'userlist.txt')
  await writeFile(usersFile, `"${database.username}" "${decodeURIComponent(database.password)}"\n`)
  const usual = connectQuery(sessionSettings())
  const [head = '', api = '', keeper = '', ...rest] = (await readFile(committed, 'utf8')).split(usual)
  if (rest.length > 0 || keeper === '') throw new Error('deploy/pgbouncer.ini: expected our limits twice')
  const settings = [
    head,
    usual,
    api,
    connectQuery(sessionSettings(options.keeperIdleInTransactionMs)),
    keeper,
  ]
    .join('')
    .replaceAll('host=postgres port=5432 dbname=tollkeeper', serverOf(database))
    .replace('listen_addr = 0.0.0.0', `listen_addr = ${loopback}`)
    .replace('listen_port = 6432', `listen_port = ${port}`)
    .replace('/etc/pgbouncer/userlist.txt', usersFile)
  const file = join(folder, 'pgbouncer.ini')
  await writeFile(file, options.edit?.(settings) ?? settings)

  let running: { pid: number | undefined; exited: Promise<unknown>; kill: (signal: NodeJS.Signals) => void }
  const start = async () => {
    const account = process.getuid?.() === 0 ? ['-u', 'nobody'] : []
    const child = spawn('pgbouncer', [...account, file], {
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    const forget = child.pid === undefined ? () => {} : reapWithUs(child.pid)
    const lines: string[] = []
    const exited = new Promise<void>((resolve) => {
      child.once('error', (error) => {
        lines.push(String(error))
        resolve()
      })
      child.once('close', () => resolve())
    }).finally(forget)
    running = { pid: child.pid, exited, kill: (signal) => void child.kill(signal) }
    const up = new Promise<boolean>((resolve) => {
      createInterface({ input: child.stderr }).on('line', (line) => {
        if (lines.push(line) > 30) lines.shift()
        if (line.includes('process up')) resolve(true)
      })
    })
    if (!(await Promise.race([up, exited]))) throw new Error(`PgBouncer didn't start:\n${lines.join('\n')}`)
  }
  const end = async (signal: NodeJS.Signals) => {
    running.kill(signal)
    await running.exited
  }
  await start()
  return {
    urlOf: (name) => {
      const url = new URL(databaseUrl)
      url.host = `${loopback}:${port}`
      url.pathname = `/${name}`
      return url.href
    },
    pid: () => running.pid,
    start,
    kill: () => end('SIGKILL'),
    close: async () => {
      await end('SIGTERM')
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function serverOf({ hostname, port, pathname }: URL): string {
  return `host=${hostname} port=${port} dbname=${pathname.slice(1)}`
}
