/**
 * Prints a gateway's webhooks. Register its URL with POST /providers/{id}/webhooks, which returns the secret.
 *
 * Reads WEBHOOK_SECRET and WEBHOOK_PORT.
 */
import { serve } from '@hono/node-server'
import { createReceiver } from './receiver.ts'

const { WEBHOOK_SECRET, WEBHOOK_PORT } = process.env
if (!WEBHOOK_SECRET)
  throw new Error('WEBHOOK_SECRET: expected the secret that the registration returned, but it is not set')

const app = createReceiver(WEBHOOK_SECRET, ({ type, data }) => console.log(type, JSON.stringify(data)))
const server = serve(
  { fetch: app.fetch, hostname: '127.0.0.1', port: Number(WEBHOOK_PORT || 4040) },
  ({ port }) => console.log(`waiting for webhooks on http://127.0.0.1:${port}/tollkeeper`),
)
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => server.close(() => process.exit(0)))
}
