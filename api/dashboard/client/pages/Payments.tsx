import { useState } from 'preact/hooks'
import { paymentStatuses } from '#protocol/paymentStatus'
import type { EndpointList, ProviderPayments } from '../answers.ts'
import { query, readPages } from '../gateway.ts'
import { Download } from '../parts/ActionButton.tsx'
import { nameStatus, ShowMore } from '../parts/bits.tsx'
import { Choices, type Options } from '../parts/Form.tsx'
import { PaymentTable } from '../parts/PaymentTable.tsx'
import { Empty, View } from '../parts/View.tsx'
import { href } from '../routing.ts'
import { useSession } from '../session.ts'
import { usePolled } from '../usePolled.ts'
import { usePolledPages } from '../usePolledPages.ts'

const minute = 60_000

/** The filters of a list by the gateway's names; the last day is included. */
function readSearch(form: HTMLFormElement): Record<string, string> {
  const {
    who = '',
    to,
    ...fields
  } = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value).trim()]))
  const next = to ? new Date(Date.parse(to) + 86_400_000).toISOString().slice(0, 10) : ''
  const entries = Object.entries({ ...fields, payer: who, to: next }).filter(([, value]) => value !== '')
  return Object.fromEntries(entries)
}

export function PaymentsPage() {
  const { gateway, path } = useSession()
  const [search, setSearch] = useState<Record<string, string>>({})
  const endpoints = usePolled(
    (signal) => gateway.get<EndpointList>(`${path}/endpoints`, signal),
    'endpoints',
    minute,
  )
  const { polled, showMore } = usePolledPages(
    (asked) => {
      const paymentsOf = ({ payments }: ProviderPayments) => payments
      return readPages(gateway, `${path}/payments`, { ...search, limit: 25 }, paymentsOf, asked)
    },
    `payments ${query(search)}`,
  )
  const isNarrowed = Object.keys(search).length > 0
  const sold = endpoints.data?.endpoints ?? []
  const selects: [name: string, title: string, options: Options][] = [
    ['status', 'Status', statuses],
    ['endpointId', 'Endpoint', sold.map((one) => [one.endpointId, `${one.method} ${one.path}`])],
  ]

  const filters = (
    <form
      class="line filters"
      onSubmit={(event) => {
        event.preventDefault()
        const asked = readSearch(event.currentTarget)
        if (asked.payer?.startsWith('pay_')) location.hash = href('payments', asked.payer)
        else setSearch(asked)
      }}
    >
      {selects.map(([name, title, options]) => (
        <label key={name}>
          <span class="note">{title}</span>
          <select name={name}>
            <Choices of={[['', 'any'], ...options]} />
          </select>
        </label>
      ))}
      {inputs.map(([name, title, attributes]) => (
        <label key={name}>
          <span class="note">{title}</span>
          <input name={name} spellcheck={false} autocomplete="off" {...attributes} />
        </label>
      ))}
      <button type="submit">Search</button>
      <Download
        label="Download as CSV"
        path={`payments${query({ ...search, format: 'csv' })}`}
        name="payments.csv"
      />
    </form>
  )
  return (
    <View title="Payments" polled={polled} below={filters}>
      {({ rows: payments, hasMore }) =>
        payments.length === 0 && !hasMore ? (
          <Empty title={isNarrowed ? 'No payment is found by this' : 'No payments yet'}>
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

const statuses: Options = paymentStatuses.map((name) => [name, nameStatus(name)])

const inputs = [
  ['who', 'Payer, or a payment’s id', { placeholder: '0x… or pay_…' }],
  ['from', 'From, UTC', { type: 'date' }],
  ['to', 'To, UTC', { type: 'date' }],
  ['min_usdc', 'At least, USDC', { inputMode: 'decimal' }],
  ['max_usdc', 'At most, USDC', { inputMode: 'decimal' }],
] as const
