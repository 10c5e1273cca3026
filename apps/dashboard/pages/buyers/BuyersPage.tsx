import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { writeBefore } from '../../display/compare.ts'
import { nameEndpoint } from '../../display/endpoints.ts'
import { nameNetwork, writeCount, writeUsdc, writeWhole } from '../../display/format.ts'
import { namePeriod, type Period, previousOf } from '../../display/period.ts'
import { hrefWith, type Route } from '../../display/routing.ts'
import type { EndpointList, Payer, PayerActivity, Payers } from '../../gateway/answers.ts'
import { query } from '../../gateway/gateway.ts'
import { useSession } from '../../gateway/session.ts'
import { usePolled, usePolledPages } from '../../gateway/usePolled.ts'
import { BuyerBadges, BuyerLink } from '../../parts/buyers.tsx'
import { Fold } from '../../parts/Fold.tsx'
import { Plot } from '../../parts/Plot.tsx'
import { createIntervalName } from '../../parts/RevenuePlot.tsx'
import { hasBothKinds, MoneyNote, type Scope, Scoped, withinOf } from '../../parts/scope.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Choices, Figures, type Options, Panel, Time, Usdc } from '../../parts/ui.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { BuyerPage } from './BuyerPage.tsx'

const pageSize = 25
const everyMs = 15_000

/** Shows a provider's buyers: the list, or one buyer. */
export function BuyersPage({ route: [payer] }: { route: Route }) {
  if (payer !== undefined) return <BuyerPage key={payer} payer={payer} />
  return (
    <Scoped title="Buyers" options={['days', 'months', 'all']}>
      {(scope) => <BuyerListPage scope={scope} />}
    </Scoped>
  )
}

const states: Options = [
  ['new', 'new buyers'],
  ['returning', 'returning buyers'],
  ['owing', 'buyers who owe you'],
  ['failing', 'buyers with failing payments'],
]

const sorts: Options = [
  ['', 'revenue'],
  ['payments', 'payments'],
  ['lastPayment', 'last payment'],
]

function BuyerListPage({ scope }: { scope: Scope }) {
  const { gateway, path } = useSession()
  const { within, testnet, search, period, plotted, key } = scope
  const { state: chosen, sort, endpointId } = search
  const state = period === undefined && isOfPeriod(chosen) ? undefined : chosen
  const endpoints = usePolled(
    (signal) => gateway.get<EndpointList>(`${path}/endpoints`, signal),
    'endpoints',
    60_000,
  )
  const counts = usePolled((signal) => readCounts(signal), `buyer counts ${key} ${endpointId}`, 30_000)
  const polled = usePolledPages(
    async (pages) => {
      const asked = { ...within, testnet, endpointId, state, sort, limit: pageSize }
      const { last, ...list } = await gateway.list<Payer, Payers>(`${path}/payers`, asked, pages)
      return { ...list, testnet: last.testnet, indexedBlocks: last.indexedBlocks }
    },
    `buyers ${key} ${query({ endpointId, state, sort })}`,
    everyMs,
  )
  async function readCounts(signal: AbortSignal) {
    const own = { testnet, endpointId }
    const count = (asked: Record<string, string | undefined>) =>
      gateway.get<PayerActivity>(`${path}/payer-activity${query({ ...own, ...asked })}`, signal)
    const before = period && previousOf(period)
    const [total, earlier, byTime] = await Promise.all([
      count({ interval: 'total', ...within }),
      before && count({ interval: 'total', from: before.from.toISOString(), to: before.to.toISOString() }),
      count({ interval: plotted.interval, ...withinOf(plotted), limit: '1000' }),
    ])
    return {
      total: total.activity[0],
      earlier: earlier?.activity[0],
      byTime: byTime.activity,
      period,
      plotted,
    }
  }
  const isNarrowed = Boolean(state || endpointId)
  return (
    <View
      title="Buyers"
      actions={scope.choice}
      polled={polled}
      below={
        <BuyerFilters
          scope={scope}
          endpoints={(endpoints.data?.endpoints ?? []).map((one) => [one.endpointId, nameEndpoint(one)])}
        />
      }
      none={
        <Empty
          title={
            isNarrowed
              ? 'No buyer matches these filters'
              : period === undefined
                ? 'No buyers yet'
                : `No buyers in ${namePeriod(period)}`
          }
        >
          {isNarrowed
            ? 'Change the filters, or choose a longer period.'
            : 'A buyer who pays for one of your endpoints appears here within seconds.'}
        </Empty>
      }
    >
      {({ rows, more, testnet, indexedBlocks }) => (
        <>
          <MoneyNote scope={scope} testnet={testnet} hasBoth={hasBothKinds(indexedBlocks)} />
          {counts.data && <Counts {...counts.data} />}
          <section class="panel">
            <Table
              label="Buyers"
              rows={rows}
              more={more}
              keyOf={({ payer, network }) => `${payer} ${network}`}
              columns={columnsOf(rows, testnet)}
            />
          </section>
        </>
      )}
    </View>
  )
}

