import { writeBefore } from '../../display/compare.ts'
import {
  countOf,
  describeCode,
  sumUsdc,
  writeCount,
  writeExactUsdc,
  writeShare,
  writeUsdc,
} from '../../display/format.ts'
import { namePeriod, type Period, previousOf } from '../../display/period.ts'
import { href } from '../../display/routing.ts'
import { revenueSeries } from '../../display/series.ts'
import type { Endpoint, EndpointList, Revenue, RevenueRow, UsageRow } from '../../gateway/answers.ts'
import { query } from '../../gateway/gateway.ts'
import { useSession } from '../../gateway/session.ts'
import { finalMs, usePolled } from '../../gateway/usePolled.ts'
import { RevenuePlot } from '../../parts/RevenuePlot.tsx'
import { MoneyNote, type Scope, Scoped } from '../../parts/scope.tsx'
import { Table } from '../../parts/Table.tsx'
import { Code, Figures, Meter, Panel } from '../../parts/ui.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { AttentionPanel } from './AttentionPanel.tsx'

const mostRows = 1_000
/** Maximum number of endpoints in the table; the page of the endpoints shows all. */
const mostEndpoints = 10

/**
 * Shows the matters that require attention, and the revenue of a period: in total, by endpoint, and compared with the previous
 * period.
 */
export function OverviewPage() {
  return (
    <Scoped title="Overview" options={['hours', 'days', 'months']}>
      {(scope) => <Shown scope={scope} />}
    </Scoped>
  )
}

function Shown({ scope }: { scope: Scope }) {
  const { gateway, path } = useSession()
  const { plotted: asked, within, testnet, key } = scope
  const endpoints = usePolled(
    (signal) => gateway.get<EndpointList>(`${path}/endpoints`, signal),
    'overview endpoints',
    finalMs,
  )
  const earlier = usePolled(
    async (signal) => {
      const { from, to } = previousOf(asked)
      const of = query({
        interval: asked.interval,
        from: from.toISOString(),
        to: to.toISOString(),
        testnet,
        limit: mostRows,
      })
      return (await gateway.get<Revenue>(`${path}/revenue${of}`, signal)).revenue
    },
    `before ${key}`,
    finalMs,
  )
  const polled = usePolled(async (signal) => {
    const period = asked
    // The gateway's totals cover whole UTC days. For a period in hours, read a row for each hour and add up the rows here.
    const summed = period.interval === 'hour' ? 'hour' : 'total'
    const [{ revenue, testnet: isTest }, { rows: byEndpoint }, { rows: usage }] = await Promise.all([
      gateway.get<Revenue>(
        `${path}/revenue${query({ ...within, interval: period.interval, testnet, limit: mostRows })}`,
        signal,
      ),
      gateway.list<RevenueRow>(
        `${path}/revenue`,
        { ...within, interval: summed, groupBy: 'endpoint', testnet, limit: mostRows },
        { signal },
      ),
      gateway.list<UsageRow>(`${path}/usage`, { ...within, interval: summed, limit: mostRows }, { signal }),
    ])
    return { period, revenue, isTest, byEndpoint, usage }
  }, key)
  // Wait for the endpoints: without them, the page can't name anything, or distinguish testnet funds from real money.
  const isReady = endpoints.data !== undefined
  return (
    <View title="Overview" actions={scope.choice} polled={isReady ? polled : { ...polled, data: undefined }}>
      {({ period, revenue, isTest, byEndpoint, usage: allUsage }) => {
        const all = endpoints.data?.endpoints ?? []
        const shown = all.filter((endpoint) => endpoint.testnet === isTest)
        const ids = new Set(shown.map(({ endpointId }) => endpointId))
        const usage = allUsage.filter(({ endpointId }) => ids.has(endpointId))
        const accepted = sum(revenue, ({ payments }) => payments)
        const ofEndpoints = byEndpoint.filter(({ endpointId }) => endpointId !== undefined)
        return (
          <>
            <MoneyNote scope={scope} testnet={isTest} hasBoth={shown.length < all.length} />
            <AttentionPanel />
            <Totals period={period} revenue={revenue} earlier={earlier.data} usage={usage} />
            {accepted === 0 ? (
              <Empty title={`No payments in ${namePeriod(period)}`}>
                {shown.length === 0 ? (
                  <>
                    Register a wallet and an endpoint first: <a href={href('start')}>go to the first steps</a>
                    .
                  </>
                ) : (
                  'When a buyer pays for one of your endpoints, the payment appears here within seconds.'
                )}
              </Empty>
            ) : (
              <Panel title="Revenue over time">
                <RevenuePlot points={revenueSeries(revenue, period.starts)} period={period} />
              </Panel>
            )}
            <Funnel usage={usage} revenue={ofEndpoints} />
            <EndpointTable usage={usage} revenue={byEndpoint} endpoints={all} />
          </>
        )
      }}
    </View>
  )
}

