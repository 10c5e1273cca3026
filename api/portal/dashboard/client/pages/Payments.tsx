import { useState } from 'preact/hooks'
import { paymentStatuses } from '#protocol/paymentStatus'
import type { ProviderPayments } from '../answers.ts'
import { query, readPages } from '../gateway.ts'
import { ShowMore } from '../parts/bits.tsx'
import { PaymentTable } from '../parts/PaymentTable.tsx'
import { Empty, View } from '../parts/View.tsx'
import { href } from '../routing.ts'
import { useSession } from '../session.ts'
import { usePolledPages } from '../usePolledPages.ts'

const pageSize = 25

export function PaymentsPage() {
  const { gateway, provider } = useSession()
  const [status, setStatus] = useState('')
  const { polled, showMore } = usePolledPages((signal, pages) => {
    const path = `providers/${provider.providerId}/payments`
    const asked = { status: status || undefined, limit: pageSize }
    return readPages(
      (cursor) => gateway.get<ProviderPayments>(`${path}${query({ ...asked, cursor })}`, signal),
      ({ payments }) => payments,
      pages,
    )
  }, `payments ${status}`)

  const filters = (
    <form
      class="filters"
      onSubmit={(event) => {
        event.preventDefault()
        const input = event.currentTarget.elements.namedItem('payment') as HTMLInputElement
        const id = input.value.trim()
        if (id !== '') location.hash = href('payments', id)
      }}
    >
      <label>
        <span class="caption">Status</span>
        <select value={status} onChange={(event) => setStatus(event.currentTarget.value)}>
          <option value="">any</option>
          {paymentStatuses.map((name) => (
            <option key={name} value={name}>
              {name === 'verified' ? 'queued' : name.replace('_', ' ')}
            </option>
          ))}
        </select>
      </label>
      <label>
        <span class="caption">Find by id</span>
        <input id="payment" spellcheck={false} autocomplete="off" placeholder="pay_…" />
      </label>
      <button type="submit" class="quiet">
        Open
      </button>
    </form>
  )
  return (
    <View title="Payments" polled={polled} below={filters}>
      {({ rows: payments, hasMore }) =>
        payments.length === 0 ? (
          <Empty title={status === '' ? 'No payments yet' : 'No payment has this status'}>
            <p>What buyers pay shows here within seconds.</p>
          </Empty>
        ) : (
          <section class="panel">
            <PaymentTable payments={payments} label="Payments" />
            <ShowMore hasMore={hasMore} showMore={showMore} />
          </section>
        )
      }
    </View>
  )
}
