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
import { sumPayments } from './paymentTotals.ts'
import {
  findProviderPayments,
  type PaymentFilter,
  type PaymentPosition,
  providerPayment,
} from './providerPaymentQueries.ts'
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
export const amountFilter = z
  .string()
  .regex(/^\d{1,12}(\.\d{1,6})?$/, 'expected decimal USDC')
  .transform((decimal) => parseUsdc(decimal))
  .optional()

const paymentsQuery = paymentFilters.extend({
  min_usdc: amountFilter.openapi({
    type: 'string',
    example: '0.01',
    description: 'Price that the buyer paid, fee included',
  }),
  max_usdc: amountFilter.openapi({ type: 'string', example: '5' }),
  format: z.enum(['json', 'csv']).default('json').openapi({
    description:
      '`csv` returns all payments after the cursor, not only a page, in the columns of the statement',
  }),
  status: z.enum(paymentStatuses).optional(),
  tx_hash: wire.txHash
    .optional()
    .openapi({ type: 'string', description: 'Transaction of the batch that settled them' }),
  testnet: wire.testnetFilter.openapi({
    type: 'string',
    enum: ['true', 'false'],
    description: 'Only test money, or only real money; default: both',
  }),
})

const totalsQuery = paymentsQuery.omit({ limit: true, cursor: true, format: true })

const totalsOfMoney = z.object({
  testnet: wire.testnet,
  payments: z.int().openapi({
    description: 'Number of payments, excluding voided payments. Each request on a tab counts as one',
  }),
  voidedPayments: z.int(),
  gross_usdc: wire.decimalUsdc.openapi({ description: 'Amount that buyers signed, without voided payments' }),
  fee_usdc: wire.decimalUsdc,
  net_usdc: wire.decimalUsdc.openapi({ description: "The provider's part: gross = fee + net" }),
  settled_usdc: wire.decimalUsdc.openapi({ description: 'The part of net that has arrived' }),
  refunded_usdc: wire.decimalUsdc.openapi({ description: 'Refunds of these payments that have arrived' }),
})

export const paymentTotals = z
  .object({
    totals: z.array(totalsOfMoney).openapi({
      description: 'Test money and real money are summed separately; a kind without payments is left out',
    }),
    since: wire.isoTime.nullable().openapi({
      description:
        'Null: the sums contain all payments. Otherwise there are too many payments, and the sums contain only those accepted at this time or later: choose a shorter period',
    }),
    isRefundedComplete: z.boolean().openapi({
      description: 'False: `refunded_usdc` covers only the 1,000 refunds that were requested last',
    }),
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('PaymentTotals')

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
    'A page may have fewer than `limit` payments and still not be the last: only a null cursor ends the list.',
  query: paymentsQuery,
  answer: ['The payments', providerPayments],
  hasCsv: true,
  open:
    ({ sql, heads, networks, now }: ProviderPaymentRouteOptions) =>
    async ({ cursor, limit, format, ...asked }, c) => {
      const filter = toFilter(networks, asked)
      const after = paymentPositions.read('payments', cursor)
      const indexedBlocks = await heads.ofProvider(filter.providerId, filter.chainId)
      const find = (after: PaymentPosition | null, limit: number) =>
        findProviderPayments(sql, { ...filter, after, limit, now: new Date(now()) })
      if (format === 'csv')
        return answerCsv(c, 'payments.csv', after, async (after) => {
          const { payments, next } = await find(after, csvPageSize)
          return {
            write: () =>
              payments.map((payment) => toPaymentLine(networks, payment, payment.refundedUsdc)).join(''),
            next,
          }
        })
      const { payments, next } = await find(after, limit)
      return { payments, cursor: next && paymentPositions.write('payments', next), indexedBlocks }
    },
})

/** Converts the query parameters to a filter; `chainId` is the chain id of the named network. */
function toFilter(
  networks: GatewayNetworks,
  {
    id: providerId,
    network,
    tx_hash: txHash,
    min_usdc: minAmount,
    max_usdc: maxAmount,
    ...filters
  }: z.output<typeof totalsQuery> & { id: string },
): PaymentFilter {
  return { ...filters, providerId, chainId: networks.chainIdNamed(network), txHash, minAmount, maxAmount }
}

export const addPaymentTotalsRoute = view('/providers/{id}/payments/totals', {
  ...providerViews,
  summary: 'Sum the payments that match a filter',
  description:
    'Takes the filters of `payments`; the sums equal those of its CSV. By endpoint, network and time, and for `status=settled`, they are exact ' +
    'for any number of payments. By payer, amount, transaction or another status, only the newest 500 candidates are summed.',
  query: totalsQuery,
  answer: ['The sums', paymentTotals],
  open:
    ({ sql, heads, networks, now }: ProviderPaymentRouteOptions) =>
    async (asked) => {
      const filter = toFilter(networks, asked)
      const indexedBlocks = await heads.ofProvider(filter.providerId, filter.chainId)
      const { totals, ...found } = await sumPayments(sql, filter, new Date(now()))
      return {
        ...found,
        totals: totals.map(({ gross, fee, net, settledNet, refunded, ...sums }) => ({
          ...sums,
          gross_usdc: gross,
          fee_usdc: fee,
          net_usdc: net,
          settled_usdc: settledNet,
          refunded_usdc: refunded,
        })),
        indexedBlocks,
      }
    },
})
