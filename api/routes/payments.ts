import { createRoute, z } from '@hono/zod-openapi'
import type { App } from '../app.ts'
import { type Gateway, requireNetwork } from '../http/gateway.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import * as schemas from '../http/schemas.ts'
import { fromIndex, requireIndexedHead } from '../portal/queries/indexedHead.ts'
import { findPayment, type PaymentHalf, type PaymentRecord, voidPayment } from '../portal/queries/payments.ts'
import { soonerOf } from '../receipts/receiptClaims.ts'
import { Refusal } from '../refusal.ts'

const params = z.object({ paymentId: schemas.paymentId })

const getPayment = createRoute({
  method: 'get',
  path: '/payments/{paymentId}',
  summary: 'A payment and where it stands',
  tags: ['Payments'],
  request: { params },
  responses: { 200: jsonAnswer('The payment', schemas.payment), ...problems(404, 429, 503) },
})

const postVoid = createRoute({
  method: 'post',
  path: '/payments/{paymentId}/void',
  summary: 'Void a payment for which no service was rendered',
  description: 'Refused with 409 once a batch has claimed it, it was published, or money of it moved.',
  tags: ['Payments'],
  security: [{ apiKey: [] }],
  request: { params },
  responses: { 200: jsonAnswer('The voided payment', schemas.payment), ...problems(401, 403, 404, 409, 503) },
})

export function addPaymentRoutes(app: App, gateway: Gateway): void {
  const { database } = gateway

  async function readPayment(paymentId: string) {
    const payment = await fromIndex(findPayment(database, paymentId, new Date(gateway.now())))
    if (payment === undefined) throw new Refusal('unknown_payment')
    const head = await requireIndexedHead(database, payment.chainId)
    return toAnswer(gateway, payment, head.blockNumber)
  }

  app.openapi(getPayment, async (c) => c.json(await readPayment(c.req.valid('param').paymentId), 200))

  app.openapi(postVoid, async (c) => {
    const { paymentId } = c.req.valid('param')
    const providerId = c.get('caller')
    if (providerId === undefined) throw new Refusal('unauthorized', "Only the payment's provider can void it")
    const now = new Date(gateway.now())
    const outcome = await fromIndex(voidPayment(database, { paymentId, providerId, now }))
    if (outcome === 'unknown') throw new Refusal('unknown_payment')
    if (outcome === 'forbidden') throw new Refusal('forbidden')
    if (outcome === 'claimed') throw new Refusal('payment_claimed')
    const payment = await readPayment(paymentId)
    for (const { payers } of gateway.networks.values()) payers.forget(payment.payer)
    return c.json(payment, 200)
  })
}

function toAnswer(gateway: Gateway, payment: PaymentRecord, indexedBlock: bigint) {
  const { provider, fee } = payment
  const { network } = requireNetwork(gateway, payment.chainId).served
  const validBefore = soonerOf(provider.validBefore, fee.validBefore)
  return {
    paymentId: payment.paymentId,
    requestId: payment.requestId,
    payment_status: payment.status,
    providerId: payment.providerId,
    endpointId: payment.endpointId,
    network: network.name,
    testnet: network.testnet,
    asset: payment.token,
    payer: payment.payer,
    resource: payment.resource,
    totalUsdc: (provider.value + fee.value).toString(),
    providerUsdc: provider.value.toString(),
    platformUsdc: fee.value.toString(),
    tier: payment.tier,
    effectiveRate: payment.effectiveRate,
    acceptedAt: payment.acceptedAt.toISOString(),
    validBefore: Number(validBefore),
    provider: toHalf(provider),
    platform: toHalf(fee),
    attempts: payment.attempts,
    nextAttemptAt: payment.nextAttemptAt?.toISOString() ?? null,
    failureCode: payment.failureCode,
    voidedAt: payment.voidedAt?.toISOString() ?? null,
    indexedBlock: Number(indexedBlock),
  }
}

function toHalf({ state, recipient, value, nonce, txHash, logIndex, blockNumber }: PaymentHalf) {
  return {
    state,
    to: recipient,
    value: value.toString(),
    nonce,
    transactionHash: txHash,
    logIndex,
    blockNumber: blockNumber === null ? null : Number(blockNumber),
  }
}