type TotalsProps = {
  period: Period
  revenue: RevenueRow[]
  /** Revenue of the previous period; undefined until it is read. */
  earlier: RevenueRow[] | undefined
  usage: UsageRow[]
}

function Totals({ period, revenue, earlier, usage }: TotalsProps) {
  const accepted = sum(revenue, ({ payments }) => payments)
  const failed = sum(revenue, ({ failedPayments }) => failedPayments)
  const calls = sum(usage, ({ calls }) => calls)
  const paid = sum(usage, ({ paid }) => paid)
  const challenged = sum(usage, ({ challenged }) => challenged)
  const settled = sumUsdc(revenue, ({ settled_usdc }) => settled_usdc)
  const outstanding = sumUsdc(revenue, ({ outstanding_usdc }) => outstanding_usdc)
  const settledPayments = sum(revenue, (row) => row.settledPayments)
  const before = <T extends bigint | number>(
    now: T,
    of: (rows: RevenueRow[]) => T,
    write: (value: T) => string,
  ) => earlier !== undefined && writeBefore([now, of(earlier)], write, period.title)
  const net = (rows: RevenueRow[]) =>
    sumUsdc(rows, ({ settled_usdc }) => settled_usdc) +
    sumUsdc(rows, ({ outstanding_usdc }) => outstanding_usdc)
  const presented = calls - challenged
  return (
    <Figures
      of={[
        [
          'Revenue, net',
          writeUsdc(settled + outstanding),
          before(settled + outstanding, net, (amount) => `${writeUsdc(amount)} USDC`),
          'USDC',
        ],
        [
          'Payments',
          writeCount(accepted),
          <>
            {before(accepted, (rows) => sum(rows, ({ payments }) => payments), writeCount)}
            {failed > 0 && earlier && '; '}
            {failed > 0 && <a href={href('payments', 'failures')}>{writeCount(failed)} failed</a>}
          </>,
        ],
        ['Settled', writeUsdc(settled), `${countOf(settledPayments, 'payment')} on chain`, 'USDC'],
        ['Outstanding', writeUsdc(outstanding), <a href={href('payouts')}>See the next payout</a>, 'USDC'],
        [
          'Success rate',
          writeShare(paid, presented),
          `${writeCount(paid)} of ${writeCount(presented)} paid calls accepted`,
        ],
      ]}
    />
  )
}

function sum<Row>(rows: readonly Row[], of: (row: Row) => number): number {
  return rows.reduce((total, row) => total + of(row), 0)
}

