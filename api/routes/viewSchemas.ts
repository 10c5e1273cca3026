import { z } from '@hono/zod-openapi'
import { paymentStatuses } from '#protocol/paymentStatus'
import { address, endpointId, networkName, paymentId, providerId, testnet } from '../http/schemas.ts'
import { revenueGroups, revenueIntervals } from '../portal/queries/revenue.ts'
import { usageIntervals } from '../portal/queries/usage.ts'

/*
 * What providers look at. As in the settlement views, `…_usdc` is a decimal string with 6 decimals; `…Usdc`, as in
 * receipts, is in base units.
 */

export { providerId }

export const isoTime = z.iso.datetime().openapi({ example: '2026-11-21T13:00:00.000Z' })
const decimalUsdc = z.string().openapi({ example: '0.050000', description: 'USDC, always 6 decimals' })
const baseUnits = z.string().openapi({ example: '47500', description: 'USDC base units: 1000000 = 1 USDC' })
const addressOut = z.string().openapi({ example: '0x71c7656ec7ab88b098defb751b7401b5f6d8976f' })
const txHashOut = z.string().openapi({ example: `0x${'ab'.repeat(32)}` })

/** A page's size: 20 unless told, 100 at most. */
export const limit = wholeNumber(100, 20)
export const cursor = z.string().max(500).optional()
export const cursorOut = z.string().nullable().openapi({ description: 'Of the next page; null on the last' })

function wholeNumber(maximum: number, usual: number) {
  return z
    .string()
    .regex(/^-?\d{1,9}$/, 'expected a whole number')
    .transform(Number)
    .pipe(z.int().min(1).max(maximum))
    .optional()
    .openapi({ type: 'integer', minimum: 1, maximum, default: usual })
}

/** An instant, or a UTC date for its first moment. */
const time = z
  .union(
    [z.iso.datetime({ offset: true }), z.iso.date()],
    'expected a time like 2026-11-21T13:00:00Z or a date',
  )
  .transform((text) => new Date(text))
  // Beyond these, Postgres and ISO 8601 write years differently.
  .refine((date) => date.getTime() >= 0 && date.getUTCFullYear() < 2200, 'expected a year from 1970 to 2199')
  .optional()
  .openapi({ type: 'string', format: 'date-time', example: '2026-11-01' })

/** Checked here, unlike one in a path: text with a NUL would reach the database as an error. */
const endpointFilter = z
  .string()
  .regex(/^ep_[0-9a-f]{32}$/, 'expected ep_ and 32 hex digits')
  .openapi({ example: 'ep_0f8fad5bd9cb469fa16570867728950e' })

const txHash = z
  .string()
  .regex(/^0x[0-9a-fA-F]{64}$/, 'expected 0x and 64 hex digits')
  .transform((text) => text.toLowerCase() as `0x${string}`)

/** Test money is worth nothing, so no sum holds both. */
const testnetFilter = z
  .enum(['true', 'false'])
  .transform((text) => text === 'true')
  .optional()
  .openapi({
    type: 'string',
    enum: ['true', 'false'],
    description: 'Test money or real money; default: real money, unless every wallet is on a test network',
  })

export const indexedBlocks = z.record(z.string(), z.int()).openapi({
  example: { base: 38_000_000 },
  description: "How far the index has come, on each network of the provider's wallets",
})

// Revenue -------------------------------------------------------------------------------------------------------------

export const revenueQuery = z.object({
  interval: z.enum(revenueIntervals).optional().openapi({ default: 'day' }),
  groupBy: z.enum(revenueGroups).optional().openapi({ default: 'none' }),
  from: time,
  to: time,
  endpointId: endpointFilter.optional(),
  wallet: address.optional(),
  network: networkName.optional(),
  testnet: testnetFilter,
  limit: wholeNumber(1_000, 100),
  cursor,
})

