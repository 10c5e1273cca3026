import type { ProviderPayment } from '../answers.ts'
import { type Column, Copyable, PaymentLink, Status, Table, Time, Usdc } from './bits.tsx'

const columns: Column<ProviderPayment>[] = [
  [
    'Payment',
    ({ paymentId, source }) => (
      <>
        <PaymentLink paymentId={paymentId} />
        {source === 'facilitator' && <span class="note"> x402 facilitator</span>}
      </>
    ),
  ],
  ['Status', ({ payment_status }) => <Status status={payment_status} />],
  ['You get, USDC', ({ providerUsdc }) => <Usdc units={providerUsdc} />, 'number'],
  ['Fee, USDC', ({ platformUsdc }) => <Usdc units={platformUsdc} />, 'number'],
  ['Payer', ({ payer }) => <Copyable text={payer} />],
  ['Accepted', ({ acceptedAt }) => <Time at={acceptedAt} />],
]

export function PaymentTable({ payments, label }: { payments: ProviderPayment[]; label: string }) {
  return <Table label={label} columns={columns} rows={payments} keyOf={({ paymentId }) => paymentId} />
}
