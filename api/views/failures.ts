import { z } from '@hono/zod-openapi'
import type { Database } from '#ledger/store/database'
import type { PaymentStatus } from '#protocol/paymentStatus'
import type { App } from '../http/app.ts'
import { providerViews } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
import {
  findProviderPayments,
  type PaymentFilters,
  type PaymentPosition,
  type ProviderPayment,
} from './providerPaymentQueries.ts'
import { paymentFilters, paymentPositions, providerPayment, toProviderPayment } from './providerPayments.ts'

const failuresQuery = paymentFilters.extend({
  status: z.enum(['retrying', 'failed']).optional().openapi({ default: 'retrying' }),
})

/** One attempt to settle a payment that did not succeed. */
export const failedAttempt = z.object({
  attempt: z.int(),
  code: z.string().openapi({ example: 'insufficient_balance' }),
  detail: z.string(),
  failedAt: wire.isoTime,
  nextAttemptAt: wire.isoTime.nullable(),
})

const failure = providerPayment.extend({ failures: z.array(failedAttempt) }).openapi('SettlementFailure')

export const failures = z
  .object({ failures: z.array(failure), cursor: wire.cursorOut, indexedBlocks: wire.indexedBlocks })
  .openapi('SettlementFailures')

const getFailures = route('get', '/providers/{id}/failures', {
  ...providerViews,
  summary: 'Payments whose settlement is failing or has failed, with each attempt and the next one',
  query: failuresQuery,
  responses: { 200: jsonAnswer('The failures, newest first', failures) },
})

export function addFailureRoute(app: App, { sql, heads, networks, now }: RouteOptions): void {
  app.openapi(getFailures, async (c) => {
    const providerId = c.req.valid('param').id
    const query = c.req.valid('query')
    const { network, cursor, limit = wire.defaultLimit, status = 'retrying', ...filters } = query
    const chainId = networks.chainIdNamed(network)
    const list = `failures ${status}`
    const after = paymentPositions.read(list, cursor)
    const indexedBlocks = await heads.ofProvider(providerId, chainId)
    const found = await findSettlementFailures(sql, {
      ...{ ...filters, providerId, chainId, status, after, limit },
      now: new Date(now()),
    })
    return c.json(
      {
        failures: found.failures.map(toFailure),
        cursor: found.next && paymentPositions.write(list, found.next),
        indexedBlocks,
      },
      200,
    )
  })
}

function toFailure({ failures, ...payment }: SettlementFailure) {
  return { ...toProviderPayment(payment), failures }
}

export type FailedAttempt = {
  attempt: number
  code: string
  detail: string
  failedAt: Date
  nextAttemptAt: Date | null
}

type SettlementFailure = ProviderPayment & { failures: FailedAttempt[] }

/** A provider's payments whose settlement is failing or has failed, newest first, with each attempt and its reason. */
async function findSettlementFailures(
  sql: Database,
  filters: Omit<PaymentFilters, 'status'> & { status: Extract<PaymentStatus, 'failed' | 'retrying'> },
): Promise<{ failures: SettlementFailure[]; next: PaymentPosition | null }> {
  const { payments, next } = await findProviderPayments(sql, filters)
  const rows = await sql<(FailedAttempt & { paymentId: string })[]>`
    select payment_id as "paymentId", attempt, code, detail, failed_at as "failedAt",
      next_attempt_at as "nextAttemptAt"
    from settlement_failure where payment_id = any(${payments.map(({ paymentId }) => paymentId)})
    order by payment_id, attempt`
  const byPayment = Map.groupBy(rows, ({ paymentId }) => paymentId)
  const failures = payments.map((payment) => ({
    ...payment,
    failures: (byPayment.get(payment.paymentId) ?? [])
      // A payment that was queued again by hand counts anew; its attempts before that are history.
      .filter(({ attempt }) => attempt <= payment.attempts)
      .map(({ paymentId: _, ...failure }) => failure),
  }))
  return { failures, next }
}
