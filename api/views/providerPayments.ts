import { createRoute, z } from '@hono/zod-openapi'
import type { Database } from '#ledger/store/database'
import { parseUsdc } from '#protocol/amount'
import { networkByChainId } from '#protocol/networks'
import { paymentStatuses } from '#protocol/paymentStatus'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import {
  address,
  addressOut,
  baseUnits,
  cursor,
  cursorOut,
  defaultLimit,
  endpointId,
  hashOut,
  idFilter,
  indexedBlocks,
  isoOfSeconds,
  isoOrNull,
  isoTime,
  limit,
  networkName,
  ofProvider,
  paymentId,
  requestId,
  testnet,
  timeFilter,
  txHash,
} from '../http/wire.ts'
import { paymentSources } from '../payments/records/payments.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { findProviderPayments, type PaymentPosition, type ProviderPayment } from './providerPaymentQueries.ts'
import { answerCsv, toPaymentLine } from './statement.ts'

/** What payments and failures are narrowed by. */
export const paymentFilters = z.object({
  endpointId: idFilter('ep').optional(),
  payer: address.optional(),
  network: networkName.optional(),
  from: timeFilter,
  to: timeFilter,
  limit,
  cursor,
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
  tx_hash: txHash.optional().openapi({ type: 'string', description: 'Of the batch that settled them' }),
})

export const providerPayment = z
  .object({
    paymentId,
    requestId: requestId.nullable(),
    payment_status: z.enum(paymentStatuses),
    source: z.enum(paymentSources),
    endpointId: endpointId.nullable(),
    network: networkName,
    testnet,
    payer: addressOut,
    payTo: addressOut,
    totalUsdc: baseUnits,
    providerUsdc: baseUnits,
    platformUsdc: baseUnits,
    tier: z.string(),
    resource: z.string(),
    acceptedAt: isoTime,
    settledAt: isoTime.nullable(),
    transactionHash: hashOut.nullable(),
    platformTransactionHash: hashOut.nullable(),
    splitter: addressOut
      .nullable()
      .openapi({ description: 'Whom the one authorization pays; null: each part has one of its own' }),
    paidOutAt: isoTime.nullable().openapi({ description: 'By its splitter; null: not yet, or it pays none' }),
    payoutTransactionHash: hashOut.nullable(),
    attempts: z.int(),
    nextAttemptAt: isoTime.nullable(),
    failureCode: z.string().nullable(),
    failedAt: isoTime.nullable(),
    voidedAt: isoTime.nullable(),
    refundedUsdc: baseUnits.openapi({ description: 'What has arrived of its refunds' }),
  })
  .openapi('ProviderPayment')

export const providerPayments = z
  .object({ payments: z.array(providerPayment), cursor: cursorOut, indexedBlocks })
  .openapi('ProviderPayments')

const getPayments = createRoute({
  ...ownersOnly,
  tags: ['Provider views'],
  method: 'get',
  path: '/providers/{id}/payments',
  summary: 'Payments, newest first',
  description:
    'A page may hold fewer than `limit` and still have a next one: only a null cursor ends the list.',
  request: { params: ofProvider, query: paymentsQuery },
  responses: {
    200: {
      ...jsonAnswer('The payments', providerPayments),
      content: {
        'application/json': { schema: providerPayments },
        'text/csv': { schema: { type: 'string' as const } },
      },
    },
    ...problems(400, 401, 403, 422, 503),
  },
})

const csvPageSize = 2_000

export const paymentPositions = createCursor({ acceptedAt: timeField, paymentId: textField })

export type ProviderPaymentRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  now: () => number
}

export function addProviderPaymentRoute(
  app: App,
  { sql, heads, networks, now }: ProviderPaymentRouteOptions,
): void {
  app.openapi(getPayments, async (c) => {
    const providerId = c.req.valid('param').id
    const { network, cursor, limit = defaultLimit, format, ...asked } = c.req.valid('query')
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
    endpointId: payment.endpointId,
    network: name,
    testnet,
    payer: payment.payer,
    payTo: payment.payTo,
    totalUsdc: (payment.providerAmount + payment.feeAmount).toString(),
    providerUsdc: payment.providerAmount.toString(),
    platformUsdc: payment.feeAmount.toString(),
    tier: payment.tier,
    resource: payment.resource,
    acceptedAt: payment.acceptedAt.toISOString(),
    settledAt: payment.settledTime === null ? null : isoOfSeconds(payment.settledTime),
    transactionHash: payment.txHash,
    platformTransactionHash: payment.feeTxHash,
    splitter: payment.splitter,
    paidOutAt: payment.payoutTime === null ? null : isoOfSeconds(payment.payoutTime),
    payoutTransactionHash: payment.payoutTxHash,
    attempts: payment.attempts,
    nextAttemptAt: isoOrNull(payment.nextAttemptAt),
    failureCode: payment.failureCode,
    failedAt: isoOrNull(payment.failedAt),
    voidedAt: isoOrNull(payment.voidedAt),
    refundedUsdc: payment.refundedAmount.toString(),
  }
}
