import type { Payment, Refunds, Timeline } from '../gateway/answers.ts'

type Shown = {
  payment: Pick<Payment, 'payment_status' | 'splitter' | 'paidOut'>
  timeline: Pick<Timeline, 'confirmedAt'>
  refunds: { refunds: Pick<Refunds['refunds'][number], 'refund_status'>[] } | null
}

/**
 * Whether a payment's page is final: only a deep reorg or a new action of the provider can still change it.
 */
export function isFinal({ payment, timeline, refunds }: Shown): boolean {
  const isRefunding = refunds?.refunds.some(
    ({ refund_status: status }) => status !== 'settled' && status !== 'failed',
  )
  if (isRefunding) return false
  const { payment_status: status, splitter, paidOut } = payment
  if (status === 'voided' || status === 'failed') return true
  const isPaidOut = splitter === null || paidOut !== null
  return status === 'settled' && timeline.confirmedAt !== null && isPaidOut
}