const revenueRow = z
  .object({
    startsAt: isoTime.nullable().openapi({ description: 'Of the interval, UTC; null with `total`' }),
    endpointId: z.string().optional(),
    network: networkName.optional(),
    wallet: addressOut.optional(),
    payments: z.int().openapi({ description: 'Accepted, without voided ones' }),
    settledPayments: z.int(),
    outstandingPayments: z.int(),
    failedPayments: z.int(),
    voidedPayments: z.int(),
    gross_usdc: decimalUsdc,
    fee_usdc: decimalUsdc,
    net_usdc: decimalUsdc.openapi({ description: 'gross - fee = settled + outstanding + failed' }),
    settled_usdc: decimalUsdc.openapi({ description: 'Of net: has arrived on chain' }),
    outstanding_usdc: decimalUsdc,
    failed_usdc: decimalUsdc,
    settled_fee_usdc: decimalUsdc,
  })
  .openapi('RevenueRow')

export const revenue = z
  .object({
    interval: z.enum(revenueIntervals),
    testnet,
    from: isoTime,
    to: isoTime,
    revenue: z.array(revenueRow),
    cursor: cursorOut,
    indexedBlocks,
  })
  .openapi('Revenue')

// Payments ------------------------------------------------------------------------------------------------------------

const paymentFilters = {
  endpointId: endpointFilter.optional(),
  payer: address.optional(),
  network: networkName.optional(),
  from: time,
  to: time,
  limit,
  cursor,
}

export const paymentsQuery = z.object({
  ...paymentFilters,
  status: z.enum(paymentStatuses).optional(),
  tx_hash: txHash.optional().openapi({ type: 'string', description: 'Of the batch that settled them' }),
})

const providerPayment = z
  .object({
    paymentId,
    requestId: z.string(),
    payment_status: z.enum(paymentStatuses),
    endpointId,
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
    transactionHash: txHashOut.nullable(),
    platformTransactionHash: txHashOut.nullable(),
    attempts: z.int(),
    nextAttemptAt: isoTime.nullable(),
    failureCode: z.string().nullable(),
    failedAt: isoTime.nullable(),
    voidedAt: isoTime.nullable(),
  })
  .openapi('ProviderPayment')

export const payments = z
  .object({ payments: z.array(providerPayment), cursor: cursorOut, indexedBlocks })
  .openapi('ProviderPayments')

export const failuresQuery = z.object({
  ...paymentFilters,
  status: z.enum(['retrying', 'failed']).optional().openapi({ default: 'retrying' }),
})

const failure = providerPayment
  .extend({
    failures: z.array(
      z.object({
        attempt: z.int(),
        code: z.string().openapi({ example: 'insufficient_balance' }),
        detail: z.string(),
        failedAt: isoTime,
        nextAttemptAt: isoTime.nullable(),
      }),
    ),
  })
  .openapi('SettlementFailure')

export const failures = z
  .object({ failures: z.array(failure), cursor: cursorOut, indexedBlocks })
  .openapi('SettlementFailures')

// Payers and usage ----------------------------------------------------------------------------------------------------

export const payersQuery = z.object({
  network: networkName.optional(),
  testnet: testnetFilter,
  from: time,
  to: time,
  limit,
})

export const payers = z
  .object({
    testnet,
    from: isoTime.nullable().openapi({ description: 'Null: all time' }),
    to: isoTime.nullable(),
    payers: z.array(
      z.object({
        payer: addressOut,
        network: networkName,
        payments: z.int(),
        gross_usdc: decimalUsdc,
        settled_usdc: decimalUsdc,
        lastPaymentAt: isoTime,
      }),
    ),
    indexedBlocks,
  })
  .openapi('TopPayers')

export const usageQuery = z.object({
  interval: z.enum(usageIntervals).optional().openapi({ default: 'day' }),
  from: time,
  to: time,
  endpointId: endpointFilter.optional(),
  limit: wholeNumber(1_000, 100),
  cursor,
})

export const usage = z
  .object({
    interval: z.enum(usageIntervals),
    from: isoTime,
    to: isoTime,
    usage: z.array(
      z.object({
        startsAt: isoTime.nullable(),
        endpointId,
        calls: z.int().openapi({ description: 'challenged + paid + all refused' }),
        challenged: z.int().openapi({ description: 'Came without a payment and got a challenge' }),
        paid: z.int(),
        refused: z.record(z.string(), z.int()).openapi({ example: { insufficient_balance: 2 } }),
      }),
    ),
    cursor: cursorOut,
  })
  .openapi('Usage')
