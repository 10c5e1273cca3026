import { z } from '@hono/zod-openapi'
import type { RecordTrace } from '@tollkeeper/ledger/acceptance/traces'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { parseTabPayload } from '@tollkeeper/sdk/protocol/tab'
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
      description: "Not of x402 v1's clients, which pay by one payload what the endpoint costs now",
    }),
    payloads: z
      .union([z.tuple([payload, payload]), z.tuple([payload])])
      .optional()
      .openapi({
        type: 'array',
        items: { type: 'string' },
        minItems: 1,
        maxItems: 2,
        description: "The provider's and the platform's, or one for both, to their splitter",
      }),
    tab: tabPayload.optional().openapi({ description: 'Instead of `payloads`: paid by a tab' }),
    providerId: wire.providerId,
    endpointId: wire.endpointId,
    pricing: wire.pricing.optional(),
    network: wire.networkName
      .optional()
      .openapi({ description: 'The only one that the caller accepts. Default: any of the endpoint' }),
    x402Version: z
      .union([z.literal(1), z.literal(2)])
      .optional()
      .openapi({ type: 'integer', description: 'Of the header that paid; asks for `paymentResponse`' }),
  })
  .refine(({ payloads, tab }) => (payloads === undefined) !== (tab === undefined), {
    path: ['payloads'],
    message: 'needed, or a tab',
  })
  .refine(({ macaroon, payloads }) => macaroon !== undefined || payloads?.length === 1, {
    path: ['macaroon'],
    message: 'needed with two payloads, and with a tab',
  })
  .openapi('VerifyRequest')

const verifyHeaders = z.object({
  'idempotency-key': z
    .string()
    .max(255)
    .optional()
    .openapi({ description: 'Same key and same body: same answer' }),
  prefer: z
    .string()
    .optional()
    .openapi({ description: '`wait=4` (RFC 7240): the caller hears no answer that is later than 4 s' }),
  'if-match': z
    .literal('*')
    .optional()
    .openapi({ description: '`*`: the answer that the same request had, if it was accepted; else 404' }),
})

const tabResponse = z
  .object({
    id: wire.tabId,
    sequence: z.int(),
    known: z.int().openapi({ description: 'Lines whose splits are known here' }),
    credit: z.string().optional().openapi({ description: 'Base units that the line began with' }),
    closing: z
      .literal(true)
      .optional()
      .openapi({ description: 'The next request had better open another tab' }),
  })
  .openapi('TabResponse')

/** x402's form in `PAYMENT-RESPONSE`. */
const paymentResponse = z
  .object({
    success: z.literal(true),
    payer: wire.addressOut,
    transaction: z.string().openapi({ description: 'Empty as long as the payment waits for its batch' }),
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
    tab: tabResponse.optional().openapi({ description: 'Where it was bought on a tab' }),
    paymentResponse: paymentResponse.optional(),
  })
  .openapi('Verification')

const verify = route('post', '/verify', {
  summary: 'Verify a payment, queue it and receive its receipt',
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
      network: networks.chainIdNamed(network),
      ...readVerifyHeaders(c.req.header()),
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

/** RFC 7240, section 4.3. A preference that isn't understood is ignored. */
function readWaitMs(prefer: string | undefined): number | undefined {
  const seconds = prefer === undefined ? undefined : /(?:^|,)\s*wait\s*=\s*"?(\d{1,6})/i.exec(prefer)?.[1]
  return seconds === undefined ? undefined : Number(seconds) * 1_000
}

function readVerifyHeaders(headers: Record<string, string | undefined>) {
  const parsed = verifyHeaders.safeParse(headers)
  if (!parsed.success) throw invalidRequest('header', parsed.error.issues)
  const { 'idempotency-key': idempotencyKey, 'if-match': ifMatch } = parsed.data
  return { idempotencyKey, isAboutStored: ifMatch !== undefined }
}
