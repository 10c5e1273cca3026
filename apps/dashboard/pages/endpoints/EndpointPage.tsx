import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { writeBefore } from '../../display/compare.ts'
import { isTool, nameEndpoint } from '../../display/endpoints.ts'
import {
  countOf,
  describeCode,
  nameNetwork,
  writeCount,
  writeShare,
  writeUsdc,
  writeWhole,
} from '../../display/format.ts'
import { namePeriod, type Period } from '../../display/period.ts'
import { href, hrefWith } from '../../display/routing.ts'
import { revenueSeries } from '../../display/series.ts'
import type {
  Endpoint,
  EndpointActivity,
  EndpointFigures,
  Home,
  Pass,
  Payer,
  Payers,
  ProviderPayment,
  Revenue,
  UsageRow,
  WalletList,
} from '../../gateway/answers.ts'
import { query } from '../../gateway/gateway.ts'
import { useSession } from '../../gateway/session.ts'
import { usePolled } from '../../gateway/usePolled.ts'
import { useActions } from '../../parts/actions.tsx'
import { BuyerBadges, BuyerLink } from '../../parts/buyers.tsx'
import type { PlotSeries } from '../../parts/drawPlot.ts'
import { Plot } from '../../parts/Plot.tsx'
import { passColumns } from '../../parts/passes.tsx'
import { payments } from '../../parts/payments.tsx'
import { createIntervalName, RevenuePlot } from '../../parts/RevenuePlot.tsx'
import { MoneyNote, type Scope, Scoped } from '../../parts/scope.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Badge, Code, Copyable, Facts, Figures, Panel, State, Time, Usdc } from '../../parts/ui.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { Middleware } from '../start/FirstSteps.tsx'
import { CatalogPanel } from './CatalogPanel.tsx'
import { endpointActions } from './endpointActions.tsx'
import { nameRefusal, presentedOf, type RefusalPoint, refusalSeries } from './figures.ts'

const everyMs = 15_000
const listed = 5

/** Shows an endpoint's figures, buyers, payments and settings. */
export function EndpointPage({ endpointId }: { endpointId: string }) {
  return (
    <Scoped title="Endpoint" options={['days', 'months']}>
      {(scope) => <Shown endpointId={endpointId} scope={scope} />}
    </Scoped>
  )
}

