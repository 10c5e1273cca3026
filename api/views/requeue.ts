import { z } from '@hono/zod-openapi'
import { type RequeueOutcome, requeuePayment } from '@tollkeeper/ledger/results/requeue'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isId } from '@tollkeeper/ledger/store/identifiers'
import type { App } from '../http/app.ts'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import { operatorsOnly } from '../http/operator.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { findProviderPayments } from './providerPaymentQueries.ts'
import { amountFilter } from './providerPayments.ts'

const postRequeue = route('post', '/payments/{paymentId}/requeue', {
  summary: 'Try to settle a failed payment again',
  description:
    'The payment gets its full number of retries again. This works while its authorizations are valid.',
  tags: ['Payments'],
  security: [{ apiKey: [] }],
  refuses: [403, 409],
  responses: { 202: jsonAnswer('The payment is in the queue', z.object({ paymentId: wire.paymentId })) },
})

const postOperatorRequeue = route('post', '/operator/payments/{paymentId}/requeue', {
  ...operatorsOnly,
  summary: "Try to settle any provider's failed payment again",
  refuses: [409],
  responses: { 202: jsonAnswer('The payment is in the queue', z.object({ paymentId: wire.paymentId })) },
})

/** Maximum number of payments in one call: each is a separate transaction. */
const maxRequeued = 100

const failedFilter = z.object({
  endpointId: wire.idFilter('ep').optional(),
  network: wire.networkName.optional(),
  payer: wire.address.optional(),
  from: wire.timeFilter,
  to: wire.timeFilter,
  min_usdc: amountFilter.openapi({ type: 'string', example: '0.01' }),
  max_usdc: amountFilter.openapi({ type: 'string', example: '5' }),
  testnet: z.boolean().optional(),
})

const requeueAsked = z
  .object({
    paymentIds: z.array(z.string().max(100)).min(1).max(maxRequeued).optional(),
    filter: failedFilter.optional().openapi({
      description: 'Selects failed payments with the filters of `payments`, newest first. `{}` selects all',
    }),
    limit: z.int().min(1).max(maxRequeued).default(maxRequeued),
    cursor: wire.cursor,
  })
  .refine(
    ({ paymentIds, filter }) => (paymentIds === undefined) !== (filter === undefined),
    'expected either paymentIds or filter',
  )
  .openapi('RequeueMany')

export const requeued = z
  .object({
    results: z.array(
      z.object({
        paymentId: wire.paymentId,
        requeued: z.boolean(),
        code: z.string().nullable().openapi({
          example: 'payment_not_requeueable',
          description: 'Why the payment was not queued again; null: it was queued again',
        }),
        detail: z.string().nullable(),
      }),
    ),
    cursor: wire.cursorOut.openapi({
      description: 'Cursor for the next payments of the same filter; null: there are none',
    }),
  })
  .openapi('RequeuedMany')

const postRequeueMany = route('post', '/providers/{id}/payments/requeue', {
  ...providerViews,
  summary: 'Try to settle several failed payments again',
  description:
    'Selects payments by id or by a filter, at most 100 per call, with the same rules as for one payment. Each is decided separately, so some may be queued ' +
    'again while others are not. Sales on tabs are left out: a tab belongs to several providers, so only the operator can queue it again.',
  body: requeueAsked,
  responses: { 200: jsonAnswer('The result for each payment', requeued) },
})

const positions = createCursor({ acceptedAt: timeField, paymentId: textField })

const reasons: Partial<Record<RequeueOutcome, string>> = {
  not_failed: 'It has not failed: it is queued, being settled or settled',
  voided: 'It was voided, so the buyer is not charged',
  not_settleable: 'It can no longer settle: its authorization was used or cancelled',
  expired: 'Its authorization has expired',
}

/** Returns why a payment isn't queued again, as the API reports it; null: it is queued again. */
function refusalOf(outcome: RequeueOutcome): Refusal | null {
  if (outcome === 'requeued') return null
  if (outcome === 'unknown') return new Refusal('unknown_payment')
  if (outcome === 'forbidden') return new Refusal('forbidden')
  return new Refusal('payment_not_requeueable', reasons[outcome])
}

export type RequeueRouteOptions = {
  sql: Database
  networks: GatewayNetworks
  now: () => number
}

export function addRequeueRoute(app: App, { sql, networks, now }: RequeueRouteOptions): void {
  app.openapi(postRequeue, async (c) => {
    const providerId = c.get('caller')
    if (providerId === undefined)
      throw new Refusal('unauthorized', "Only the payment's provider can queue it again: send its API key")
    return c.json(await requeue(c.req.valid('param').paymentId, providerId), 202)
  })

  app.openapi(postOperatorRequeue, async (c) =>
    c.json(await requeue(c.req.valid('param').paymentId, undefined), 202),
  )

  app.openapi(postRequeueMany, async (c) => {
    const providerId = c.req.valid('param').id
    const { paymentIds, filter, ...page } = c.req.valid('json')
    const found =
      paymentIds === undefined
        ? await findFailed(providerId, filter ?? {}, page)
        : { ids: [...new Set(paymentIds)], cursor: null }
    const results: z.infer<typeof requeued>['results'] = []
    // One after the other, so that a call uses one connection of the pool.
    for (const paymentId of found.ids) {
      const refusal = await tryRequeue(paymentId, providerId)
      results.push({
        paymentId,
        requeued: refusal === null,
        code: refusal?.code ?? null,
        detail: refusal?.message ?? null,
      })
    }
    return c.json({ results, cursor: found.cursor }, 200)
  })

  async function findFailed(
    providerId: string,
    { network, min_usdc: minAmount, max_usdc: maxAmount, ...filter }: z.output<typeof failedFilter>,
    { limit, cursor }: { limit: number; cursor?: string | undefined },
  ) {
    const { payments, next } = await findProviderPayments(sql, {
      ...filter,
      providerId,
      chainId: networks.chainIdNamed(network),
      minAmount,
      maxAmount,
      status: 'failed',
      withoutTabs: true,
      after: positions.read('requeue', cursor),
      limit,
      now: new Date(now()),
    })
    const ids = payments.map(({ paymentId }) => paymentId)
    return { ids, cursor: next && positions.write('requeue', next) }
  }

  async function requeue(paymentId: string, providerId: string | undefined) {
    const refusal = await tryRequeue(paymentId, providerId)
    if (refusal !== null) throw refusal
    return { paymentId }
  }

  async function tryRequeue(paymentId: string, providerId: string | undefined): Promise<Refusal | null> {
    if (!isId('pay', paymentId)) return refusalOf('unknown')
    return refusalOf(await requeuePayment(sql, { paymentId, providerId, now: new Date(now()) }))
  }
}
