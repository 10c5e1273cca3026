import { useState } from 'preact/hooks'
import {
  countOf,
  describeCode,
  sumUsdc,
  writeCount,
  writeExactUsdc,
  writeShare,
  writeUsdc,
} from '../display/format.ts'
import { href } from '../display/routing.ts'
import { type RangeName, type RevenuePoint, ranges, revenueSeries, startsOf } from '../display/series.ts'
import type { Endpoint, EndpointList, Revenue, RevenueRow, UsageRow } from '../gateway/answers.ts'
import { query } from '../gateway/gateway.ts'
import { useSession } from '../gateway/session.ts'
import { usePolled } from '../gateway/usePolled.ts'
import { Choice, Code, Figures, Panel } from '../parts/bits.tsx'
import type { PlotSeries } from '../parts/drawPlot.ts'
import { Plot } from '../parts/Plot.tsx'
import { Table } from '../parts/Table.tsx'
import { Empty, View } from '../parts/View.tsx'

const mostRows = 1_000

export function OverviewPage() {
  const { gateway, path } = useSession()
  const [range, setRange] = useState<RangeName>('days')
  /** Undefined: the gateway's first choice, which is real money if there is any. */
  const [testMoney, setTestMoney] = useState<boolean>()
  const polled = usePolled(async (signal) => {
    const starts = startsOf(range, new Date())
    const asked = { interval: ranges[range].interval, from: starts[0]?.toISOString(), limit: mostRows }
    const [revenue, { rows: usage }, { endpoints }] = await Promise.all([
      gateway.get<Revenue>(`${path}/revenue${query({ ...asked, testnet: testMoney?.toString() })}`, signal),
      gateway.list<UsageRow>(`${path}/usage`, asked, { signal }),
      gateway.get<EndpointList>(`${path}/endpoints`, signal),
    ])
    const { testnet } = revenue
    const shown = endpoints.filter((endpoint) => endpoint.testnet === testnet)
    const ids = new Set(shown.map(({ endpointId }) => endpointId))
    return {
      starts,
      revenue: revenue.revenue,
      usage: usage.filter(({ endpointId }) => ids.has(endpointId)),
      endpoints: shown,
      testnet,
      hasBoth: shown.length < endpoints.length,
    }
  }, `${range} ${testMoney}`)

  const options = (Object.keys(ranges) as RangeName[]).map((name) => [name, ranges[name].title] as const)
  const choice = <Choice label="Period" options={options} value={range} choose={setRange} />
  return (
    <View title="Overview" actions={choice} polled={polled}>
      {({ starts, revenue, usage, endpoints, testnet, hasBoth }) => {
        const accepted = sum(revenue, ({ payments }) => payments)
        return (
          <>
            {(testnet || hasBoth) && (
              <p class="note">
                {testnet ? 'Test money, which is worth nothing.' : 'Real money only.'}{' '}
                {hasBoth && (
                  <button type="button" class="quiet" onClick={() => setTestMoney(!testnet)}>
                    {testnet ? 'Show real money' : 'Show test money'}
                  </button>
                )}
              </p>
            )}
            <Totals revenue={revenue} usage={usage} />
            {accepted === 0 ? (
              <Empty title={`No payments in the last ${ranges[range].title}`}>
                {endpoints.length === 0 ? (
                  <>
                    Register a wallet and an endpoint first: <a href={href('start')}>the first steps</a> lead
                    through it.
                  </>
                ) : (
                  'Once a buyer pays for one of your endpoints, it shows here within seconds.'
                )}
              </Empty>
            ) : (
              <Panel title="Revenue over time">
                <RevenuePlot points={revenueSeries(revenue, starts)} range={range} />
              </Panel>
            )}
            <EndpointTable usage={usage} endpoints={endpoints} />
          </>
        )
      }}
    </View>
  )
}

function Totals({ revenue, usage }: { revenue: RevenueRow[]; usage: UsageRow[] }) {
  const accepted = sum(revenue, ({ payments }) => payments)
  const failed = sum(revenue, ({ failedPayments }) => failedPayments)
  const calls = sum(usage, ({ calls }) => calls)
  const paid = sum(usage, ({ paid }) => paid)
  const challenged = sum(usage, ({ challenged }) => challenged)
  const settled = sumUsdc(revenue, ({ settled_usdc }) => settled_usdc)
  const outstanding = sumUsdc(revenue, ({ outstanding_usdc }) => outstanding_usdc)
  const settledPayments = sum(revenue, (row) => row.settledPayments)
  const acceptedNote = (
    <>
      {countOf(accepted, 'payment')}
      {failed > 0 && ', '}
      {failed > 0 && <a href={href('failures')}>{writeCount(failed)} failed</a>}
    </>
  )
  const presented = calls - challenged
  const presentedNote = `${writeCount(paid)} of ${writeCount(presented)} paid calls accepted`
  return (
    <Figures
      of={[
        ['Revenue, net', writeUsdc(settled + outstanding), acceptedNote, 'USDC'],
        ['Settled', writeUsdc(settled), `${countOf(settledPayments, 'payment')}, on chain`, 'USDC'],
        ['Outstanding', writeUsdc(outstanding), <a href={href('queue')}>In the queue</a>, 'USDC'],
        ['Calls', writeCount(calls), `${writeCount(challenged)} came without a payment`],
        ['Success rate', writeShare(paid, presented), presentedNote],
      ]}
    />
  )
}