function Shown({ endpointId, scope }: { endpointId: string; scope: Scope }) {
  const session = useSession()
  const { gateway, path, provider } = session
  const { within, plotted } = scope
  const polled = usePolled(
    async (signal) => {
      const id = encodeURIComponent(endpointId)
      // Read the endpoint first: the other requests depend on whether it is paid in testnet funds, and an unknown endpoint fails here.
      const endpoint = await gateway.get<Endpoint>(`${path}/endpoints/${id}`, signal)
      const testnet = String(endpoint.testnet)
      const own = { ...within, testnet, endpointId }
      const byTime = { ...within, endpointId, interval: plotted.interval, limit: 1_000 }
      const [home, { wallets }, { activity }, revenue, usage, buyers, recent, passes] = await Promise.all([
        gateway.get<Home>('', signal),
        gateway.get<WalletList>(`${path}/wallets`, signal),
        gateway.get<EndpointActivity>(`${path}/endpoint-activity${query(own)}`, signal),
        gateway.get<Revenue>(`${path}/revenue${query({ ...byTime, testnet })}`, signal),
        gateway.list<UsageRow>(`${path}/usage`, byTime, { signal }),
        gateway.get<Payers>(`${path}/payers${query({ ...own, limit: listed })}`, signal),
        gateway.list<ProviderPayment>(
          `${path}/payments`,
          { endpointId, limit: listed },
          { signal, pages: 1 },
        ),
        gateway.list<Pass>(`${path}/passes`, { endpointId, limit: listed }, { signal, pages: 1 }),
      ])
      return {
        endpoint,
        home,
        wallets: wallets.filter(({ retiredAt }) => retiredAt === null),
        figures: activity[0],
        period: plotted,
        revenue: revenue.revenue,
        usage: usage.rows,
        buyers: buyers.payers,
        recent: recent.rows,
        passes: passes.rows,
      }
    },
    `endpoint ${endpointId} ${scope.key}`,
    everyMs,
  )
  const { notice, buttons, dialog } = useActions(polled.refresh)
  const isReading = session.scope === 'read'
  return (
    <View
      title="Endpoint"
      actions={scope.choice}
      polled={polled}
      below={
        <p>
          <a href={href('endpoints')}>All endpoints</a>
        </p>
      }
    >
      {({ endpoint, home, wallets, figures, period, revenue, usage, buyers, recent, passes }) => (
        <>
          <div class="line">
            <Code>{nameEndpoint(endpoint)}</Code>
            {isTool(endpoint) && <Badge tone="plain">MCP tool</Badge>}
            <State isOn={endpoint.disabledAt === null} yes="on sale" no="disabled" />
          </div>
          <MoneyNote scope={scope} testnet={endpoint.testnet} hasBoth={false} />
          {notice}
          {figures === undefined ? (
            <Empty title={`No calls in ${namePeriod(period)}`}>
              There were no calls, payments or refunds in this period, and none in the {period.title} before.
              Choose a longer period to see earlier sales.
            </Empty>
          ) : (
            <>
              <Totals figures={figures} period={period} />
              <Panel title="Revenue over time">
                <RevenuePlot points={revenueSeries(revenue, period.starts)} period={period} />
              </Panel>
              <Refusals usage={usage} period={period} />
            </>
          )}
          <Panel
            title="Top buyers"
            beside={
              buyers.length > 0 && (
                <a
                  class="end"
                  href={hrefWith(['buyers'], {
                    ...scope.own,
                    endpointId,
                    testnet: String(endpoint.testnet),
                  })}
                >
                  All buyers
                </a>
              )
            }
          >
            <Table
              label="Top buyers"
              rows={buyers}
              keyOf={({ payer, network }) => `${payer} ${network}`}
              none={`No buyers in ${namePeriod(period)}.`}
              columns={buyerColumns(endpoint.testnet)}
            />
          </Panel>
          <Panel
            title="Recent payments"
            beside={
              recent.length > 0 && (
                <a class="end" href={hrefWith(['payments'], { endpointId })}>
                  All payments
                </a>
              )
            }
          >
            <Table label="Recent payments" rows={recent} none="No payments yet." {...payments} />
          </Panel>
          <CatalogPanel endpoint={endpoint} refresh={polled.refresh} />
          {passes.length > 0 && (
            <Panel title="Recent passes">
              <Table
                label="Recent passes"
                rows={passes}
                keyOf={({ paymentId }) => paymentId}
                none="No passes yet."
                columns={passColumns}
              />
            </Panel>
          )}
          <Panel
            title="Settings"
            beside={
              !isReading && (
                <div class="buttons end">{buttons(endpointActions(endpoint, wallets, session), 'quiet')}</div>
              )
            }
          >
            <Facts of={settingsOf(endpoint)} />
          </Panel>
          <section aria-label="How to sell it" class="panel">
            <h2>How to sell it</h2>
            <Middleware home={home} providerId={provider.providerId} endpoint={endpoint} />
          </section>
          {dialog}
        </>
      )}
    </View>
  )
}

function Totals({ figures, period: { title } }: { figures: EndpointFigures; period: Period }) {
  const { previous } = figures
  const amounts = (of: (one: NonNullable<typeof previous>) => string) => {
    const [now, before] = [parseUsdc(of(figures)), parseUsdc(previous ? of(previous) : '0')]
    return { now, note: writeBefore([now, before], (amount) => `${writeUsdc(amount)} USDC`, title) }
  }
  const counts = (of: (one: NonNullable<typeof previous>) => number) => {
    const [now, before] = [of(figures), previous ? of(previous) : 0]
    return { now, note: writeBefore([now, before], writeCount, title) }
  }
  const net = amounts(({ net_usdc }) => net_usdc)
  const average = amounts(({ average_usdc }) => average_usdc)
  const paid = counts(({ payments }) => payments)
  const refused = counts((one) => presentedOf(one) - one.paid)
  const buyers = counts(({ payers }) => payers)
  return (
    <Figures
      of={[
        ['Revenue, net', writeUsdc(net.now), net.note, 'USDC'],
        ['Payments', writeCount(paid.now), paid.note],
        ['Average price', writeUsdc(average.now), average.note, 'USDC'],
        [
          'Success rate',
          writeShare(figures.paid, presentedOf(figures)),
          `${writeCount(refused.now)} refused; ${refused.note}`,
        ],
        ['Buyers', writeCount(buyers.now), `${writeCount(figures.newPayers)} new; ${buyers.note}`],
        [
          'Failed',
          writeUsdc(parseUsdc(figures.failed_usdc)),
          `${countOf(figures.failedPayments, 'payment')}; ${writeUsdc(parseUsdc(figures.refunded_usdc))} USDC refunded`,
          'USDC',
        ],
      ]}
    />
  )
}

