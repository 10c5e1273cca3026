import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { request } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { pipeline } from 'node:stream'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { fileURLToPath } from 'node:url'
import { loopback } from '@tollkeeper/runtime/port'

const folder = new URL('./tls/', import.meta.url)

/** The authority that signed the proxy's certificate, for `NODE_EXTRA_CA_CERTS`. */
export const authorityFile = fileURLToPath(new URL('ca.pem', folder))

/**
 * Makes all clients of this process trust the proxy until the returned function is called. The caller must call it at the end,
 * because files that run later in the same process test that the certificate is rejected.
 *
 * @example onTestFinished(await trustAuthority())
 */
export async function trustAuthority(): Promise<() => void> {
  const before = getCACertificates('default')
  setDefaultCACertificates([...before, await readFile(authorityFile, 'utf8')])
  return () => setDefaultCACertificates(before)
}

export type TlsProxy = { url: string; connections: () => number; close: () => Promise<void> }

/**
 * Starts a proxy that terminates TLS like nginx with `proxy_pass` alone: the server behind it sees `http:`,
 * its own address as `Host`, and no sign of the URL that the buyer called.
 */
export async function startTlsProxy(target: string): Promise<TlsProxy> {
  const [cert, key] = await Promise.all(
    ['server.pem', 'server.key'].map((name) => readFile(new URL(name, folder))),
  )
  const server = createServer({ cert, key }, (incoming, outgoing) => {
    const { method, headers, url } = incoming
    const inner = request(new URL(target).origin + url, {
      method,
      headers: { ...headers, host: new URL(target).host },
      agent: false,
    })
    inner.on('response', (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
      pipeline(answer, outgoing, () => {})
    })
    inner.on('error', () => outgoing.destroy())
    pipeline(incoming, inner, () => {})
  })
  server.keepAliveTimeout = 120_000
  let connections = 0
  server.on('secureConnection', () => connections++)
  server.listen(0, loopback)
  await once(server, 'listening')
  return {
    url: `https://localhost:${(server.address() as AddressInfo).port}`,
    connections: () => connections,
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
