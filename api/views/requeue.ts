import { z } from '@hono/zod-openapi'
import { type RequeueOutcome, requeuePayment } from '@tollkeeper/ledger/outcomes/requeue'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isId } from '@tollkeeper/ledger/store/identifiers'
import type { App } from '../http/app.ts'
import { operatorsOnly } from '../http/operator.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'

const postRequeue = route('post', '/payments/{paymentId}/requeue', {
  summary: 'Try to settle a failed payment again',
  description: 'With all its retries anew, while its authorizations are valid.',
  tags: ['Payments'],
  security: [{ apiKey: [] }],
  refuses: [403, 409],
  responses: { 202: jsonAnswer('It is in the queue', z.object({ paymentId: wire.paymentId })) },
})

const postOperatorRequeue = route('post', '/operator/payments/{paymentId}/requeue', {
  ...operatorsOnly,
  summary: "Try to settle any provider's failed payment again",
  refuses: [409],
  responses: { 202: jsonAnswer('It is in the queue', z.object({ paymentId: wire.paymentId })) },
})

const reasons: Partial<Record<RequeueOutcome, string>> = {
  not_failed: 'It has not failed: it is queued, being settled, or settled',
  voided: 'It was voided: no service, no charge',
  not_settleable: 'Nothing of it can be settled any more: its authorization was used or cancelled',
  expired: 'Its authorization has run out',
}

export type RequeueRouteOptions = {
  sql: Database
  now: () => number
}

export function addRequeueRoute(app: App, { sql, now }: RequeueRouteOptions): void {
  app.openapi(postRequeue, async (c) => {
    const providerId = c.get('caller')
    if (providerId === undefined)
      throw new Refusal('unauthorized', "Only the payment's provider can queue it again")
    return c.json(await requeue(c.req.valid('param').paymentId, providerId), 202)
  })

  app.openapi(postOperatorRequeue, async (c) =>
    c.json(await requeue(c.req.valid('param').paymentId, undefined), 202),
  )

  async function requeue(paymentId: string, providerId: string | undefined) {
    if (!isId('pay', paymentId)) throw new Refusal('unknown_payment')
    const outcome = await requeuePayment(sql, { paymentId, providerId, now: new Date(now()) })
    if (outcome === 'unknown') throw new Refusal('unknown_payment')
    if (outcome === 'forbidden') throw new Refusal('forbidden')
    if (outcome !== 'requeued') throw new Refusal('payment_not_requeueable', reasons[outcome])
    return { paymentId }
  }
}
