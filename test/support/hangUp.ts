import type { Server } from 'node:http'
import { promisify } from 'node:util'
import { createAdaptorServer } from '@hono/node-server'
import type { Keeper } from '@tollkeeper/keeper/keeper'
import { expect } from 'vitest'
import { listen, urlOf } from '../../sdk/test/serve.ts'
import { until } from './until.ts'

/**
 * Sends a keeper a request, and closes the connection when `broken` resolves. Resolves once the server knows that the
 * connection is closed.
 */
export async function hangUp(
  { app }: Pick<Keeper, 'app'>,
  path: string,
  { body, key }: { body: unknown; key: string },
  broken: Promise<unknown>,
): Promise<void> {
  const server = createAdaptorServer({ fetch: app.fetch }) as Server
  await listen(server)
  const connection = new AbortController()
  const asked = fetch(`${urlOf(server)}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    body: JSON.stringify(body),
    signal: connection.signal,
  })
  await broken
  connection.abort()
  await expect(asked).rejects.toThrow()
  const countConnections = promisify(server.getConnections.bind(server))
  await until('the server knows', async () => (await countConnections()) === 0)
  server.close()
}
