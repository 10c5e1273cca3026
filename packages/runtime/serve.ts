import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createAdaptorServer } from '@hono/node-server'
import { createDrain } from './drain.ts'
import { limitConnections } from './limitConnections.ts'
import { limitUploads, type UploadLimits } from './limitUploads.ts'

export type RunningServer = {
  port: number
  /** Stops listening and lets requests under way finish. Resolves once all connections are closed. */
  close(): Promise<void>
}

export type ServeOptions = {
  host: string
  /** 0: any free one. */
  port: number
  /** The variable that changes the port, for the error when it is taken. */
  portVariable: string
  /** Time limit from the connection, or a further request's first byte, to the end of its headers. Default 10,000. */
  headersTimeoutMs?: number
  /** Default 5,000. */
  maxConnections?: number
  /** How slowly a request's body may arrive. */
  uploads?: UploadLimits
}

/**
 * Serves an app over HTTP, with limits on what a client can hold by sending slowly or opening many connections.
 *
 * @throws Error if the port is taken; it names the port and the variable that changes it.
 */
export async function serve(
  app: { fetch: (request: Request) => Response | Promise<Response> },
  { host, port, portVariable, headersTimeoutMs = 10_000, maxConnections = 5_000, uploads }: ServeOptions,
): Promise<RunningServer> {
  const server = createAdaptorServer({
    fetch: app.fetch,
    // It would reset the connection half a second after an answer, and with it a slow sender's chance to read that.
    autoCleanupIncoming: false,
    serverOptions: {
      headersTimeout: headersTimeoutMs,
      // It would count a body as a whole; see limitUploads.
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
        new Error(`Port ${port} is taken: set ${portVariable} to a free one, or stop what listens there`),
      )
    })
    server.listen(port, host, resolve)
  })

  return {
    port: (server.address() as AddressInfo).port,
    close: drain,
  }
}