function sum<Row>(rows: readonly Row[], of: (row: Row) => number): number {
  return rows.reduce((total, row) => total + of(row), 0)
}

function RevenuePlot({ points, range }: { points: RevenuePoint[]; range: RangeName }) {
  // The last place where money becomes a float: a pixel's height.
  const toFloat = (amount: bigint) => Number(amount) / 1e6
  const series: PlotSeries<RevenuePoint>[] = [
    { title: 'Outstanding', color: '--wait', of: (p) => toFloat(p.settled + p.outstanding) },
    { title: 'Settled', color: '--good', of: (p) => toFloat(p.settled) },
  ]
  if (points.some(({ failed }) => failed > 0n))
    series.unshift({
      title: 'Failed',
      color: '--bad',
      of: (p) => toFloat(p.settled + p.outstanding + p.failed),
    })
  const name = (point: RevenuePoint) => nameInterval(point.startsAt, range)
  return (
    <Plot
      title="Revenue over time"
      label={`Net revenue in USDC of the last ${ranges[range].title}, settled and outstanding, as bars.`}
      points={points}
      timeOf={({ startsAt }) => startsAt.getTime()}
      series={series}
      shape="bars"
      writeValue={(value) => writeUsdc(BigInt(Math.round(value * 1e6)))}
      readout={(point) => (
        <>
          {name(point)}: <b>{writeUsdc(point.settled)}</b> settled, <b>{writeUsdc(point.outstanding)}</b>{' '}
          outstanding
        </>
      )}
      rows={points.filter(({ payments }) => payments > 0)}
      columns={[
        ['From (UTC)', name],
        ['Payments', ({ payments }) => writeCount(payments), 'number'],
        ['Settled', ({ settled }) => writeExactUsdc(settled), 'number'],
        ['Outstanding', ({ outstanding }) => writeExactUsdc(outstanding), 'number'],
        ['Failed', ({ failed }) => writeExactUsdc(failed), 'number'],
      ]}
    />
  )
}

const date = { day: 'numeric', month: 'short' } as const
const shownParts: Record<RangeName, Intl.DateTimeFormatOptions> = {
  hours: { ...date, hour: '2-digit', minute: '2-digit' },
  days: { ...date, year: 'numeric' },
  months: { month: 'long', year: 'numeric' },
}

function nameInterval(startsAt: Date, range: RangeName): string {
  return startsAt.toLocaleString('en-GB', { ...shownParts[range], timeZone: 'UTC' })
}

function EndpointTable({ usage, endpoints }: { usage: UsageRow[]; endpoints: Endpoint[] }) {
  if (usage.length === 0) return null
  const names = new Map(endpoints.map(({ endpointId, method, path }) => [endpointId, `${method} ${path}`]))
  const rows = [...Map.groupBy(usage, ({ endpointId }) => endpointId)].map(([endpointId, of]) => {
    const refusals = new Map<string, number>()
    for (const [code, count] of of.flatMap(({ refused }) => Object.entries(refused)))
      refusals.set(code, (refusals.get(code) ?? 0) + count)
    const calls = sum(of, ({ calls }) => calls)
    return {
      endpointId,
      calls,
      paid: sum(of, ({ paid }) => paid),
      presented: calls - sum(of, ({ challenged }) => challenged),
      refusals: [...refusals].sort(([, a], [, b]) => b - a).slice(0, 2),
    }
  })
  return (
    <Panel title="Calls by endpoint">
      <Table
        label="Calls by endpoint"
        rows={rows.sort((a, b) => b.calls - a.calls)}
        keyOf={({ endpointId }) => endpointId}
        columns={[
          ['Endpoint', ({ endpointId }) => <Code>{names.get(endpointId) ?? endpointId}</Code>],
          ['Calls', ({ calls }) => writeCount(calls), 'number'],
          ['Paid', ({ paid }) => writeCount(paid), 'number'],
          ['Refused', ({ paid, presented }) => writeCount(presented - paid), 'number'],
          ['Success', ({ paid, presented }) => writeShare(paid, presented), 'number'],
          [
            'Refused because',
            ({ refusals }) =>
              refusals.map(([code, count]) => `${describeCode(code)} (${writeCount(count)})`).join(', ') ||
              '–',
            'wrap',
          ],
        ]}
      />
    </Panel>
  )
}