function Refusals({ usage, period }: { usage: UsageRow[]; period: Period }) {
  const { codes, totals, points } = refusalSeries(usage, period.starts)
  if (codes.length === 0) return null
  const name = createIntervalName(period)
  const sumTo = (place: number) => (point: RefusalPoint) =>
    point.byCode.slice(0, place + 1).reduce((sum, count) => sum + count, 0)
  // The bars are drawn on top of each other, the tallest first.
  const series: PlotSeries<RefusalPoint>[] = codes
    .map((code, place) => ({
      title: nameRefusal(code),
      color: ['--bad', '--wait'][place] ?? '--border',
      of: sumTo(place),
    }))
    .toReversed()
  if (points.some(({ others }) => others > 0))
    series.unshift({ title: nameRefusal(undefined), color: '--border', of: ({ total }) => total })
  const ofCode = (place: number): Column<RefusalPoint> => [
    nameRefusal(codes[place]),
    ({ byCode }) => writeCount(byCode[place] ?? 0),
    'number',
  ]
  return (
    <Panel title="Refusals over time">
      <Plot
        title="Refusals over time"
        label={`Refused payments of ${namePeriod(period)}, by reason, as bars.`}
        points={points}
        timeOf={({ startsAt }) => startsAt.getTime()}
        series={series}
        shape="bars"
        writeValue={writeWhole}
        readout={(point) => (
          <>
            {name(point)}: <b>{writeCount(point.total)}</b> refused
          </>
        )}
        rows={points.filter(({ total }) => total > 0)}
        columns={[
          ['From (UTC)', name],
          ...codes.map((_, place) => ofCode(place)),
          ['Other reasons', ({ others }) => writeCount(others), 'number'],
        ]}
      />
      <p class="note">
        Refused because:{' '}
        {totals.map(([code, count]) => `${describeCode(code)} (${writeCount(count)})`).join(', ')}
      </p>
    </Panel>
  )
}

const buyerColumns = (testnet: boolean): Column<Payer>[] => [
  [
    'Buyer',
    (row) => (
      <>
        <BuyerLink payer={row.payer} testnet={testnet} /> <BuyerBadges {...row} />
      </>
    ),
    'wrap',
  ],
  ['Payments', ({ payments }) => writeCount(payments), 'number', 'second'],
  ['You get, USDC', ({ net_usdc }) => <Usdc decimal={net_usdc} />, 'number'],
  ['Last payment', ({ lastPaymentAt }) => <Time at={lastPaymentAt} distance />],
]

function settingsOf(endpoint: Endpoint) {
  const { endpointId, url, method, pricing, networks, description, mimeType, serverUrl, createdAt } = endpoint
  return {
    URL: <Code>{url}</Code>,
    Method: !isTool(endpoint) && (method === '*' ? 'any' : method),
    'Price, USDC': writeUsdc(parseUsdc(pricing.usdcPerUnit)),
    'Paid on': networks.map(({ network }) => nameNetwork(network)).join(', '),
    Description: description !== '' && description,
    'MCP server': isTool(endpoint) && (serverUrl ? <Code>{serverUrl}</Code> : 'not registered'),
    'Content type': mimeType,
    Id: <Copyable text={endpointId} />,
    Registered: <Time at={createdAt} />,
  }
}
