import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createAdaptorServer } from '@hono/node-server'
import { createDrain } from './drain.ts'
import { limitConnections } from './limitConnections.ts'
import { limitUploads, type UploadLimits } from './limitUploads.ts'

export type RunningServer = {
  port: number
  /** Stops listening and lets requests in progress finish. Resolves when all connections are closed. */
  close(): Promise<void>
}

export type ServeOptions = {
  host: string
  /** 0: any free port. */
  port: number
  /** Name of the variable that sets the port, for the error if the port is taken. */
  portVariable: string
  /**
   * Time limit in ms for the headers of a request. The time starts when the connection opens, or with the first byte of a further request. Default
   * 10,000.
   */
  headersTimeoutMs?: number
  /** Maximum number of open connections. Default 5,000. */
  maxConnections?: number
  /** Limits on how slowly a request's body may arrive. */
  uploads?: UploadLimits
}

/**
 * Serves an app over HTTP. It limits what a client can occupy by sending slowly or by opening many connections.
 *
 * @throws Error if the port is taken. The error names the port and the variable that sets it.
 */
export async function serve(
  app: { fetch: (request: Request) => Response | Promise<Response> },
  { host, port, portVariable, headersTimeoutMs = 10_000, maxConnections = 5_000, uploads }: ServeOptions,
): Promise<RunningServer> {
  const server = createAdaptorServer({
    fetch: app.fetch,
    // By default, Node resets the connection half a second after a response, before a slow sender can read that response.
    autoCleanupIncoming: false,
    serverOptions: {
      headersTimeout: headersTimeoutMs,
      // Switch off Node's timeout, which would limit the time of the whole body; limitUploads has better limits.
      requestTimeout: 0,
      connectionsCheckingInterval: 2_000,
      keepAliveTimeout: 65_000,
      maxHeaderSize: 16_384,
    },
  }) as Server
  server.maxRequestsPerSocket = 0
  limitConnections(server, maxConnections)
  limitUploads(server, uploads)
  const drain = createDrain(server)

  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EADDRINUSE') return reject(error)
      reject(
        new Error(
          `Port ${port} is taken: set ${portVariable} to a free port, or stop the program that listens on it`,
        ),
      )
    })
    server.listen(port, host, resolve)
  })

  return {
    port: (server.address() as AddressInfo).port,
    close: drain,
  }
}
