import { countOf, nameMonth, nameNetwork } from '../display/format.ts'
import { href } from '../display/routing.ts'
import type { Statement, StatementRow } from '../gateway/answers.ts'
import { query } from '../gateway/gateway.ts'
import { useSession } from '../gateway/session.ts'
import { usePolled } from '../gateway/usePolled.ts'
import { Download } from '../parts/ActionButton.tsx'
import { type Column, Table } from '../parts/Table.tsx'
import { Choices, Panel, Usdc } from '../parts/ui.tsx'
import { Empty, View } from '../parts/View.tsx'

const monthsBack = 24
/** Interval in ms between reads. It is long because the gateway sums a whole month for each read. */
const everyMs = 60_000

/**
 * Returns a month's name in the gateway's format. `index` counts the months of `year` from 0. An `index` below 0 or above 11 is a month of another
 * year.
 */
function nameOf(year: number, index: number): string {
  return new Date(Date.UTC(year, index)).toISOString().slice(0, 7)
}

/** Shows the statement of a month. */
export function StatementPage({ month: asked }: { month: string | undefined }) {
  const now = new Date()
  const months = Array.from({ length: monthsBack }, (_, back) =>
    nameOf(now.getUTCFullYear(), now.getUTCMonth() - back),
  )
  const month = asked ?? months[0] ?? ''
  const [year = 0, number = 0] = month.split('-').map(Number)
  const { gateway, path } = useSession()
  const polled = usePolled(
    async (signal) => ({
      rows: (await gateway.get<Statement>(`${path}/statement${query({ month })}`, signal)).networks,
    }),
    `statement ${month}`,
    everyMs,
  )
  return (
    <View
      title="Statement"
      polled={polled}
      below={
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
            path={`receipts${query({ from: `${month}-01`, to: `${nameOf(year, number)}-01`, tabLines: 'true' })}`}
            name={`receipts-${month}.jsonl`}
          />
          <Download
            label="Bookkeeping (CSV)"
            path={`bookkeeping${query({ month, format: 'csv' })}`}
            name={`bookkeeping-${month}.csv`}
          />
          <Download
            label="Fee document"
            path={`fee-document${query({ month, format: 'html' })}`}
            name={`fees-${month}.html`}
          />
        </div>
      }
      none={
        <Empty title="Nothing in this month">
          No payments were accepted in this month: choose another month. Earlier payments that settled in this
          month are in its bookkeeping file.
        </Empty>
      }
    >
      {({ rows }) => rows.map((row) => <NetworkStatement key={row.network} row={row} />)}
    </View>
  )
}

function NetworkStatement({ row }: { row: StatementRow }) {
  const { platform, others } = row.gas
  const onTabs = row.tabPayments > 0 ? `, of which ${countOf(row.tabPayments, 'request')} on tabs` : ''
  const lines: Line[] = [
    ['Accepted from buyers', row.gross_usdc, `${countOf(row.payments, 'payment')}${onTabs}`],
    ['Platform fees', row.fee_usdc],
    ['Your part', row.net_usdc, 'settled + on their way + failed'],
    ['Settled', row.settled_usdc, `${countOf(row.settledPayments, 'payment')}, as the chain shows now`],
  ]
  if (row.paid_out_usdc !== row.settled_usdc) {
    lines.push(['Of that, in your wallets', row.paid_out_usdc, 'splitters hold the rest'])
  }
  lines.push(['On their way', row.outstanding_usdc, countOf(row.outstandingPayments, 'payment')])
  lines.push(['Failed', row.failed_usdc, countOf(row.failedPayments, 'payment')])
  if (row.refunds > 0) {
    lines.push(['Refunded', row.refunded_usdc, `settled part of ${countOf(row.refunds, 'refund')}`])
    lines.push(['Refunds on their way', row.refunds_outstanding_usdc])
  }
  const share = (batches: number) => `your share of ${countOf(batches, 'batch', 'batches')}`
  lines.push(['Gas, paid by the platform', platform.gas_usdc, share(platform.batches)])
  if (others.batches > 0) lines.push(['Gas, paid by others', others.gas_usdc, share(others.batches)])
  return (
    <Panel title={nameNetwork(row.network)}>
      <p>{describeCounts(row)}</p>
      <Table
        label={`Statement of ${row.network}`}
        rows={lines}
        keyOf={([title]) => title}
        columns={columns}
      />
    </Panel>
  )
}

/**
 * Returns the sentence that `tollkeeper audit --month` prints about a month. The counts here also contain payments through the
 * facilitator, which `audit` leaves out because they have no receipts.
 */
function describeCounts({ settledPayments, voidedPayments, failedPayments, ...row }: StatementRow): string {
  const counts = [`${settledPayments} settled`]
  if (voidedPayments > 0) counts.push(`${voidedPayments} voided`)
  if (failedPayments > 0) counts.push(`${failedPayments} failed`)
  const open = row.outstandingPayments
  const onTheirWay =
    open === 0 ? '' : ` ${countOf(open, 'payment')} (${row.outstanding_usdc} USDC) still on their way.`
  return `${counts.join(', ')}.${onTheirWay}`
}

type Line = readonly [title: string, decimal: string, note?: string]

const columns: Column<Line>[] = [
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
]
