import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, integerField, textField, timeField } from '../http/cursor.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { findProviderPayments, type PaymentPosition, providerPayment } from './providerPaymentQueries.ts'
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
  format: z.enum(['json', 'csv']).default('json').openapi({
    description: '`csv`: all pages from here on, in the columns of the statement',
  }),
  status: z.enum(paymentStatuses).optional(),
  tx_hash: wire.txHash.optional().openapi({ type: 'string', description: 'Of the batch that settled them' }),
})

export const providerPayments = z
  .object({ payments: z.array(providerPayment), cursor: wire.cursorOut, indexedBlocks: wire.indexedBlocks })
  .openapi('ProviderPayments')

const csvPageSize = 2_000

export const paymentPositions = createCursor({
  acceptedAt: timeField,
  paymentId: textField,
  sale: integerField.optional(),
})

export type ProviderPaymentRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  now: () => number
}

export const addProviderPaymentRoute = view('/providers/{id}/payments', {
  ...providerViews,
  summary: 'Payments, newest first',
  description:
    'A page may hold fewer than `limit` and still have a next one: only a null cursor ends the list.',
  query: paymentsQuery,
  answer: ['The payments', providerPayments],
  hasCsv: true,
  open:
    ({ sql, heads, networks, now }: ProviderPaymentRouteOptions) =>
    async ({ id: providerId, network, cursor, limit, format, ...asked }, c) => {
      const { tx_hash: txHash, min_usdc: minAmount, max_usdc: maxAmount, ...filters } = asked
      const chainId = networks.chainIdNamed(network)
      const after = paymentPositions.read('payments', cursor)
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const find = (after: PaymentPosition | null, limit: number) =>
        findProviderPayments(sql, {
          ...filters,
          providerId,
          chainId,
          txHash,
          minAmount,
          maxAmount,
          after,
          limit,
          now: new Date(now()),
        })
      if (format === 'csv')
        return answerCsv(c, 'payments.csv', after, async (after) => {
          const { payments, next } = await find(after, csvPageSize)
          return { write: () => payments.map((payment) => toPaymentLine(networks, payment)).join(''), next }
        })
      const { payments, next } = await find(after, limit)
      return { payments, cursor: next && paymentPositions.write('payments', next), indexedBlocks }
    },
})