/** The list's filters. Each choice is added to the link immediately. */
function BuyerFilters({ scope, endpoints }: { scope: Scope; endpoints: Options }) {
  const { period, testnet, search, set } = scope
  const select = (name: string, title: string, options: Options) => (
    <label>
      <span class="note">{title}</span>
      <select value={search[name] ?? ''} onChange={(event) => set({ [name]: event.currentTarget.value })}>
        <Choices of={options} />
      </select>
    </label>
  )
  return (
    <Fold title="Filters">
      <form
        class="line filters buyer-filters"
        onSubmit={(event) => {
          event.preventDefault()
          const payer = String(new FormData(event.currentTarget).get('payer')).trim()
          if (payer !== '') location.hash = hrefWith(['buyers', payer], { testnet })
        }}
      >
        {select('state', 'Show', [['', 'all buyers'], ...(period === undefined ? states.slice(2) : states)])}
        {select('endpointId', 'Endpoint', [['', 'any'], ...endpoints])}
        {select('sort', 'Sorted by', sorts)}
        <label>
          <span class="note">Address</span>
          <input name="payer" placeholder="0x…" spellcheck={false} autocomplete="off" />
        </label>
        <button type="submit">Open</button>
      </form>
    </Fold>
  )
}

const isOfPeriod = (state: string | undefined) => state === 'new' || state === 'returning'

type CountsProps = {
  total: PayerActivity['activity'][number] | undefined
  /** The buyers' activity in the previous period. */
  earlier: PayerActivity['activity'][number] | undefined
  byTime: PayerActivity['activity']
  /** Undefined: all time, which has no previous period. */
  period: Period | undefined
  plotted: Period
}

type CountPoint = { startsAt: Date; newPayers: number; payers: number }

function Counts({ total, earlier, byTime, period, plotted }: CountsProps) {
  const of = (name: 'payers' | 'newPayers' | 'returningPayers') => {
    const [now, before] = [total?.[name] ?? 0, earlier?.[name] ?? 0]
    return [writeCount(now), period && writeBefore([now, before], writeCount, period.title)] as const
  }
  const byStart = new Map(byTime.map((row) => [row.startsAt && Date.parse(row.startsAt), row]))
  const points = plotted.starts.map((startsAt): CountPoint => {
    const { payers = 0, newPayers = 0 } = byStart.get(startsAt.getTime()) ?? {}
    return { startsAt, payers, newPayers }
  })
  const name = createIntervalName(plotted)
  return (
    <>
      <Figures
        of={[
          ['Buyers', ...of('payers')],
          ...(period
            ? ([
                ['New', ...of('newPayers')],
                ['Returning', ...of('returningPayers')],
              ] as const)
            : []),
        ]}
      />
      <Panel title="New and returning buyers">
        <Plot
          title="New and returning buyers"
          label={`Buyers of ${namePeriod(plotted)}, new and returning, as bars.`}
          points={points}
          timeOf={({ startsAt }) => startsAt.getTime()}
          series={[
            { title: 'Returning', color: '--border', of: ({ payers }) => payers },
            { title: 'New', color: '--good', of: ({ newPayers }) => newPayers },
          ]}
          shape="bars"
          writeValue={writeWhole}
          readout={(point) => (
            <>
              {name(point)}: <b>{writeCount(point.newPayers)}</b> new,{' '}
              <b>{writeCount(point.payers - point.newPayers)}</b> returning
            </>
          )}
          rows={points.filter(({ payers }) => payers > 0)}
          columns={[
            ['From (UTC)', name],
            ['New', ({ newPayers }) => writeCount(newPayers), 'number'],
            ['Returning', ({ payers, newPayers }) => writeCount(payers - newPayers), 'number'],
          ]}
        />
      </Panel>
    </>
  )
}

function columnsOf(rows: readonly Payer[], testnet: boolean): Column<Payer>[] {
  const hasNetworks = new Set(rows.map(({ network }) => network)).size > 1
  return [
    [
      'Buyer',
      (row) => (
        <>
          <BuyerLink payer={row.payer} testnet={testnet} />
          {hasNetworks && <span class="note"> {nameNetwork(row.network)}</span>} <BuyerBadges {...row} />
        </>
      ),
      'wrap',
    ],
    ['Payments', ({ payments }) => writeCount(payments), 'number', 'second'],
    ['You get, USDC', ({ net_usdc }) => <Usdc decimal={net_usdc} />, 'number'],
    ['Average, USDC', ({ average_usdc }) => writeUsdc(parseUsdc(average_usdc)), 'number'],
    ['Failed, USDC', ({ failed_usdc }) => writeUsdc(parseUsdc(failed_usdc)), 'number'],
    ['Owes, USDC', ({ owed_usdc }) => writeUsdc(parseUsdc(owed_usdc)), 'number'],
    ['First payment', ({ firstPaymentAt }) => <Time at={firstPaymentAt} distance />, undefined, 'more'],
    ['Last payment', ({ lastPaymentAt }) => <Time at={lastPaymentAt} distance />],
  ]
}
