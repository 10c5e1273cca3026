import { createRoute } from '@hono/zod-openapi'
import { parseUsdc } from '#protocol/amount'
import type { App } from '../app.ts'
import type { Gateway } from '../gateway.ts'
import { jsonAnswer, jsonBody, problems } from './problems.ts'
import * as schemas from './schemas.ts'

const verify = createRoute({
  method: 'post',
  path: '/verify',
  summary: 'Verify a payment, queue it and receive its receipt',
  tags: ['Payments'],
  security: [{}, { apiKey: [] }],
  request: { headers: schemas.verifyHeaders, body: jsonBody(schemas.verifyRequest) },
  responses: {
    200: jsonAnswer('The payment is accepted', schemas.verification),
    ...problems(400, 401, 402, 403, 409, 413, 415, 422, 429, 503),
  },
})

export function addVerifyRoute(app: App, gateway: Gateway): void {
  app.openapi(verify, async (c) => {
    const { macaroon, payloads, providerId, endpointId, pricing } = c.req.valid('json')
    c.set('called', { providerId, endpointId })
    const answer = await gateway.verifyPayment({
      macaroon,
      payloads,
      providerId,
      endpointId,
      price: pricing === undefined ? undefined : parseUsdc(pricing.usdcPerUnit),
      idempotencyKey: c.req.valid('header')['idempotency-key'],
      caller: c.get('caller'),
    })
    return c.json({ verified: true as const, ...answer }, 200)
  })
}
