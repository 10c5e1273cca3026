/** A provider's API: one route behind the middleware, and the same handler without it. */
import type { Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { type Context, Hono } from 'hono'
import { type PaymentVariables, requirePayment } from '#sdk/middleware/hono'

const [port, gatewayUrl = '', providerId = '', usdcPerUnit = '', publicUrl = ''] = process.argv.slice(2)

const app = new Hono<{ Variables: PaymentVariables }>()
const handler = (c: Context) => c.json({ forecast: 'sunny', degrees: 21 })
app.get('/forecast', requirePayment({ gatewayUrl, providerId, pricing: { usdcPerUnit }, publicUrl }), handler)
app.get('/free', handler)
app.get('/healthz', (c) => c.text('ok'))

const server = createAdaptorServer({ fetch: app.fetch }) as Server
server.listen(Number(port), '127.0.0.1')
