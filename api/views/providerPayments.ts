import { z } from '@hono/zod-openapi'
import { parseUsdc } from '#protocol/amount'
import { networkByChainId } from '#protocol/networks'
import { paymentStatuses } from '#protocol/paymentStatus'
import type { App } from '../http/app.ts'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, integerField, textField, timeField } from '../http/cursor.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import { paymentSources } from '../payments/records/payments.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { findProviderPayments, type PaymentPosition, type ProviderPayment } from './providerPaymentQueries.ts'
import { answerCsv, toPaymentLine } from './statement.ts'

/** Filters of payments and failures. */
export const paymentFilters = z.object({
  endpointId: wire.idFilter('ep').optional(),
  payer: wire.address.optional(),
  network: wire.networkName.optional(),
  from: wire.timeFilter,
  to: wire.timeFilter,
  limit: wire.limit,
  cursor: wire.cursor,
})

/** Decimal USDC. */
const amount = z
  .string()
  .regex(/^\d{1,12}(\.\d{1,6})?$/, 'expected decimal USDC')
  .transform((decimal) => parseUsdc(decimal))
  .optional()

const paymentsQuery = paymentFilters.extend({
  min_usdc: amount.openapi({
    type: 'string',
    example: '0.01',
    description: 'What the buyer paid, fee included',
  }),
  max_usdc: amount.openapi({ type: 'string', example: '5' }),
  format: z.enum(['json', 'csv']).optional().openapi({
    default: 'json',
    description: '`csv`: all pages from here on, in the columns of the statement',
  }),
  status: z.enum(paymentStatuses).optional(),
  tx_hash: wire.txHash.optional().openapi({ type: 'string', description: 'Of the batch that settled them' }),
})

export const providerPayment = z
  .object({
    paymentId: wire.paymentId,
    requestId: wire.requestId.nullable(),
    payment_status: z.enum(paymentStatuses),
    source: z.enum(paymentSources),
    tab: z
      .object({
        tabId: wire.tabId,
        sale: z.int().openapi({ description: 'Its number among what was sold on this tab' }),
        requests: z.int(),
      })
      .nullable()
      .openapi({
        description:
          'What was sold on a tab: a row for each endpoint and hour, with its requests and amounts. ' +
          'Where it stands is where the payment of the whole tab does',
      }),
    endpointId: wire.endpointId.nullable(),
    network: wire.networkName,
    testnet: wire.testnet,
    payer: wire.addressOut,
    payTo: wire.addressOut,
    totalUsdc: wire.baseUnits,
    providerUsdc: wire.baseUnits,
    platformUsdc: wire.baseUnits,
    settledUsdc: wire.baseUnits.openapi({
      description: 'Of `providerUsdc`, what has arrived: less than all where an older state of a tab moved',
    }),
    tier: z.string(),
    resource: z.string(),
    acceptedAt: wire.isoTime,
    settledAt: wire.isoTime.nullable(),
    transactionHash: wire.hashOut.nullable(),
    platformTransactionHash: wire.hashOut.nullable(),
    splitter: wire.addressOut
      .nullable()
      .openapi({ description: 'Whom the one authorization pays; null: each part has one of its own' }),
    paidOutAt: wire.isoTime
      .nullable()
      .openapi({ description: 'By its splitter; null: not yet, or it pays none' }),
    payoutTransactionHash: wire.hashOut.nullable(),
    attempts: z.int(),
    nextAttemptAt: wire.isoTime.nullable(),
    failureCode: z.string().nullable(),
    failedAt: wire.isoTime.nullable(),
    voidedAt: wire.isoTime.nullable(),
    refundedUsdc: wire.baseUnits.openapi({ description: 'What has arrived of its refunds' }),
  })
  .openapi('ProviderPayment')

export const providerPayments = z
  .object({ payments: z.array(providerPayment), cursor: wire.cursorOut, indexedBlocks: wire.indexedBlocks })
  .openapi('ProviderPayments')

const getPayments = route('get', '/providers/{id}/payments', {
  ...providerViews,
  summary: 'Payments, newest first',
  description:
    'A page may hold fewer than `limit` and still have a next one: only a null cursor ends the list.',
  query: paymentsQuery,
  responses: {
    200: {
      ...jsonAnswer('The payments', providerPayments),
      content: {
        'application/json': { schema: providerPayments },
        'text/csv': { schema: { type: 'string' as const } },
      },
    },
  },
})

const csvPageSize = 2_000

export const paymentPositions = createCursor({
  acceptedAt: timeField,
  paymentId: textField,
  sale: integerField.optional(),
})

export function addProviderPaymentRoute(app: App, { sql, heads, networks, now }: RouteOptions): void {
  app.openapi(getPayments, async (c) => {
    const providerId = c.req.valid('param').id
    const { network, cursor, limit = wire.defaultLimit, format, ...asked } = c.req.valid('query')
    const { tx_hash: txHash, min_usdc: minAmount, max_usdc: maxAmount, ...filters } = asked
    const chainId = networks.chainIdNamed(network)
    const after = paymentPositions.read('payments', cursor)
    const indexedBlocks = await heads.ofProvider(providerId, chainId)
    const find = (after: PaymentPosition | null, limit: number) =>
      findProviderPayments(sql, {
        ...{ ...filters, providerId, chainId, txHash, minAmount, maxAmount, after, limit },
        now: new Date(now()),
      })
    if (format === 'csv')
      return answerCsv(c, 'payments.csv', after, async (after) => {
        const { payments, next } = await find(after, csvPageSize)
        return { text: payments.map((payment) => toPaymentLine(networks, payment)).join(''), next }
      })
    const { payments, next } = await find(after, limit)
    return c.json(
      {
        payments: payments.map(toProviderPayment),
        cursor: next && paymentPositions.write('payments', next),
        indexedBlocks,
      },
      200,
    )
  })
}

export function toProviderPayment(payment: ProviderPayment) {
  const { name, testnet } = networkByChainId(payment.chainId)
  return {
    paymentId: payment.paymentId,
    requestId: payment.requestId,
    payment_status: payment.status,
    source: payment.source,
    tab: payment.tab,
    endpointId: payment.endpointId,
    network: name,
    testnet,
    payer: payment.payer,
    payTo: payment.payTo,
    totalUsdc: (payment.providerAmount + payment.feeAmount).toString(),
    providerUsdc: payment.providerAmount.toString(),
    platformUsdc: payment.feeAmount.toString(),
    settledUsdc: payment.settledAmount.toString(),
    tier: payment.tier,
    resource: payment.resource,
    acceptedAt: payment.acceptedAt.toISOString(),
    settledAt: payment.settledTime === null ? null : wire.isoOfSeconds(payment.settledTime),
    transactionHash: payment.txHash,
    platformTransactionHash: payment.feeTxHash,
    splitter: payment.splitter,
    paidOutAt: payment.payoutTime === null ? null : wire.isoOfSeconds(payment.payoutTime),
    payoutTransactionHash: payment.payoutTxHash,
    attempts: payment.attempts,
    nextAttemptAt: wire.isoOrNull(payment.nextAttemptAt),
    failureCode: payment.failureCode,
    failedAt: wire.isoOrNull(payment.failedAt),
    voidedAt: wire.isoOrNull(payment.voidedAt),
    refundedUsdc: payment.refundedAmount.toString(),
  }
}
