import { z } from '@hono/zod-openapi'
import type { RecordTrace } from '@tollkeeper/ledger/acceptance/traces'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { parseTabPayload } from '@tollkeeper/sdk/protocol/tab'
import type { HonoRequest } from 'hono'
import type { App } from '../../http/app.ts'
import { invalidRequest } from '../../http/invalidRequest.ts'
import { jsonAnswer } from '../../http/problems.ts'
import { readJson } from '../../http/readJson.ts'
import { route } from '../../http/route.ts'
import type { GatewaySettings } from '../../http/settings.ts'
import * as wire from '../../http/wire.ts'
import type { GatewayNetworks } from '../../registry/networks.ts'
import type { ReceiptKeys } from '../receipts/keys.ts'
import { toPaymentResponse } from '../receipts/paymentResponse.ts'
import type { TabAnswer, TabPurchase } from './buyOnTab.ts'
import { tabPayload } from './tabState.ts'
import type { VerifyAnswer, VerifyRequest } from './verifyPayment.ts'

const payload = z.string().openapi({ example: '0x…,0x…,47500,0,1795273200,0x…,0x…' })

const verifyRequest = z
  .object({
    macaroon: z.string().optional().openapi({
      description: "Absent for x402 v1 clients, which pay the endpoint's current price with one payload",
    }),
    payloads: z
      .union([z.tuple([payload, payload]), z.tuple([payload])])
      .optional()
      .openapi({
        type: 'array',
        items: { type: 'string' },
        minItems: 1,
        maxItems: 2,
        description: 'The payloads of provider and platform, or a single payload that pays their splitter',
      }),
    tab: tabPayload
      .optional()
      .openapi({ description: 'Instead of `payloads`, if the request is paid on a tab' }),
    providerId: wire.providerId,
    endpointId: wire.endpointId,
    pricing: wire.sale.optional(),
    network: wire.networkName.optional().openapi({
      description: 'The only network that the caller accepts. Default: any of the endpoint’s networks',
    }),
    x402Version: z
      .union([z.literal(1), z.literal(2)])
      .optional()
      .openapi({
        type: 'integer',
        description:
          'x402 version of the header that contained the payment. If set, the answer contains `paymentResponse`',
      }),
  })
  .refine(({ payloads, tab }) => (payloads === undefined) !== (tab === undefined), {
    path: ['payloads'],
    message: 'expected either payloads or a tab',
  })
  .refine(({ macaroon, payloads }) => macaroon !== undefined || payloads?.length === 1, {
    path: ['macaroon'],
    message: 'required with two payloads or a tab',
  })
  .openapi('VerifyRequest')

const verifyHeaders = z.object({
  'idempotency-key': z
    .string()
    .max(255)
    .optional()
    .openapi({ description: 'A request with the same key and the same body gets the same answer' }),
  prefer: z
    .string()
    .optional()
    .openapi({ description: '`wait=4` (RFC 7240): the caller waits at most 4 s for the answer' }),
  'if-match': z.literal('*').optional().openapi({
    description: '`*`: returns the answer of the same request if it was accepted before, otherwise 404',
  }),
})

const tabResponse = z
  .object({
    id: wire.tabId,
    sequence: z.int(),
    known: z.int().openapi({ description: 'Number of lines whose splits the gateway knows' }),
    credit: z.string().optional().openapi({ description: 'Credit with which the line began, in base units' }),
    closing: z
      .literal(true)
      .optional()
      .openapi({ description: 'Whether the next request should open another tab' }),
  })
  .openapi('TabResponse')

/** The form of x402's header `PAYMENT-RESPONSE`. */
const paymentResponse = z
  .object({
    success: z.literal(true),
    payer: wire.addressOut,
    transaction: z.string().openapi({ description: 'Empty until the payment’s batch is mined' }),
    network: z.string(),
    extra: z.object({ paymentId: wire.paymentId, tab: tabResponse.optional() }),
    extensions: z.object({
      'offer-receipt': z.object({
        info: z.object({ receipt: z.object({ format: z.literal('jws'), signature: z.string() }) }),
        schema: z.record(z.string(), z.unknown()),
      }),
    }),
  })
  .openapi('PaymentResponse')

