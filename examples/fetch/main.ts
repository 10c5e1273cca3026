/**
 * Serves the route of the Next.js example as a plain handler. Bun, Deno and Workers can run such a handler unchanged; here Node serves it.
 *
 * Reads PROVIDER_PORT, and the variables that the route reads.
 */
import { serve } from '@hono/node-server'
import { GET } from '../next/app/forecast/route.ts'

const { PROVIDER_PORT } = process.env

const server = serve(
  {
    fetch: (request) =>
      new URL(request.url).pathname === '/forecast' ? GET(request) : new Response(null, { status: 404 }),
    hostname: '127.0.0.1',
    port: Number(PROVIDER_PORT || 4030),
  },
  ({ port }) => console.log(`selling http://127.0.0.1:${port}/forecast`),
)
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => server.close(() => process.exit(0)))
}
