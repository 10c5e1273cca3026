import type { ProviderPayment } from '../answers.ts'
import { Copyable, PaymentLink, Status, Table, Time, Usdc } from './bits.tsx'

export function PaymentTable({ payments, label }: { payments: ProviderPayment[]; label: string }) {
  return (
    <Table
      label={label}
      isStacked
      head={[['Payment'], ['Status'], ['You get, USDC', true], ['Fee, USDC', true], ['Payer'], ['Accepted']]}
    >
      {payments.map((payment) => (
        <tr key={payment.paymentId}>
          <td>
            <PaymentLink paymentId={payment.paymentId} />
            {payment.source === 'facilitator' && <span class="note"> x402 facilitator</span>}
          </td>
          <td>
            <Status status={payment.payment_status} />
          </td>
          <td class="right" data-title="You get, USDC">
            <Usdc units={payment.providerUsdc} />
          </td>
          <td class="right" data-title="Fee, USDC">
            <Usdc units={payment.platformUsdc} />
          </td>
          <td data-title="Payer">
            <Copyable text={payment.payer} />
          </td>
          <td data-title="Accepted">
            <Time at={payment.acceptedAt} />
          </td>
        </tr>
      ))}
    </Table>
  )
}
