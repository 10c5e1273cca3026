import { parseUsdc } from '#protocol/amount'
import type { Statement, StatementRow } from '../answers.ts'
import { countOf, nameMonth, nameNetwork } from '../format.ts'
import { query } from '../gateway.ts'
import { Download } from '../parts/ActionButton.tsx'
import { Panel, Table, Usdc } from '../parts/bits.tsx'
import { Choices } from '../parts/Form.tsx'
import { Empty, View } from '../parts/View.tsx'
import { href } from '../routing.ts'
import { useSession } from '../session.ts'
import { usePolled } from '../usePolled.ts'

const monthsBack = 24
/** It sums a whole month, so it is read seldom. */
const everyMs = 60_000

/** The months up to this one, as the gateway names them. */
function recentMonths(now: Date): string[] {
  return Array.from({ length: monthsBack }, (_, back) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back)).toISOString().slice(0, 7),
  )
}

/** A month's books. */
export function StatementPage({
  month = new Date().toISOString().slice(0, 7),
}: {
  month?: string | undefined
}) {
  const { gateway, path } = useSession()
  const polled = usePolled(
    (signal) => gateway.get<Statement>(`${path}/statement${query({ month })}`, signal),
    `statement ${month}`,
    everyMs,
  )
  const months = recentMonths(new Date())
  const [year, number] = month.split('-').map(Number)
  const next = new Date(Date.UTC(year ?? 0, number ?? 0)).toISOString().slice(0, 10)
  const filters = (
    <div class="line filters">
      <label>
        <span class="note">Month, UTC</span>
        <select
          value={month}
          onChange={(event) => {
            location.hash = href('statement', event.currentTarget.value)
          }}
        >
          <Choices of={[...new Set([...months, month])].map((one) => [one, nameMonth(one)])} />
        </select>
      </label>
      <Download
        label="Download as CSV"
        path={`statement${query({ month, format: 'csv' })}`}
        name={`statement-${month}.csv`}
      />
      <Download
        label="Download its receipts"
        path={`receipts${query({ from: `${month}-01`, to: next })}`}
        name={`receipts-${month}.jsonl`}
      />
    </div>
  )
  return (
    <View title="Statement" polled={polled} below={filters}>
      {({ networks }) =>
        networks.length === 0 ? (
          <Empty title="Nothing in this month">
            <p>A statement has the payments that were accepted in it, by network.</p>
          </Empty>
        ) : (
          networks.map((row) => <NetworkStatement key={row.network} row={row} />)
        )
      }
    </View>
  )
}

function NetworkStatement({ row }: { row: StatementRow }) {
  const { platform, others } = row.gas
  const accepted =
    row.tabPayments === 0
      ? countOf(row.payments, 'payment')
      : `${countOf(row.payments, 'payment')}, of which ${countOf(row.tabPayments, 'request')} on tabs`
  const lines: (readonly [title: string, decimal: string, note?: string])[] = [
    ['Accepted from buyers', row.gross_usdc, accepted],
    ['Platform fees', row.fee_usdc],
    ['Your part', row.net_usdc, 'settled + outstanding + failed'],
    ['Settled', row.settled_usdc, `${countOf(row.settledPayments, 'payment')}, as the chain shows now`],
    ...(row.paid_out_usdc === row.settled_usdc
      ? []
      : [['Of it, in your wallets', row.paid_out_usdc, 'the rest waits in splitters'] as const]),
    ['Outstanding', row.outstanding_usdc, countOf(row.outstandingPayments, 'payment')],
    ['Failed', row.failed_usdc, countOf(row.failedPayments, 'payment')],
  ]
  if (parseUsdc(row.facilitator_fee_usdc) > 0n)
    lines.push([
      'Facilitator’s fee',
      row.facilitator_fee_usdc,
      'of what it settled; written down, not charged',
    ])
  if (row.refunds > 0) {
    lines.push(['Refunded', row.refunded_usdc, `what has arrived, of ${countOf(row.refunds, 'refund')}`])
    lines.push(['Refunds on their way', row.refunds_outstanding_usdc])
  }
  const share = (batches: number) => `your share of ${countOf(batches, 'batch', 'batches')}`
  lines.push(['Gas, paid by the platform', platform.gas_usdc, share(platform.batches)])
  if (others.batches > 0) lines.push(['Gas, paid by others', others.gas_usdc, share(others.batches)])
  return (
    <Panel title={nameNetwork(row.network)}>
      <Table
        label={`Statement of ${row.network}`}
        rows={lines}
        keyOf={([title]) => title}
        columns={[
          [
            'Item',
            ([title, , note]) => (
              <>
                {title}
                {note !== undefined && <p class="note">{note}</p>}
              </>
            ),
            'wrap',
          ],
          ['USDC', ([, decimal]) => <Usdc decimal={decimal} />, 'number'],
        ]}
      />
    </Panel>
  )
}
