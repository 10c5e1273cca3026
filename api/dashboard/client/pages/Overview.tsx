import { useMemo, useState } from 'preact/hooks'
import type { EndpointList, Revenue, Usage, UsageRow } from '../answers.ts'
import { describeCode, sumUsdc, writeCount, writeExactUsdc, writeShare, writeUsdc } from '../format.ts'
import { query, readPages } from '../gateway.ts'
import { Table } from '../parts/bits.tsx'
import { Choice } from '../parts/Choice.tsx'
import { Figure } from '../parts/Figure.tsx'
import { Plot } from '../parts/Plot.tsx'
import { Empty, View } from '../parts/View.tsx'
import { href } from '../routing.ts'
import { type RangeName, type RevenuePoint, ranges, revenueSeries, startsOf } from '../series.ts'
import { useSession } from '../session.ts'
import { usePolled } from '../usePolled.ts'

const mostRows = 1_000

export function OverviewPage() {
  const { gateway, provider } = useSession()
  const [range, setRange] = useState<RangeName>('days')
  /** Undefined: what the gateway shows first, real money where there is any. */
  const [testMoney, setTestMoney] = useState<boolean>()
  const polled = usePolled(async (signal) => {
    const path = `providers/${provider.providerId}`
    const starts = startsOf(range, new Date())
    const asked = { interval: ranges[range].interval, from: starts[0]?.toISOString(), limit: mostRows }
    const [revenue, { rows: usage }, { endpoints }] = await Promise.all([
      gateway.get<Revenue>(`${path}/revenue${query({ ...asked, testnet: testMoney?.toString() })}`, signal),
      readPages(
        (cursor) => gateway.get<Usage>(`${path}/usage${query({ ...asked, cursor })}`, signal),
        (page) => page.usage,
      ),
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

  const choice = (
    <Choice
      label="Period"
      name="range"
      options={(Object.keys(ranges) as RangeName[]).map((name) => [name, ranges[name].title] as const)}
      value={range}
      choose={setRange}
    />
  )
  return (
    <View title="Overview" actions={choice} polled={polled}>
      {({ starts, revenue, usage, endpoints, testnet, hasBoth }) => {
        const accepted = revenue.reduce((sum, { payments }) => sum + payments, 0)
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
            <Figures revenue={revenue} usage={usage} />
            {accepted === 0 ? (
              <Empty title={`No payments in the last ${ranges[range].title}`}>
                {endpoints.length === 0 ? (
                  <p>
                    Register a wallet and an endpoint first: <a href={href('start')}>the first steps</a> lead
                    through it.
                  </p>
                ) : (
                  <p>Once a buyer pays for one of your endpoints, it shows here within seconds.</p>
                )}
              </Empty>
            ) : (
              <section class="panel">
                <h2>Revenue over time</h2>
                <RevenuePlot points={revenueSeries(revenue, starts)} range={range} />
              </section>
            )}
            <EndpointTable usage={usage} endpoints={endpoints} />
          </>
        )
      }}
    </View>
  )
}

function Figures({ revenue, usage }: { revenue: Revenue['revenue']; usage: UsageRow[] }) {
  const accepted = revenue.reduce((sum, { payments }) => sum + payments, 0)
  const settledPayments = revenue.reduce((sum, row) => sum + row.settledPayments, 0)
  const failedPayments = revenue.reduce((sum, row) => sum + row.failedPayments, 0)
  const calls = usage.reduce((sum, row) => sum + row.calls, 0)
  const paid = usage.reduce((sum, row) => sum + row.paid, 0)
  const challenged = usage.reduce((sum, row) => sum + row.challenged, 0)
  return (
    <dl class="figures">
      <Figure
        title="Revenue, net"
        value={writeUsdc(
          sumUsdc(revenue, (row) => row.settled_usdc) + sumUsdc(revenue, (row) => row.outstanding_usdc),
        )}
        note={
          failedPayments === 0 ? (
            `${writeCount(accepted)} payments`
          ) : (
            <>
              {writeCount(accepted)} payments,{' '}
              <a href={href('failures')}>{writeCount(failedPayments)} failed</a>
            </>
          )
        }
        unit="USDC"
      />
      <Figure
        title="Settled"
        value={writeUsdc(sumUsdc(revenue, ({ settled_usdc }) => settled_usdc))}
        note={`${writeCount(settledPayments)} payments, on chain`}
        unit="USDC"
      />
      <Figure
        title="Outstanding"
        value={writeUsdc(sumUsdc(revenue, ({ outstanding_usdc }) => outstanding_usdc))}
        note={<a href={href('queue')}>In the queue</a>}
        unit="USDC"
      />
      <Figure
        title="Calls"
        value={writeCount(calls)}
        note={`${writeCount(challenged)} came without a payment`}
      />
      <Figure
        title="Success rate"
        value={writeShare(paid, calls - challenged)}
        note={`${writeCount(paid)} of ${writeCount(calls - challenged)} paid calls accepted`}
      />
    </dl>
  )
}

function RevenuePlot({ points, range }: { points: RevenuePoint[]; range: RangeName }) {
  // The last place where money becomes a float: a pixel's height.
  const series = useMemo(() => {
    const hasFailed = points.some(({ failed }) => failed > 0n)
    const layers = [
      { title: 'Outstanding', color: '--wait', of: (p: RevenuePoint) => p.settled + p.outstanding },
      { title: 'Settled', color: '--good', of: (p: RevenuePoint) => p.settled },
    ]
    if (hasFailed) {
      layers.unshift({ title: 'Failed', color: '--bad', of: (p) => p.settled + p.outstanding + p.failed })
    }
    return layers.map(({ of, ...layer }) => ({
      ...layer,
      values: points.map((point) => Number(of(point)) / 1e6),
    }))
  }, [points])
  const times = useMemo(() => points.map(({ startsAt }) => startsAt.getTime() / 1000), [points])
  const name = (point: RevenuePoint) => nameInterval(point.startsAt, range)
  return (
    <Plot
      label={`Net revenue in USDC of the last ${ranges[range].title}, settled and outstanding, as bars.`}
      times={times}
      series={series}
      shape="bars"
      writeValue={(value) => writeUsdc(BigInt(Math.round(value * 1e6)))}
      readout={(index) => {
        const point = points[index]
        if (!point) return null
        return (
          <>
            {name(point)}: <b>{writeUsdc(point.settled)}</b> settled, <b>{writeUsdc(point.outstanding)}</b>{' '}
            outstanding
          </>
        )
      }}
      table={
        <Table
          label="Revenue over time"
          head={[
            ['From (UTC)'],
            ['Payments', true],
            ['Settled', true],
            ['Outstanding', true],
            ['Failed', true],
          ]}
        >
          {points
            .filter(({ payments }) => payments > 0)
            .map((point) => (
              <tr key={point.startsAt.getTime()}>
                <td>{name(point)}</td>
                <td class="right number">{writeCount(point.payments)}</td>
                <td class="right number">{writeExactUsdc(point.settled)}</td>
                <td class="right number">{writeExactUsdc(point.outstanding)}</td>
                <td class="right number">{writeExactUsdc(point.failed)}</td>
              </tr>
            ))}
        </Table>
      }
    />
  )
}

const formats: Record<RangeName, Intl.DateTimeFormat> = {
  hours: new Intl.DateTimeFormat('en-GB', {
    day: 'numeric',
    month: 'short',
    hour: '2-digit',
    minute: '2-digit',
    timeZone: 'UTC',
  }),
  days: new Intl.DateTimeFormat('en-GB', {
    day: 'numeric',
    month: 'short',
    year: 'numeric',
    timeZone: 'UTC',
  }),
  months: new Intl.DateTimeFormat('en-GB', { month: 'long', year: 'numeric', timeZone: 'UTC' }),
}

function nameInterval(startsAt: Date, range: RangeName): string {
  return formats[range].format(startsAt)
}

function EndpointTable({ usage, endpoints }: { usage: UsageRow[]; endpoints: EndpointList['endpoints'] }) {
  if (usage.length === 0) return null
  const byEndpoint = Map.groupBy(usage, ({ endpointId }) => endpointId)
  const named = new Map(endpoints.map((endpoint) => [endpoint.endpointId, endpoint]))
  const rows = [...byEndpoint].map(([endpointId, of]) => {
    const refusals = new Map<string, number>()
    for (const { refused } of of) {
      for (const [code, count] of Object.entries(refused))
        refusals.set(code, (refusals.get(code) ?? 0) + count)
    }
    const sum = (read: (row: UsageRow) => number) => of.reduce((total, row) => total + read(row), 0)
    return {
      endpointId,
      endpoint: named.get(endpointId),
      calls: sum(({ calls }) => calls),
      challenged: sum(({ challenged }) => challenged),
      paid: sum(({ paid }) => paid),
      refusals: [...refusals].sort(([, a], [, b]) => b - a),
    }
  })
  rows.sort((a, b) => b.calls - a.calls)
  return (
    <section class="panel">
      <h2>Calls by endpoint</h2>
      <Table
        label="Calls by endpoint"
        head={[
          ['Endpoint'],
          ['Calls', true],
          ['Paid', true],
          ['Refused', true],
          ['Success', true],
          ['Refused because'],
        ]}
      >
        {rows.map(({ endpointId, endpoint, calls, challenged, paid, refusals }) => (
          <tr key={endpointId}>
            <td class="code">{endpoint ? `${endpoint.method} ${endpoint.path}` : endpointId}</td>
            <td class="right number">{writeCount(calls)}</td>
            <td class="right number">{writeCount(paid)}</td>
            <td class="right number">{writeCount(calls - challenged - paid)}</td>
            <td class="right number">{writeShare(paid, calls - challenged)}</td>
            <td>
              {refusals
                .slice(0, 2)
                .map(([code, count]) => `${describeCode(code)} (${writeCount(count)})`)
                .join(', ') || '–'}
            </td>
          </tr>
        ))}
      </Table>
    </section>
  )
}
