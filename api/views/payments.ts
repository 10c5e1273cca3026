import { z } from '@hono/zod-openapi'
import { findStoredPayment } from '#ledger/acceptance/storedPayment'
import { voidPayment } from '#ledger/outcomes/voids'
import { traceIdOf } from '#process/trace'
import type { Network } from '#protocol/networks'
import { paymentStatuses } from '#protocol/paymentStatus'
import type { App } from '../http/app.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import {
  findPayment,
  type PaymentHalf,
  type PaymentRecord,
  paymentSources,
} from '../payments/records/payments.ts'
import { refund, toRefund } from '../payments/refunds/route.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { readTab, tab } from './tabs.ts'

const half = z
  .object({
    state: z.enum(['open', 'settled', 'cancelled', 'foreign_use']),
    to: wire.addressOut,
    value: wire.baseUnits,
    nonce: wire.hashOut,
    transactionHash: wire.hashOut.nullable(),
    logIndex: z.int().nullable(),
    blockNumber: z.int().nullable(),
  })
  .openapi('PaymentHalf')

export const payment = z
  .object({
    paymentId: wire.paymentId,
    requestId: wire.requestId.nullable(),
    payment_status: z.enum(paymentStatuses),
    source: z.enum(paymentSources),
    tab: tab.nullable().openapi({ description: 'Of a tab that closed; null: a payment of its own' }),
    providerId: wire.providerId.nullable(),
    endpointId: wire.endpointId.nullable(),
    network: wire.networkName,
    testnet: wire.testnet,
    asset: wire.addressOut,
    payer: wire.addressOut,
    resource: z.string(),
    totalUsdc: wire.baseUnits,
    providerUsdc: wire.baseUnits,
    platformUsdc: wire.baseUnits,
    tier: z.string(),
    effectiveRate: z.string(),
    acceptedAt: wire.isoTime,
    validBefore: z.int(),
    provider: half,
    platform: half.nullable(),
    splitter: wire.addressOut.nullable(),
    paidOut: z
      .object({
        at: wire.isoTime,
        transactionHash: wire.hashOut,
        blockNumber: z.int(),
        platformPaid: z.boolean().openapi({
          description:
            "False: the platform's wallet couldn't be paid, and its part waits in a splitter of its own",
        }),
      })
      .nullable()
      .openapi({
        description: 'Where `splitter` paid both parts out, by whomever it was swept; null: not yet',
      }),
    attempts: z.int(),
    nextAttemptAt: wire.isoTime.nullable(),
    held_by: wire.heldBy('it waits for gas'),
    failureCode: z.string().nullable(),
    voidedAt: wire.isoTime.nullable(),
    refunds: z.array(refund),
    trace: z.object({ id: z.string(), url: z.url().nullable() }).nullable().openapi({
      description: "Where its request was traced; only with its provider's or the operator's key",
    }),
    indexedBlock: wire.indexedBlock,
  })
  .openapi('Payment')

const getPayment = route('get', '/payments/{paymentId}', {
  summary: 'A payment and where it stands',
  tags: ['Payments'],
  description: "Of a tab, a provider's key shows its own lines as well.",
  responses: { 200: jsonAnswer('The payment', payment) },
})

const authorization = z
  .object({
    authorizer: wire.addressOut,
    nonce: wire.hashOut,
    payment_status: z.enum(paymentStatuses),
  })
  .openapi('Authorization')

const getAuthorization = route('get', '/authorizations/{authorizer}/{nonce}', {
  summary: 'Where a payment stands, by what its buyer signed',
  description:
    'For a buyer whose answer was lost. No more than the status: payer and nonce are public once they are on chain. 404: none of them was accepted here.',
  tags: ['Payments'],
  params: z.object({ authorizer: wire.address, nonce: wire.txHash }),
  responses: { 200: jsonAnswer('The authorization', authorization) },
})