/** Shows how many requests to the provider's endpoints reached each step, from the quoted price to settlement on the chain. */
function Funnel({ usage, revenue }: { usage: UsageRow[]; revenue: RevenueRow[] }) {
  const challenged = sum(usage, (row) => row.challenged)
  const paid = sum(usage, (row) => row.paid)
  const served = sum(revenue, ({ payments }) => payments)
  const voided = sum(revenue, ({ voidedPayments }) => voidedPayments)
  const settled = sum(revenue, ({ settledPayments }) => settledPayments)
  const steps: [label: string, count: number][] = [
    ['Answered 402 with the price', challenged],
    ['Paid', paid],
    ['Served', served],
    ['Settled', settled],
  ]
  const most = Math.max(...steps.map(([, count]) => count))
  if (most === 0) return null
  const unaccounted = paid - served - voided
  return (
    <Panel title="From price to payment" label="From price to payment">
      <div class="funnel">
        {steps.map(([label, count], at) => {
          const before = steps[at - 1]?.[1] ?? 0
          const share = at > 0 && before >= count && before > 0 ? `, ${writeShare(count, before)}` : ''
          return (
            <Meter
              key={label}
              isPart
              label={label}
              share={count / most}
              text={`${writeCount(count)}${share}`}
            />
          )
        })}
      </div>
      <p class="note">
        Each percentage is relative to the previous step.
        {voided > 0 &&
          ` ${countOf(voided, 'payment was', 'payments were')} voided because your handler failed: nothing was charged.`}
        {unaccounted > 0 &&
          ` ${countOf(unaccounted, 'request is', 'requests are')} on tabs that are still open, or arrived a moment ago.`}
      </p>
    </Panel>
  )
}

type EndpointTableProps = { usage: UsageRow[]; revenue: RevenueRow[]; endpoints: Endpoint[] }

function EndpointTable({ usage, revenue, endpoints }: EndpointTableProps) {
  const known = new Map(endpoints.map((endpoint) => [endpoint.endpointId, endpoint]))
  const usageOf = Map.groupBy(usage, ({ endpointId }) => endpointId)
  const revenueOf = Map.groupBy(revenue, ({ endpointId = '' }) => endpointId)
  const rows = [...new Set([...usageOf.keys(), ...revenueOf.keys()])]
    .map((endpointId) => {
      const calls = usageOf.get(endpointId) ?? []
      const sales = revenueOf.get(endpointId) ?? []
      const refusals = new Map<string, number>()
      for (const [code, count] of calls.flatMap(({ refused }) => Object.entries(refused)))
        refusals.set(code, (refusals.get(code) ?? 0) + count)
      return {
        endpointId,
        net:
          sumUsdc(sales, ({ settled_usdc }) => settled_usdc) +
          sumUsdc(sales, ({ outstanding_usdc }) => outstanding_usdc),
        payments: sum(sales, ({ payments }) => payments),
        calls: sum(calls, (row) => row.calls),
        paid: sum(calls, ({ paid }) => paid),
        presented: sum(calls, (row) => row.calls - row.challenged),
        refusals: [...refusals].sort(([, a], [, b]) => b - a).slice(0, 2),
      }
    })
    .sort((a, b) => Number(b.net - a.net) || b.calls - a.calls)
  if (rows.length === 0) return null
  const nameOf = (endpointId: string) => {
    const { method, path } = known.get(endpointId) ?? {}
    return path === undefined ? endpointId : `${method === '*' ? 'any' : method} ${path}`
  }
  return (
    <Panel title="Revenue by endpoint">
      <Table
        label="Revenue by endpoint"
        rows={rows.slice(0, mostEndpoints)}
        keyOf={({ endpointId }) => endpointId}
        columns={[
          [
            'Endpoint',
            ({ endpointId }) =>
              endpointId === '' ? (
                'x402 facilitator'
              ) : (
                <a href={href('endpoints', endpointId)}>
                  <Code>{nameOf(endpointId)}</Code>
                </a>
              ),
            'wrap',
          ],
          ['Net, USDC', ({ net }) => <span class="number">{writeExactUsdc(net)}</span>, 'number', 'end'],
          ['Payments', ({ payments }) => writeCount(payments), 'number', 'second'],
          ['Calls', ({ calls }) => writeCount(calls), 'number'],
          ['Success', ({ paid, presented }) => writeShare(paid, presented), 'number'],
          [
            'Refused because',
            ({ refusals }) =>
              refusals.map(([code, count]) => `${describeCode(code)} (${writeCount(count)})`).join(', ') ||
              '–',
            'wrap',
            'more',
          ],
        ]}
      />
      {rows.length > mostEndpoints && (
        <p>
          <a href={href('endpoints')}>All {writeCount(rows.length)} endpoints</a>
        </p>
      )}
    </Panel>
  )
}
