import type { ProviderPayment } from '../answers.ts'
import { countOf } from '../format.ts'
import { type Column, Copyable, PaymentLink, Status, Table, Time, Usdc } from './bits.tsx'

const columns: Column<ProviderPayment>[] = [
  [
    'Payment',
    ({ paymentId, source, tab }) => (
      <>
        <PaymentLink paymentId={paymentId} />
        {source === 'facilitator' && <span class="note"> x402 facilitator</span>}
        {tab !== null && <span class="note"> tab, {countOf(tab.requests, 'request')}</span>}
      </>
    ),
  ],
  ['Status', ({ payment_status }) => <Status status={payment_status} />],
  ['You get, USDC', ({ providerUsdc }) => <Usdc units={providerUsdc} />, 'number'],
  ['Fee, USDC', ({ platformUsdc }) => <Usdc units={platformUsdc} />, 'number'],
  ['Payer', ({ payer }) => <Copyable text={payer} />],
  ['Accepted', ({ acceptedAt }) => <Time at={acceptedAt} />],
]

/** Sales on one tab have a row for each endpoint and hour. */
export function keyOfPayment({ paymentId, tab }: ProviderPayment): string {
  return tab === null ? paymentId : `${paymentId} ${tab.sale}`
}

export function PaymentTable({ payments, label }: { payments: ProviderPayment[]; label: string }) {
  return <Table label={label} columns={columns} rows={payments} keyOf={keyOfPayment} />
}
