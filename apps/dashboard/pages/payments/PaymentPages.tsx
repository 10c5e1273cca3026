import type { Route } from '../../display/routing.ts'
import { FailuresPage } from '../Failures.tsx'
import { PaymentPage } from '../Payment.tsx'
import { PaymentsPage } from '../Payments.tsx'

/** Shows all payments, the payments that fail to settle, or one payment. */
export function PaymentPages({ route: [page] }: { route: Route }) {
  if (page === 'failures') return <FailuresPage />
  return page ? <PaymentPage paymentId={page} /> : <PaymentsPage />
}
