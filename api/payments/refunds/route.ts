import { z } from '@hono/zod-openapi'
import { sumGas, withMargin } from '@tollkeeper/chain/gasShares'
import { readRefundGas } from '@tollkeeper/ledger/queue/gasDraws'
import { toCodedError } from '@tollkeeper/runtime/problem'
import { maxRefunds, refundNonce } from '@tollkeeper/sdk/protocol/refund'
import { nextUtcDay } from '@tollkeeper/sdk/protocol/time'
import type { App } from '../../http/app.ts'
import { ownersOnly } from '../../http/authenticate.ts'
import type { ApiMetrics } from '../../http/metrics.ts'
import { jsonAnswer } from '../../http/problems.ts'
import { Refusal } from '../../http/refusal.ts'
import { route } from '../../http/route.ts'
import { view } from '../../http/view.ts'
import * as wire from '../../http/wire.ts'
import { writerOf } from '../../http/writer.ts'
import { minimumPriceOn } from '../../registry/price.ts'
import { findPayment, type PaymentRecord } from '../records/payments.ts'
import type { RecordedHeads } from '../records/recordedHeads.ts'
import { type RefundRecord, refundStatuses } from '../records/refunds.ts'
import { createVerifyRefund, type VerifyRefundOptions } from './verifyRefund.ts'

/** A refund in the form of every view. */
export const refund = z
  .object({
    number: z.int().openapi({ description: "Number among the payment's refunds, starting at 1" }),
    refund_status: z.enum(refundStatuses),
    from: wire.addressOut,
    to: wire.addressOut,
    valueUsdc: wire.baseUnits,
    nonce: wire.hashOut,
    validBefore: wire.integer,
    acceptedAt: wire.isoTime,
    settledAt: wire.isoSeconds.nullable(),
    transactionHash: wire.hashOut.nullable(),
    blockNumber: wire.integer.nullable(),
    attempts: z.int(),
    nextAttemptAt: wire.isoTime.nullable(),
    failureCode: z.string().nullable(),
  })
  .openapi('Refund')

export const refunds = z
  .object({
    paymentId: wire.paymentId,
    network: wire.networkName,
    asset: wire.addressOut,
    payer: wire.addressOut.openapi({ description: 'The wallet that a refund pays' }),
    paidUsdc: wire.baseUnits,
    refundableUsdc: wire.baseUnits.openapi({
      description:
        'The paid amount minus refunds that have moved or can still move. A failed refund counts until it has expired',
    }),
    minimumUsdc: wire.baseUnits.openapi({
      description: 'Minimum amount of a partial refund; a refund of everything that was paid may be smaller',
    }),
    next: z
      .object({ number: z.int(), nonce: wire.hashOut })
      .nullable()
      .openapi({
        description: `Nonce with which the next refund is signed; null after ${maxRefunds} refunds`,
      }),
    gas: z
      .object({
        neededUsdc: wire.baseUnits.nullable().openapi({
          description:
            "Amount that the next refund would reserve now; null if the network's nodes don't answer",
        }),
        leftUsdc: wire.baseUnits,
        limitUsdc: wire.baseUnits.openapi({
          description: 'Limit for all refunds of the provider on a UTC day',
        }),
        hasGrant: z.boolean().openapi({
          description:
            "True if the limit is the provider's own grant; false if it is the provider's share of the pool for refunds",
        }),
        resetsAt: wire.isoTime,
      })
      .openapi({
        description:
          'The operator’s remaining allowance today for the gas of refunds. A refund that needs more is refused',
      }),
    refunds: z.array(refund),
    indexedBlock: wire.indexedBlock,
  })
  .openapi('Refunds')

export type RefundRouteOptions = VerifyRefundOptions & {
  heads: RecordedHeads
  metrics: Pick<ApiMetrics, 'refunds'>
}

