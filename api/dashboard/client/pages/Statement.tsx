import { parseUsdc } from '#protocol/amount'
import type { Statement, StatementRow } from '../answers.ts'
import { countOf, nameMonth, nameNetwork, writeExactUsdc } from '../format.ts'
import { query } from '../gateway.ts'
import { Table } from '../parts/bits.tsx'
import { Empty, View } from '../parts/View.tsx'
import { href } from '../routing.ts'
import { useSession } from '../session.ts'
import { useAction } from '../useAction.ts'
import { usePolled } from '../usePolled.ts'

const monthsBack = 24
/** It sums over a whole month. */
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
  const { gateway, provider } = useSession()
  const path = `providers/${provider.providerId}/statement`
  const polled = usePolled(
    (signal) => gateway.get<Statement>(`${path}${query({ month })}`, signal),
    `statement ${month}`,
    everyMs,
  )
  const csv = useAction(async () => {
    save(await gateway.download(`${path}${query({ month, format: 'csv' })}`), `statement-${month}.csv`)
  })
  const receipts = useAction(async () => {
    const next = new Date(`${month}-01T00:00:00Z`)
    next.setUTCMonth(next.getUTCMonth() + 1)
    const asked = query({ from: `${month}-01`, to: next.toISOString().slice(0, 10) })
    save(
      await gateway.download(`providers/${provider.providerId}/receipts${asked}`),
      `receipts-${month}.jsonl`,
    )
  })
  const problem = csv.problem ?? receipts.problem
  const months = recentMonths(new Date())
  const filters = (
    <div class="filters">
      <label>
        <span class="caption">Month, UTC</span>
        <select
          value={month}
          onChange={(event) => {
            location.hash = href('statement', event.currentTarget.value)
          }}
        >
          {[...months, ...(months.includes(month) ? [] : [month])].map((one) => (
            <option key={one} value={one}>
              {nameMonth(one)}
            </option>
          ))}
        </select>
      </label>
      <button type="button" class="quiet" disabled={csv.isBusy} onClick={csv.run}>
        Download as CSV
      </button>
      <button type="button" class="quiet" disabled={receipts.isBusy} onClick={receipts.run}>
        Download its receipts
      </button>
      {problem !== undefined && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
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
  const lines: (readonly [title: string, decimal: string, note?: string])[] = [
    ['Accepted from buyers', row.gross_usdc, countOf(row.payments, 'payment')],
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
    <section class="panel">
      <h2>{nameNetwork(row.network)}</h2>
      <Table label={`Statement of ${row.network}`} head={[['Item'], ['USDC', true]]}>
        {lines.map(([title, decimal, note]) => (
          <tr key={title}>
            <td class="wrap">
              {title}
              {note !== undefined && (
                <>
                  <br />
                  <span class="note">{note}</span>
                </>
              )}
            </td>
            <td class="right number">{writeExactUsdc(parseUsdc(decimal))}</td>
          </tr>
        ))}
      </Table>
    </section>
  )
}

/** Gives the browser a file to keep. */
export function save(file: Blob, name: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(file)
  link.download = name
  link.click()
  URL.revokeObjectURL(link.href)
}