const verification = z
  .object({
    verified: z.literal(true),
    receipt: z.string(),
    paymentId: wire.paymentId,
    requestId: wire.requestId,
    tab: tabResponse.optional().openapi({ description: 'Set if the request was bought on a tab' }),
    pass: z
      .string()
      .optional()
      .openapi({ description: 'The pass (JWS compact) for the buyer, if the challenge sold one' }),
    paymentResponse: paymentResponse.optional(),
  })
  .openapi('Verification')

const verify = route('post', '/verify', {
  summary: 'Verify and queue a payment, and return its receipt',
  tags: ['Payments'],
  security: [{}, { apiKey: [] }],
  headers: verifyHeaders,
  body: verifyRequest,
  refuses: [402, 403, 409, 415],
  responses: { 200: jsonAnswer('The payment is accepted', verification) },
})

export type VerifyRouteOptions = {
  networks: GatewayNetworks
  receiptKeys: ReceiptKeys
  settings: Pick<GatewaySettings, 'issuer'>
  verifyPayment: (request: VerifyRequest) => Promise<VerifyAnswer>
  buyOnTab: (request: TabPurchase) => Promise<TabAnswer>
  recordTrace: RecordTrace
}

export function addVerifyRoute(
  app: App,
  { networks, verifyPayment, buyOnTab, recordTrace, receiptKeys, settings: { issuer } }: VerifyRouteOptions,
): void {
  app.openAPIRegistry.registerPath(verify)
  app.post('/verify', async (c) => {
    const { macaroon, payloads, tab, providerId, endpointId, pricing, network, x402Version } = await readJson(
      c,
      verifyRequest,
    )
    c.set('called', { providerId, endpointId })
    const request = {
      macaroon,
      providerId,
      endpointId,
      price: pricing === undefined ? undefined : parseUsdc(pricing.usdcPerUnit),
      pass: pricing?.pass,
      network: networks.chainIdNamed(network),
      ...readVerifyHeaders(c.req),
      waitMs: readWaitMs(c.req.header('prefer')),
      caller: c.get('caller'),
    }
    const {
      transactionHash,
      tab: onTab,
      ...answer
    }: VerifyAnswer & Partial<TabAnswer> = payloads
      ? await verifyPayment({ ...request, payloads })
      : await buyOnTab({ ...request, tab: parseTabPayload(tab) })
    const span = c.get('span')
    span?.set({ 'tollkeeper.payment.id': answer.paymentId, ...(onTab && { 'tollkeeper.tab.id': onTab.id }) })
    if (span?.stored && !onTab) recordTrace(answer.paymentId, span.stored)
    const paymentResponse =
      x402Version &&
      toPaymentResponse(answer.receipt, { x402Version, transactionHash, tab: onTab, issuer, receiptKeys })
    return c.json(
      {
        verified: true as const,
        ...answer,
        ...(onTab && { tab: onTab }),
        ...(paymentResponse && { paymentResponse }),
      },
      200,
    )
  })
}

/** Reads the wait time (RFC 7240, section 4.3). An unknown preference is ignored. */
function readWaitMs(prefer: string | undefined): number | undefined {
  const seconds = prefer === undefined ? undefined : /(?:^|,)\s*wait\s*=\s*"?(\d{1,6})/i.exec(prefer)?.[1]
  return seconds === undefined ? undefined : Number(seconds) * 1_000
}

/** Reads the headers by name, because building a record of all of them takes several times as long. */
function readVerifyHeaders(request: HonoRequest) {
  const parsed = verifyHeaders.safeParse({
    'idempotency-key': request.header('idempotency-key'),
    'if-match': request.header('if-match'),
  })
  if (!parsed.success) throw invalidRequest('header', parsed.error.issues)
  const { 'idempotency-key': idempotencyKey, 'if-match': ifMatch } = parsed.data
  return { idempotencyKey, isAboutStored: ifMatch !== undefined }
}
