import type { ProviderPayment } from '../answers.ts'
import { Copyable, PaymentLink, Status, Table, Time, Usdc } from './bits.tsx'

export function PaymentTable({ payments, label }: { payments: ProviderPayment[]; label: string }) {
  return (
    <Table
      label={label}
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
          <td class="right">
            <Usdc units={payment.providerUsdc} />
          </td>
          <td class="right">
            <Usdc units={payment.platformUsdc} />
          </td>
          <td>
            <Copyable text={payment.payer} />
          </td>
          <td>
            <Time at={payment.acceptedAt} />
          </td>
        </tr>
      ))}
    </Table>
  )
}
