import { createRoute, type z } from '@hono/zod-openapi'
import type { Context } from 'hono'
import { parseUsdc } from '#protocol/amount'
import type { App } from '../app.ts'
import { type Gateway, networkOf } from '../http/gateway.ts'
import { invalidRequest } from '../http/invalidRequest.ts'
import { jsonAnswer, jsonBody, problems } from '../http/problems.ts'
import * as schemas from '../http/schemas.ts'
import { Refusal } from '../refusal.ts'

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
  // Not `app.openapi`: its validators take as long as the macaroon. What they check is checked here, by the same schemas.
  app.openAPIRegistry.registerPath(verify)
  app.post('/verify', async (c) => {
    const { macaroon, payloads, providerId, endpointId, pricing, network } = await readBody(c)
    c.set('called', { providerId, endpointId })
    const answer = await gateway.verifyPayment({
      macaroon,
      payloads,
      providerId,
      endpointId,
      price: pricing === undefined ? undefined : parseUsdc(pricing.usdcPerUnit),
      network: network === undefined ? undefined : networkOf(gateway, network).served.network.chainId,
      idempotencyKey: readIdempotencyKey(c.req.header('idempotency-key')),
      caller: c.get('caller'),
    })
    return c.json({ verified: true as const, ...answer }, 200)
  })
}

type VerifyBody = z.infer<typeof schemas.verifyRequest>

const jsonType = /^application\/json *(?:;|$)/i

async function readBody(c: Context): Promise<VerifyBody> {
  if (!jsonType.test(c.req.header('content-type') ?? '')) throw new Refusal('unsupported_media_type')
  let json: unknown
  try {
    json = await c.req.json()
  } catch (error) {
    if (error instanceof SyntaxError) throw new Refusal('invalid_json', undefined, { cause: error })
    throw error
  }
  const parsed = schemas.verifyRequest.safeParse(json)
  if (!parsed.success) throw invalidRequest('json', parsed.error.issues)
  return parsed.data
}

function readIdempotencyKey(key: string | undefined): string | undefined {
  const parsed = schemas.verifyHeaders.safeParse({ 'idempotency-key': key })
  if (!parsed.success) throw invalidRequest('header', parsed.error.issues)
  return key
}
