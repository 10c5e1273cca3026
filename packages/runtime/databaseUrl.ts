import { userInfo } from 'node:os'

// A Postgres URL means the same to the api, the keeper, the indexer and the commands, because only this module reads it. Each
// driver gets options instead of the URL: drivers interpret `sslmode` differently, and one of them sends every unknown parameter
// to the server, which then rejects the session.

/** The address of a database server, and how to connect to it. */
export type DatabaseServer = {
  /** A host name, an IP address without brackets, or the folder of a Unix socket (which starts with a slash). */
  host: string
  port: number
  user: string
  password: string
  database: string
  /** TLS settings. Null: the session is never encrypted. */
  tls: DatabaseTls | null
  /** Options of the session, such as `-c work_mem=8MB`. Settings that a process sets itself take precedence. */
  sessionOptions: string | null
  /** Maximum time in seconds to start a session; null: the process's own limit. */
  connectSeconds: number | null
  /** Parameters in the URL that have no effect here. */
  ignored: IgnoredParameter[]
}

export type DatabaseTls = {
  /** Whether to connect without TLS if the server has none. */
  isOptional: boolean
  /**
   * What is verified about the server's certificate: nothing, the authority that signed it, or both the authority and the host
   * name.
   */
  verify: 'nothing' | 'authority' | 'host'
  /** The authorities to trust: only Node.js's (`node`), also the operating system's (`system`), or only those in a PEM file. */
  authorities: 'node' | 'system' | { file: string }
  /** PEM files of a client certificate. */
  certificateFile: string | null
  keyFile: string | null
  keyPassphrase: string | null
}

export type IgnoredParameter = {
  name: string
  reason: string
  /** Whether the URL requires a protection that the session doesn't provide. */
  isWeaker: boolean
}

/** The result of reading a URL: a server, or a fault. A fault never contains a password. */
export type ReadDatabaseUrl = { server: DatabaseServer } | { fault: string }

const sslModes = ['disable', 'allow', 'prefer', 'require', 'no-verify', 'verify-ca', 'verify-full'] as const
type SslMode = (typeof sslModes)[number]

type Rule = {
  /** `ignored`: the parameter is accepted but has no effect, for this reason. */
  use: 'used' | 'ignored'
  reason?: string
  /** Accepts a value. Default: any value. */
  accepts?: (value: string) => boolean
  /** Explanation at the end of the message for a rejected value. */
  otherwise?: string
  /** The variable of libpq that applies if the URL lacks the parameter. */
  variable?: string
}

const used = (accepts?: Rule['accepts'], otherwise?: string, variable?: string): Rule => ({
  use: 'used',
  ...(accepts && { accepts }),
  ...(otherwise !== undefined && { otherwise }),
  ...(variable !== undefined && { variable }),
})
const ignored = (reason: string, accepts?: Rule['accepts'], otherwise?: string): Rule => ({
  use: 'ignored',
  reason,
  ...(accepts && { accepts }),
  ...(otherwise !== undefined && { otherwise }),
})
const oneOf =
  (...values: readonly string[]) =>
  (value: string) =>
    values.includes(value)
const isWhole = (value: string) => /^\d{1,6}$/.test(value)

const ownLimits = 'each process sets its own limits'
const ownPool = 'each process sizes its pool itself'
const ownProbes = 'the sessions probe their connections by themselves'
const ownNames = 'each process names its sessions itself'
const ownSchema = 'the tables are in separate schemas'
const vendors = 'only its vendor’s own tools read it'