const addRefundsRoute = view('/providers/{id}/payments/{paymentId}/refunds', {
  ...ownersOnly,
  tags: ['Refunds'],
  summary: "A payment's refunds, and the amount that can still be refunded",
  refuses: [422],
  answer: ['The refunds', refunds],
  open: (options: RefundRouteOptions) => async (asked) => {
    const { networks, settings, sql, now } = options
    const { payment, indexedBlock } = await readPayment(options, asked)
    const { served, meter } = networks.ofChain(payment.chainId)
    const { network } = served
    const { paymentId, chainId, token, payer, refunds } = payment
    const at = new Date(now())
    const own = { providerId: asked.id, chainId, common: settings.gasAllowance, now: at }
    const { hasGrant, most, left } = await readRefundGas(sql, own)
    const needed = await meter
      .read()
      .then((prices) => withMargin(sumGas([{ isPair: false, recipient: payer, hasCode: false }], prices)))
      .catch(() => null)
    const number = nextNumber(refunds)
    return {
      paymentId,
      network: network.name,
      asset: token,
      payer,
      indexedBlock,
      paidUsdc: paidAmount(payment),
      refundableUsdc: refundableAmount(payment),
      minimumUsdc: minimumPriceOn(settings, network),
      next: number === null ? null : { number, nonce: refundNonce(settings.issuer, paymentId, number) },
      gas: {
        neededUsdc: needed,
        leftUsdc: left,
        limitUsdc: most,
        hasGrant,
        resetsAt: nextUtcDay(at),
      },
      refunds: refunds.map(toRefund),
    }
  },
})

const postRefund = route('post', '/providers/{id}/payments/{paymentId}/refunds', {
  ...ownersOnly,
  tags: ['Refunds'],
  summary: 'Refund a settled payment, completely or in part',
  description:
    "Takes a signed `transferWithAuthorization` (EIP-3009) from one of the provider's wallets to the payment's payer, with the nonce of " +
    'one refund of this payment. It is settled with the next batch; the platform pays the gas. Sending it again changes ' +
    'nothing and returns its current state. A failed refund is then retried while it is valid.',
  body: z.strictObject({
    payload: z
      .string()
      .max(4_096)
      .openapi({ description: 'from,to,value,validAfter,validBefore,nonce,signature' }),
  }),
  refuses: [402, 409, 415, 429],
  responses: { 201: jsonAnswer('The refund', refund) },
})

const write = writerOf(refund)

export function addRefundRoutes(app: App, options: RefundRouteOptions): void {
  const verifyRefund = createVerifyRefund(options)
  addRefundsRoute(app, options)

  app.openapi(postRefund, async (c) => {
    const params = c.req.valid('param')
    const { payload } = c.req.valid('json')
    const asked = await readPayment(options, params)
    const indexedBlock = BigInt(asked.indexedBlock ?? 0)
    const number = await verifyRefund({ ...asked, indexedBlock, providerId: params.id, payload }).catch(
      (error: unknown) => {
        options.metrics.refunds.inc({ result: toCodedError(error).code })
        throw error
      },
    )
    options.metrics.refunds.inc({ result: 'ok' })
    const { payment } = await readPayment(options, params)
    const refund = payment.refunds.find((one) => one.number === number)
    if (refund === undefined) throw new Error(`refund ${number} of ${params.paymentId} was undone`)
    return c.json(write(toRefund(refund)), 201)
  })
}

async function readPayment(
  { sql, heads, now }: Pick<RefundRouteOptions, 'sql' | 'heads' | 'now'>,
  { id, paymentId }: { id: string; paymentId: string },
) {
  const payment = await findPayment(sql, paymentId, new Date(now()))
  if (payment?.providerId !== id) throw new Refusal('unknown_payment')
  return { payment, indexedBlock: await heads.of(payment.chainId) }
}

function nextNumber(refunds: readonly RefundRecord[]): number | null {
  for (let number = 1; number <= maxRefunds; number++)
    if (!refunds.some((one) => one.number === number)) return number
  return null
}

function paidAmount({ providerAmount, feeAmount }: PaymentRecord): bigint {
  return providerAmount + feeAmount
}

function refundableAmount(payment: PaymentRecord): bigint {
  if (payment.status !== 'settled' || payment.source !== 'gateway') return 0n
  return payment.refunds.reduce(
    (left, { isDead, value }) => (isDead ? left : left - value),
    paidAmount(payment),
  )
}

/** Converts a refund to {@link refund}. */
export function toRefund({ status, value, settledTime, txHash, ...rest }: RefundRecord) {
  return { ...rest, refund_status: status, valueUsdc: value, settledAt: settledTime, transactionHash: txHash }
}