const postVoid = route('post', '/payments/{paymentId}/void', {
  summary: 'Void a payment for which no service was rendered',
  description: 'Refused with 409 once a batch has claimed it, it was published, or money of it moved.',
  tags: ['Payments'],
  security: [{ apiKey: [] }],
  refuses: [403, 409],
  responses: { 200: jsonAnswer('The voided payment', payment) },
})

export function addPaymentRoutes(app: App, { sql, heads, networks, settings, now }: RouteOptions): void {
  async function readPayment(paymentId: string, caller: string | undefined, isOperator = false) {
    const found = await findPayment(sql, paymentId, new Date(now()))
    if (found === undefined) throw new Refusal('unknown_payment')
    const { network } = networks.ofChain(found.chainId).served
    const tab = found.source === 'tab' ? await readTab(sql, paymentId, caller) : null
    const mayTrace = isOperator || (caller !== undefined && caller === found.providerId)
    const trace = mayTrace && found.trace ? toTrace(traceIdOf(found.trace), settings.traceUrlTemplate) : null
    return { ...toAnswer(found, network), tab, trace, indexedBlock: await heads.of(found.chainId) }
  }

  app.openapi(getPayment, async (c) =>
    c.json(await readPayment(c.req.valid('param').paymentId, c.get('caller'), c.get('isOperator')), 200),
  )

  app.openapi(getAuthorization, async (c) => {
    const { authorizer, nonce } = c.req.valid('param')
    const tokens = [...networks.byChainId.values()].map(({ served: { network, token } }) => ({
      ...{ chainId: network.chainId, token },
    }))
    const stored = await findStoredPayment(sql, { tokens, payer: authorizer, nonces: [nonce] })
    const found = stored && (await findPayment(sql, stored.paymentId, new Date(now())))
    if (found === undefined) throw new Refusal('unknown_payment')
    return c.json({ authorizer, nonce, payment_status: found.status }, 200)
  })

  app.openapi(postVoid, async (c) => {
    const { paymentId } = c.req.valid('param')
    const providerId = c.get('caller')
    if (providerId === undefined) throw new Refusal('unauthorized', "Only the payment's provider can void it")
    const outcome = await voidPayment(sql, { paymentId, providerId, now: new Date(now()) })
    if (outcome === 'unknown') throw new Refusal('unknown_payment')
    if (outcome === 'forbidden') throw new Refusal('forbidden')
    if (outcome === 'claimed') throw new Refusal('payment_claimed')
    const voided = await readPayment(paymentId, providerId)
    for (const { payers } of networks.byChainId.values()) payers.forget(voided.payer)
    return c.json(voided, 200)
  })
}

function toAnswer(found: PaymentRecord, network: Network) {
  const { provider, fee, providerAmount, feeAmount } = found
  return {
    paymentId: found.paymentId,
    requestId: found.requestId,
    payment_status: found.status,
    source: found.source,
    providerId: found.providerId,
    endpointId: found.endpointId,
    network: network.name,
    testnet: network.testnet,
    asset: found.token,
    payer: found.payer,
    resource: found.resource,
    totalUsdc: (providerAmount + feeAmount).toString(),
    providerUsdc: providerAmount.toString(),
    platformUsdc: feeAmount.toString(),
    tier: found.tier,
    effectiveRate: found.effectiveRate,
    acceptedAt: found.acceptedAt.toISOString(),
    validBefore: Number(found.validBefore),
    provider: toHalf(provider),
    platform: fee && toHalf(fee),
    splitter: found.splitter,
    paidOut: found.payout && {
      at: wire.isoOfSeconds(found.payout.blockTime),
      transactionHash: found.payout.txHash,
      blockNumber: Number(found.payout.blockNumber),
      platformPaid: found.payout.isPlatformPaid,
    },
    attempts: found.attempts,
    nextAttemptAt: wire.isoOrNull(found.nextAttemptAt),
    held_by: found.heldBy,
    failureCode: found.failureCode,
    voidedAt: wire.isoOrNull(found.voidedAt),
    refunds: found.refunds.map(toRefund),
  }
}

function toTrace(id: string, template: string | null) {
  return { id, url: template?.replaceAll('{traceId}', id) ?? null }
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
