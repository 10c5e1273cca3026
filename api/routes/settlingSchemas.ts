import { z } from '@hono/zod-openapi'
import { type Trigger, triggerCodes } from '#protocol/settlement'
import { networkName, paymentId, walletId } from '../http/schemas.ts'
import { cursor, cursorOut, indexedBlocks, isoTime, limit } from './viewSchemas.ts'

/*
 * How far a provider's payments are on their way: what waits, what was sent, what one payment went through. As in the
 * other views, `…_usdc` is a decimal string with 6 decimals.
 */

const decimalUsdc = z.string().openapi({ example: '0.050000', description: 'USDC, always 6 decimals' })
const addressOut = z.string().openapi({ example: '0x71c7656ec7ab88b098defb751b7401b5f6d8976f' })
const txHashOut = z.string().openapi({ example: `0x${'ab'.repeat(32)}` })
const triggerName = z.enum(Object.keys(triggerCodes) as Trigger[])

// Queue ---------------------------------------------------------------------------------------------------------------

const walletQueue = z
  .object({
    walletId,
    wallet: addressOut,
    network: networkName,
    payments: z.int().openapi({ description: 'Waiting: what the triggers count' }),
    accumulated_usdc: decimalUsdc.openapi({ description: 'What the wallet receives of them' }),
    settlingPayments: z.int().openapi({ description: 'In a batch that is under way' }),
    settling_usdc: decimalUsdc,
    retryingPayments: z.int().openapi({ description: 'Failed before and waiting for their next attempt' }),
    fired: triggerName
      .nullable()
      .openapi({ description: 'The trigger that has fired; the keeper takes it up within moments' }),
    settlesAt: isoTime
      .nullable()
      .openapi({ description: 'At the latest, if nothing else is queued; null for an empty queue' }),
    triggers: z.object({
      amount: z.object({ threshold_usdc: decimalUsdc, raised_threshold_usdc: decimalUsdc }),
      count: z.object({ threshold: z.int(), raisedThreshold: z.int() }),
      time: z.object({ since: isoTime.nullable(), at: isoTime.nullable(), seconds: z.int() }),
      high_value: z.object({ largest_usdc: decimalUsdc, threshold_usdc: decimalUsdc }),
      expiry: z.object({ validBefore: isoTime.nullable(), at: isoTime.nullable() }),
    }),
  })
  .openapi('WalletQueue')

export const queue = z
  .object({
    wallets: z.array(walletQueue),
    asOf: isoTime.openapi({ description: "The gateway's clock, for countdowns" }),
    indexedBlocks,
  })
  .openapi('ProviderQueue')

// Batches -------------------------------------------------------------------------------------------------------------

export const batchesQuery = z.object({ network: networkName.optional(), limit, cursor })

export const batches = z
  .object({
    batches: z.array(
      z
        .object({
          batch_id: z.int(),
          network: networkName,
          payment_count: z.int().openapi({ description: "The provider's own, in all its wallets" }),
          total_usdc: decimalUsdc,
          batch_payment_count: z.int().openapi({ description: "Everybody's in this batch" }),
          gas_used: z.string().openapi({ example: '9104312', description: 'Of the whole transaction' }),
          gas_cost_usdc: decimalUsdc.openapi({
            description: 'Of the whole transaction; the platform pays it',
          }),
          tx_hash: txHashOut,
          trigger_type: z.string(),
          created_at: isoTime,
          confirmed_at: isoTime.nullable(),
        })
        .openapi('ProviderBatch'),
    ),
    cursor: cursorOut,
    indexedBlocks,
  })
  .openapi('ProviderBatches')

// One payment's life --------------------------------------------------------------------------------------------------

export const timelineParams = z.object({ paymentId })

export const timeline = z
  .object({
    paymentId,
    network: networkName,
    challengedAt: isoTime,
    acceptedAt: isoTime,
    publishedAt: isoTime.nullable(),
    voidedAt: isoTime.nullable(),
    failedAt: isoTime.nullable(),
    batches: z
      .array(
        z.object({
          trigger: triggerName,
          claimedAt: isoTime,
          closedAt: isoTime.nullable(),
          outcome: z
            .enum(['settled', 'nothing_left', 'released', 'reverted', 'lost'])
            .nullable()
            .openapi({ description: 'Why it was closed; null while it is open' }),
          transactions: z.array(
            z.object({
              hash: txHashOut,
              kind: z.enum(['settle', 'replacement', 'cancellation']),
              signedAt: isoTime,
              broadcastAt: isoTime.nullable(),
              blockNumber: z.int().nullable(),
            }),
          ),
        }),
      )
      .openapi({ description: 'Each batch of ours that claimed it, the oldest first' }),
    failures: z.array(
      z.object({
        attempt: z.int(),
        code: z.string(),
        detail: z.string(),
        failedAt: isoTime,
        nextAttemptAt: isoTime.nullable(),
      }),
    ),
    mined: z
      .object({ at: isoTime, transactionHash: txHashOut, blockNumber: z.int() })
      .nullable()
      .openapi({ description: "Of the provider's half, as the indexed chain shows it now" }),
    confirmedAt: isoTime.nullable(),
    confirmations: z.int().openapi({ description: 'Blocks on top of it so far, at most those required' }),
    confirmationsRequired: z.int(),
    indexedBlock: z.int(),
  })
  .openapi('PaymentTimeline')
