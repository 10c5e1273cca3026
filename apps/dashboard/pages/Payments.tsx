import { paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import { useState } from 'preact/hooks'
import { href } from '../display/routing.ts'
import type { EndpointList, ProviderPayment } from '../gateway/answers.ts'
import { query } from '../gateway/gateway.ts'
import { useSession } from '../gateway/session.ts'
import { usePolled, usePolledPages } from '../gateway/usePolled.ts'
import { Download } from '../parts/ActionButton.tsx'
import { nameStatus, payments } from '../parts/payments.tsx'
import { Filters, Table } from '../parts/Table.tsx'
import { Empty, View } from '../parts/View.tsx'

const minute = 60_000

/** What a list is narrowed by, as the gateway names it; the last day is the last one that is wanted. */
function readSearch({ who = '', to, ...fields }: Record<string, string>): Record<string, string> {
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
  const polled = usePolledPages(
    (asked) => gateway.list<ProviderPayment>(`${path}/payments`, { ...search, limit: 25 }, asked),
    `payments ${query(search)}`,
  )
  const isNarrowed = Object.keys(search).length > 0
  const sold = endpoints.data?.endpoints ?? []
  return (
    <View
      title="Payments"
      polled={polled}
      below={
        <Filters
          filters={[
            ['status', 'Status', paymentStatuses.map((name) => [name, nameStatus(name)])],
            ['endpointId', 'Endpoint', sold.map((one) => [one.endpointId, `${one.method} ${one.path}`])],
            ['who', 'Payer, or a payment’s id', { placeholder: '0x… or pay_…' }],
            ['from', 'From, UTC', { type: 'date' }],
            ['to', 'To, UTC', { type: 'date' }],
            ['min_usdc', 'At least, USDC', { inputMode: 'decimal' }],
            ['max_usdc', 'At most, USDC', { inputMode: 'decimal' }],
          ]}
          send={(values) => {
            const asked = readSearch(values)
            if (asked.payer?.startsWith('pay_')) location.hash = href('payments', asked.payer)
            else setSearch(asked)
          }}
        >
          <Download
            label="Download as CSV"
            path={`payments${query({ ...search, format: 'csv' })}`}
            name="payments.csv"
          />
        </Filters>
      }
      none={
        <Empty title={isNarrowed ? 'No payment is found by this' : 'No payments yet'}>
          What buyers pay shows here within seconds.
        </Empty>
      }
    >
      {({ rows, more }) => (
        <section class="panel">
          <Table label="Payments" rows={rows} more={more} {...payments} />
        </section>
      )}
    </View>
  )
}