/** All parameters that a URL may have. A URL with any other parameter is rejected. docs/postgres.md has the same table. */
export const databaseParameters: Readonly<Record<string, Rule>> = {
  host: used(undefined, undefined, 'PGHOST'),
  port: used((value) => isPort(value), 'a port is a number from 1 to 65535', 'PGPORT'),
  user: used(undefined, undefined, 'PGUSER'),
  password: used(undefined, undefined, 'PGPASSWORD'),
  dbname: used(undefined, undefined, 'PGDATABASE'),
  sslmode: used(oneOf(...sslModes), `it is one of ${sslModes.join(', ')}`, 'PGSSLMODE'),
  ssl: used(oneOf('true', '1', 'false', '0', ...sslModes), 'it is true, false or a mode of sslmode'),
  sslrootcert: used(undefined, undefined, 'PGSSLROOTCERT'),
  sslcert: used(undefined, undefined, 'PGSSLCERT'),
  sslkey: used(undefined, undefined, 'PGSSLKEY'),
  sslpassword: used(),
  connect_timeout: used(isWhole, 'it is a whole number of seconds', 'PGCONNECT_TIMEOUT'),
  options: used(undefined, undefined, 'PGOPTIONS'),
  target_session_attrs: used(
    oneOf('any', 'read-write', 'primary', 'prefer-standby'),
    'each process writes, so the server must be the primary: use read-write',
  ),

  channel_binding: ignored(
    'sessions have no channel binding; sslmode=verify-full protects against the same attack',
    oneOf('disable', 'prefer', 'require'),
    'it is one of disable, prefer, require',
  ),
  uselibpqcompat: ignored('sslmode always means what it means to libpq', oneOf('true', 'false')),
  sslnegotiation: ignored("TLS always starts with Postgres' SSLRequest", oneOf('postgres', 'direct')),
  sslsni: ignored('TLS always names the host', oneOf('0', '1')),
  sslcompression: ignored('TLS is never compressed', oneOf('0', '1')),
  sslaccept: ignored(
    'sslmode determines what is verified',
    oneOf('accept_invalid_certs'),
    'use sslmode=verify-full instead',
  ),
  gssencmode: ignored('sessions are encrypted by TLS', oneOf('disable', 'prefer'), 'use sslmode=require'),
  application_name: ignored(ownNames),
  fallback_application_name: ignored(ownNames),
  schema: ignored(ownSchema),
  search_path: ignored(ownSchema),
  currentSchema: ignored(ownSchema),
  pgbouncer: ignored('DATABASE_DIRECT_URL indicates a pooler', oneOf('true', 'false')),
  connection_limit: ignored(ownPool),
  pool_timeout: ignored(ownPool),
  pool_size: ignored(ownPool),
  pool_max_conns: ignored(ownPool),
  pool: ignored(ownPool),
  max: ignored(ownPool),
  idle_timeout: ignored(ownPool),
  max_lifetime: ignored(ownPool),
  socket_timeout: ignored(ownLimits),
  statement_timeout: ignored(ownLimits),
  lock_timeout: ignored(ownLimits),
  query_timeout: ignored(ownLimits),
  idle_in_transaction_session_timeout: ignored(ownLimits),
  transaction_timeout: ignored(ownLimits),
  statement_cache_size: ignored(ownPool),
  prepare: ignored('DATABASE_DIRECT_URL indicates a pooler'),
  keepalives: ignored(ownProbes),
  keepalives_idle: ignored(ownProbes),
  keepalives_interval: ignored(ownProbes),
  keepalives_count: ignored(ownProbes),
  tcp_user_timeout: ignored(ownProbes),
  load_balance_hosts: ignored('a URL names one host', oneOf('disable', 'random')),
  client_encoding: ignored(
    'sessions always use UTF-8',
    (value) => /^(auto|utf-?8|unicode)$/i.test(value),
    'sessions always use UTF-8',
  ),
  supa: ignored(vendors),
  workaround: ignored(vendors),
}

type Environment = Readonly<Record<string, string | undefined>>

/** Reads a Postgres URL. Parts that are missing in it are taken from libpq's variables, such as `PGPASSWORD`. */
export function readDatabaseUrl(text: string, env: Environment = process.env): ReadDatabaseUrl {
  try {
    return { server: readServer(text.trim(), env) }
  } catch (error) {
    if (error instanceof UrlFault) return { fault: error.message }
    throw error
  }
}

class UrlFault extends Error {}

const severalHosts = 'several hosts: name a single host, or an address that always leads to the primary'

