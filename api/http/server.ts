import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createAdaptorServer } from '@hono/node-server'
import type { App } from '../app.ts'

export type RunningServer = {
  port: number
  /** Stops listening, lets requests under way finish, and then cuts what is left. */
  close(): Promise<void>
}

/** Requests under way may take so long to finish when the process stops. */
const drainMs = 8_000

/**
 * Serves the app.
 *
 * @throws Error that names the port and the variable that changes it, where the port is taken.
 */
export async function serveApp(
  app: App,
  { host, port, headersTimeoutMs = 10_000 }: { host: string; port: number; headersTimeoutMs?: number },
): Promise<RunningServer> {
  const server = createAdaptorServer({
    fetch: app.fetch,
    serverOptions: {
      // A client that sends slowly holds a connection this long, and no longer.
      headersTimeout: headersTimeoutMs,
      requestTimeout: 15_000,
      connectionsCheckingInterval: 2_000,
      keepAliveTimeout: 65_000,
      maxHeaderSize: 16_384,
    },
  }) as Server
  server.maxRequestsPerSocket = 0

  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EADDRINUSE') return reject(error)
      reject(new Error(`Port ${port} is taken: set API_PORT to a free one, or stop what listens there`))
    })
    server.listen(port, host, resolve)
  })

  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        const cut = setTimeout(() => server.closeAllConnections(), drainMs)
        server.close(() => {
          clearTimeout(cut)
          resolve()
        })
        server.closeIdleConnections()
      }),
  }
}
