/** The x402 reference facilitator behind Hono; a third argument gives its wallet a nonce manager. */
import type { Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types'
import { Hono } from 'hono'
import { createReferenceFacilitator } from './referenceFacilitator.ts'

const [port, rpcUrl = '', managesNonces] = process.argv.slice(2)
const facilitator = createReferenceFacilitator(rpcUrl, managesNonces !== undefined)

type Body = { paymentPayload: PaymentPayload; paymentRequirements: PaymentRequirements }

const app = new Hono()
app.post('/verify', async (c) => {
  const { paymentPayload, paymentRequirements } = await c.req.json<Body>()
  return c.json(await facilitator.verify(paymentPayload, paymentRequirements))
})
app.post('/settle', async (c) => {
  const { paymentPayload, paymentRequirements } = await c.req.json<Body>()
  return c.json(await facilitator.settle(paymentPayload, paymentRequirements))
})
app.get('/healthz', (c) => c.text('ok'))

const server = createAdaptorServer({ fetch: app.fetch }) as Server
server.listen(Number(port), '127.0.0.1')
