import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ServerType, serve } from '@hono/node-server'
import type { GatewaySettings } from '@tollkeeper/api/http/settings'
import { afterAll, beforeAll } from 'vitest'
import { runCliHere } from './cli.ts'
import type { TestGateway } from './gateway.ts'
import { useGateway } from './useGateway.ts'

/** A gateway behind a real port. Commands for it run in an empty folder, with a separate configuration folder. */
export type CliGateway = {
  gateway: TestGateway
  url: string
  folder: string
  run: (
    args: readonly string[],
    env?: Record<string, string | undefined>,
    stdin?: string,
  ) => ReturnType<typeof runCliHere>
  /** Stops listening, as if the gateway restarted. */
  stop: () => Promise<void>
  /** Listens again at the same port. */
  restart: () => Promise<void>
}

/** Starts a {@link CliGateway} for the tests of a file. */
export function useCliGateway(settings?: Partial<GatewaySettings>): CliGateway {
  const gateway = useGateway(settings)
  let server: ServerType
  let port = 0
  const listen = async () => {
    server = serve({ fetch: (request) => gateway.app.fetch(request), hostname: '127.0.0.1', port })
    await once(server, 'listening')
    const address = server.address()
    port = typeof address === 'object' && address ? address.port : 0
  }
  const stop = async () => {
    if ('closeAllConnections' in server) server.closeAllConnections()
    server.close()
    await once(server, 'close')
  }
  const found: CliGateway = {
    gateway,
    url: '',
    folder: '',
    run: (args, env = {}, stdin = '') =>
      runCliHere(args, {
        cwd: found.folder,
        env: { XDG_CONFIG_HOME: join(found.folder, 'config'), ...env },
        stdin,
      }),
    stop,
    restart: listen,
  }
  beforeAll(async () => {
    found.folder = await mkdtemp(join(tmpdir(), 'tollkeeper-cli-'))
    await listen()
    found.url = `http://127.0.0.1:${port}`
  })
  afterAll(async () => {
    await stop()
    await rm(found.folder, { recursive: true })
  })
  return found
}
