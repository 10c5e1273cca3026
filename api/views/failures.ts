import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { providerViews } from '../http/authenticate.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { findProviderPayments, type ProviderPayment, providerPayment } from './providerPaymentQueries.ts'
import { paymentFilters, paymentPositions } from './providerPayments.ts'

const failuresQuery = paymentFilters.extend({
  status: z.enum(['retrying', 'failed']).default('retrying'),
})

/** A failed attempt to settle a payment. */
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

export type FailureRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  now: () => number
}

export const addFailureRoute = view('/providers/{id}/failures', {
  ...providerViews,
  summary:
    'Payments whose settlement is failing or has failed, with each attempt and the time of the next one',
  query: failuresQuery,
  answer: ['The failures, newest first', failures],
  open:
    ({ sql, heads, networks, now }: FailureRouteOptions) =>
    async ({ id: providerId, network, cursor, status, ...filters }) => {
      const chainId = networks.chainIdNamed(network)
      const list = `failures ${status}`
      const after = paymentPositions.read(list, cursor)
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const page = { ...filters, providerId, chainId, status, after, now: new Date(now()) }
      const { payments, next } = await findProviderPayments(sql, page)
      return {
        failures: await addAttempts(sql, payments),
        cursor: next && paymentPositions.write(list, next),
        indexedBlocks,
      }
    },
})

/** Adds to each payment its failed attempts to settle, with their reasons. */
async function addAttempts(sql: Database, payments: ProviderPayment[]) {
  const rows = await sql<(z.input<typeof failedAttempt> & { paymentId: string })[]>`
    select payment_id as "paymentId", attempt, code, detail, failed_at as "failedAt",
      next_attempt_at as "nextAttemptAt"
    from settlement_failure where payment_id = any(${payments.map(({ paymentId }) => paymentId)})
    order by payment_id, attempt`
  const byPayment = Map.groupBy(rows, ({ paymentId }) => paymentId)
  return payments.map((payment) => ({
    ...payment,
    // Requeuing a payment by hand restarts its attempts at 1. Attempts with higher numbers were made before that, so they are left out.
    failures: (byPayment.get(payment.paymentId) ?? []).filter(({ attempt }) => attempt <= payment.attempts),
  }))
}
