import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { type ConnectionOptions, getCACertificates } from 'node:tls'
import { type DatabaseServer, type DatabaseTls, readDatabaseUrl } from '@tollkeeper/runtime/databaseUrl'
import { ConfigError, type Environment, readVariable } from '@tollkeeper/runtime/env'
import type { Logger } from '@tollkeeper/runtime/log'
import { databaseUrl } from '@tollkeeper/runtime/parsers'
import { tlsAccepted, tlsRequest } from './databaseSocket.ts'

/** @throws {ConfigError} that names the variable with the URL. */
export function databaseServerOf(url: string, variable = 'DATABASE_URL'): DatabaseServer {
  const read = readDatabaseUrl(url)
  if ('server' in read) return read.server
  throw new ConfigError(variable, databaseUrl.expected, read.fault)
}

/**
 * Returns the options for Node's TLS that a URL requires.
 *
 * @throws {ConfigError} if a file that the URL names can't be read.
 */
export function tlsOptionsOf(tls: DatabaseTls): ConnectionOptions {
  const { verify, authorities, certificateFile, keyFile, keyPassphrase } = tls
  const options: ConnectionOptions = { rejectUnauthorized: verify !== 'nothing' }
  if (verify === 'authority') options.checkServerIdentity = () => undefined
  if (authorities === 'system') options.ca = [...getCACertificates('default'), ...getCACertificates('system')]
  else if (authorities !== 'node') options.ca = readPem('sslrootcert', authorities.file)
  if (certificateFile !== null) options.cert = readPem('sslcert', certificateFile)
  if (keyFile !== null) options.key = readPem('sslkey', keyFile)
  if (keyPassphrase !== null) options.passphrase = keyPassphrase
  return options
}

function readPem(parameter: string, path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? ` (${error.code})` : ''
    throw new ConfigError('DATABASE_URL', 'a PEM file', `${parameter}=${path}, which can't be read${code}`)
  }
}

/** Returns the postgres.js options for the server's address. The caller sets up TLS. */
export function placeOf(server: DatabaseServer) {
  const { host, port, user, password, database, sessionOptions } = server
  return {
    // Pass lists, since postgres.js would split an IPv6 address at its colons.
    host: [host],
    port: [port],
    ...(host.startsWith('/') && { path: `${host}/.s.PGSQL.${port}` }),
    user,
    password,
    database,
    connection: sessionOptions === null ? {} : { options: sessionOptions },
  }
}

/** Asks a server whether it supports TLS, for a driver that can't fall back to a session without TLS. */
export async function speaksTls({ host, port }: DatabaseServer, limitMs = 5_000): Promise<boolean> {
  const socket = connect(port, host)
  socket.setTimeout(limitMs, () => socket.destroy(new Error(`${host}:${port} is silent`)))
  try {
    return await new Promise<boolean>((resolve, reject) => {
      socket.once('connect', () => socket.write(tlsRequest))
      socket.once('data', (answer) => resolve(answer[0] === tlsAccepted))
      socket.once('error', reject)
      socket.once('close', () => reject(new Error(`${host}:${port} closed the connection`)))
    })
  } finally {
    socket.destroy()
  }
}

/** Logs the parameters of the process's URLs that have no effect. */
export function logIgnoredParameters(env: Environment, log: Pick<Logger, 'debug' | 'warn'>): void {
  for (const variable of ['DATABASE_URL', 'DATABASE_DIRECT_URL', 'TABS_DATABASE_URL'] as const) {
    const url = readVariable(env, variable)
    if (url === null) continue
    for (const { name, reason, isWeaker } of databaseServerOf(url, variable).ignored) {
      const line = { variable, parameter: name, reason }
      log[isWeaker ? 'warn' : 'debug'](line, 'a parameter of the database URL has no effect')
    }
  }
}