/** Credentials may contain an `@`, as libpq permits, so only the last `@` separates them from the host. */
const urlForm = /^postgres(?:ql)?:\/\/(?:([^/?#]*)@)?([^/?#@]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/

function readServer(text: string, env: Environment): DatabaseServer {
  const match = urlForm.exec(text)
  if (match === null) {
    const isPostgres = /^postgres(ql)?:\/\//.test(text)
    throw new UrlFault(
      isPostgres
        ? 'a URL that breaks off: in user, password and name write # as %23, / as %2F and ? as %3F'
        : 'something else',
    )
  }
  const [, credentials, place = '', path = '', query = ''] = match
  const { host, port } = splitPlace(place)
  if (port !== '' && !isPort(port)) throw new UrlFault('a port that is not a number from 1 to 65535')
  const parameters = readParameters(query)
  const of = (name: string) => {
    const variable = databaseParameters[name]?.variable
    const inherited = variable === undefined ? undefined : env[variable]?.trim() || undefined
    if (inherited !== undefined && !parameters.has(name)) check(name, inherited, variable)
    return parameters.get(name) ?? inherited
  }
  const [user, password] = splitCredentials(credentials)
  const chosenUser = parameters.get('user') ?? (user || of('user')) ?? userInfo().username
  const chosenHost = parameters.get('host') ?? (host || of('host')) ?? 'localhost'
  if (chosenHost.includes(',')) throw new UrlFault(severalHosts)
  const isSocket = chosenHost.startsWith('/')
  return {
    host: chosenHost,
    port: Number(parameters.get('port') ?? (port || (of('port') ?? '5432'))),
    user: chosenUser,
    password: parameters.get('password') ?? (password || (of('password') ?? '')),
    database: parameters.get('dbname') ?? (decode(path, 'the name') || (of('dbname') ?? chosenUser)),
    tls: isSocket ? null : readTls(of),
    sessionOptions: of('options') ?? null,
    connectSeconds: Number(of('connect_timeout') ?? 0) || null,
    ignored: findIgnored(parameters),
  }
}

function splitPlace(place: string): { host: string; port: string } {
  // An IPv6 address is in brackets, because its colons could be mistaken for the colon before the port.
  const match = /^(?:\[([^\]]*)\]|([^:]*))(?::([^:]*))?$/.exec(place)
  if (place.includes(',')) throw new UrlFault(severalHosts)
  if (match === null) throw new UrlFault('a host with a colon: write an IPv6 address as [::1]')
  const [, address, name = '', port = ''] = match
  return { host: address ?? decode(name, 'the host'), port }
}

function splitCredentials(credentials = ''): [user: string, password: string] {
  const colon = credentials.indexOf(':')
  if (colon === -1) return [decode(credentials, 'the user'), '']
  return [
    decode(credentials.slice(0, colon), 'the user'),
    decode(credentials.slice(colon + 1), 'the password'),
  ]
}

function decode(text: string, what: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new UrlFault(`a % in ${what} that is not followed by two hex digits: write it as %25`)
  }
}

function isPort(text: string): boolean {
  return /^\d{1,5}$/.test(text) && Number(text) >= 1 && Number(text) <= 65_535
}

/** Returns the parameters by name, after checking each name and value. */
function readParameters(query: string): Map<string, string> {
  const parameters = new Map<string, string>()
  for (const part of query.split('&').filter((one) => one !== '')) {
    const equals = part.indexOf('=')
    const name = decode(equals === -1 ? part : part.slice(0, equals), 'a parameter')
    // Unlike in web forms, `+` isn't a space: libpq doesn't treat it as one, and a password may contain it.
    const value = equals === -1 ? '' : decode(part.slice(equals + 1), 'a parameter')
    check(name, value)
    const other = parameters.get(name)
    if (other !== undefined && other !== value) throw new UrlFault(`${name} twice, with different values`)
    if (value !== '') parameters.set(name, value)
  }
  return parameters
}

function check(name: string, value: string, label = `the parameter ${name}`): void {
  const rule = Object.hasOwn(databaseParameters, name) ? databaseParameters[name] : undefined
  if (rule === undefined) {
    // If a password contains an unescaped `?`, the rest of the password ends up here as a parameter. So show the text in the message
    // only if it can be a parameter's name.
    throw new UrlFault(
      /^[A-Za-z_]{1,40}$/.test(name)
        ? `the parameter ${name}, which is not supported: remove it`
        : 'a parameter that has no name: in user, password and name write ? as %3F',
    )
  }
  if (value === '' || rule.accepts === undefined || rule.accepts(value)) return
  const advice = rule.otherwise === undefined ? '' : `: ${rule.otherwise}`
  throw new UrlFault(`${label}=${value.slice(0, 40)}${advice}`)
}

function findIgnored(parameters: ReadonlyMap<string, string>): IgnoredParameter[] {
  return [...parameters].flatMap(([name, value]) => {
    const { use, reason = '' } = databaseParameters[name] ?? {}
    const isWeaker = name === 'channel_binding' && value === 'require'
    return use === 'ignored' ? [{ name, reason, isWeaker }] : []
  })
}

/** Returns the meaning of `sslmode` according to libpq; see the PostgreSQL manual, "SSL Support". */
function readTls(of: (name: string) => string | undefined): DatabaseTls | null {
  const root = of('sslrootcert')
  const mode = readMode(of, root)
  if (mode === 'disable') return null
  const verified = {
    allow: 'nothing',
    prefer: 'nothing',
    // With a configured authority, `require` also requires a certificate signed by that authority.
    require: root === undefined ? 'nothing' : 'authority',
    'no-verify': 'nothing',
    'verify-ca': 'authority',
    'verify-full': 'host',
  } as const
  return {
    isOptional: mode === 'allow' || mode === 'prefer',
    verify: root === 'system' ? 'host' : verified[mode],
    authorities: root === undefined ? 'node' : root === 'system' ? 'system' : { file: root },
    certificateFile: of('sslcert') ?? null,
    keyFile: of('sslkey') ?? null,
    keyPassphrase: of('sslpassword') ?? null,
  }
}

function readMode(of: (name: string) => string | undefined, root: string | undefined): SslMode {
  const ssl = of('ssl')
  const words: Record<string, SslMode> = {
    true: 'verify-full',
    1: 'verify-full',
    false: 'disable',
    0: 'disable',
  }
  const fromSsl = ssl === undefined ? undefined : (words[ssl] ?? (ssl as SslMode))
  const sslmode = of('sslmode') as SslMode | undefined
  const mode = sslmode ?? fromSsl
  const isOff = (one: SslMode) => one === 'disable'
  if (sslmode !== undefined && fromSsl !== undefined && isOff(sslmode) !== isOff(fromSsl)) {
    throw new UrlFault('ssl and sslmode, which contradict each other: remove ssl')
  }
  if (root === 'system') {
    if (mode === 'disable')
      throw new UrlFault('sslrootcert=system and sslmode=disable, which contradict each other')
    return 'verify-full'
  }
  return mode ?? 'prefer'
}
