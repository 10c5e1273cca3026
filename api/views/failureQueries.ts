import type { Database } from '#ledger/store/database'
import type { PaymentStatus } from '#protocol/paymentStatus'
import {
  findProviderPayments,
  type PaymentFilters,
  type PaymentPosition,
  type ProviderPayment,
} from './providerPaymentQueries.ts'

export type FailedAttempt = {
  attempt: number
  code: string
  detail: string
  failedAt: Date
  nextAttemptAt: Date | null
}

export type SettlementFailure = ProviderPayment & { failures: FailedAttempt[] }

/** A provider's payments whose settlement is failing or has failed, newest first, with each attempt and its reason. */
export async function findSettlementFailures(
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
      // A payment that was queued again by hand counts anew; older attempts beyond that are history.
      .filter(({ attempt }) => attempt <= payment.attempts)
      .map(({ paymentId: _, ...failure }) => failure),
  }))
  return { failures, next }
}
