import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { useState } from 'preact/hooks'
import { countOf, nameNetwork, nameTrigger, shorten, writeCount, writeUsdc } from '../../display/format.ts'
import { href, type Route } from '../../display/routing.ts'
import type { Home, NetworkActivity, NetworkBatches } from '../../gateway/answers.ts'
import { createGateway, query } from '../../gateway/gateway.ts'
import { usePolled, usePolledPages } from '../../gateway/usePolled.ts'
import {
  Choice,
  Copyable,
  ExplorerLink,
  Figures,
  Panel,
  Tabs,
  Time,
  Transaction,
  Usdc,
} from '../../parts/bits.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { gasPerPayment, type Interval, lengthMs } from './intervals.ts'
import { NetworkPlots } from './NetworkPlots.tsx'

type Batch = NetworkBatches['batches'][number]

const gateway = createGateway()
/** How long the gateway gives everybody the same answer. */
const everyMs = 10_000
const newest = 10
const periods = [
  ['day', '30 days'],
  ['week', '26 weeks'],
] as const

/** For anyone, without a key: what settles on a network, who settles it and what that costs. */
export function NetworkPage({ route: [network, list, ...filter] }: { route: Route }) {
  if (network !== undefined && list === 'batches') return <BatchesPage network={network} filter={filter} />
  return <Activity network={network} />
}

function Activity({ network: asked }: { network: string | undefined }) {
  const [interval, setInterval] = useState<Interval>('day')
  const polled = usePolled(
    async (signal) => {
      const [{ networks }, activity, { batches }] = await Promise.all([
        gateway.get<Home>('', signal),
        gateway.get<NetworkActivity>(`network${query({ network: asked, interval })}`, signal),
        gateway.get<NetworkBatches>(`network/batches${query({ network: asked, limit: newest })}`, signal),
      ])
      return { networks, activity, batches }
    },
    `network ${asked} ${interval}`,
    everyMs,
  )
  return (
    <View
      title="Network"
      actions={<Choice label="Period" options={periods} value={interval} choose={setInterval} />}
      polled={polled}
    >
      {({ networks, activity, batches }) => (
        <>
          {networks.length > 1 && (
            <Tabs
              label="Networks"
              links={networks.map(({ network }) => [href('network', network), nameNetwork(network)])}
              current={href('network', activity.network)}
            />
          )}
          <p class="note">
            Everything that settled on {nameNetwork(activity.network)}, of all providers and keepers, as of
            block {writeCount(activity.indexedBlock)}.{activity.testnet && ' Test money is worth nothing.'}
          </p>
          {activity.total.batches === 0 ? (
            <Empty title={`Nothing settled in the last ${new Map(periods).get(activity.interval)}`}>
              Payments settle together, in one transaction. The first one shows here within seconds.
            </Empty>
          ) : (
            <>
              <Totals activity={activity} />
              <NetworkPlots activity={activity} />
              <Panel title="Keepers">
                <Keepers activity={activity} />
                <p class="note">
                  Anyone may settle, and nobody pays for it: no terms of this gateway carry a reward, so a
                  keeper earns 0 USDC and its net is the gas that it paid. Amounts in USDC are at the price of
                  now.
                </p>
              </Panel>
            </>
          )}
          {batches.length > 0 && (
            <Panel title="Newest batches">
              <Table rows={batches} {...batchesOf(activity.network)} />
              <p>
                <a href={href('network', activity.network, 'batches')}>All batches</a>
              </p>
            </Panel>
          )}
        </>
      )}
    </View>
  )
}

function Totals({ activity: { network, total } }: { activity: NetworkActivity }) {
  const { payments, batches, total_usdc, gas_used, gas_cost_usdc, gas_cost_ether, keepers } = total
  const all = <a href={href('network', network, 'batches')}>in {countOf(batches, 'batch', 'batches')}</a>
  const gasNote = `${writeCount(BigInt(gas_used))} in all`
  const paidNote = `${gas_cost_ether} of the gas token`
  return (
    <Figures
      of={[
        ['Payments', writeCount(payments), all],
        ['Moved', writeUsdc(parseUsdc(total_usdc)), 'to providers and platforms', 'USDC'],
        ['Gas per payment', writeCount(gasPerPayment(total)), gasNote],
        ['Paid for gas', writeUsdc(parseUsdc(gas_cost_usdc)), paidNote, 'USDC'],
        ['Keepers', writeCount(keepers), 'settled any of it'],
      ]}
    />
  )
}

function Keepers({ activity: { network, keepers } }: { activity: NetworkActivity }) {
  return (
    <Table
      label="Keepers"
      rows={keepers}
      keyOf={({ address }) => address}
      columns={[
        [
          'Keeper',
          ({ address }) => (
            <>
              <Copyable text={address} link={linkOf(network, address)} />{' '}
              <ExplorerLink network={network} path={`address/${address}`} />
            </>
          ),
        ],
        ['Batches', ({ batches }) => writeCount(batches), 'number'],
        ['Payments', ({ payments }) => writeCount(payments), 'number'],
        ['Moved, USDC', ({ total_usdc }) => <Usdc decimal={total_usdc} />, 'number'],
        ['Gas per payment', (keeper) => writeCount(gasPerPayment(keeper)), 'number'],
        ['Gas paid, USDC', ({ gas_cost_usdc }) => <Usdc decimal={gas_cost_usdc} />, 'number'],
        ['Last batch', ({ lastBatchAt }) => <Time at={lastBatchAt} distance />],
      ]}
    />
  )
}

/** The batches behind one figure: a keeper's, those of a day or week, or all. */
function BatchesPage({ network, filter: [by, value] }: { network: string; filter: string[] }) {
  const polled = usePolledPages(
    (pages) => gateway.list<Batch>('network/batches', { network, ...asQuery(by, value), limit: 50 }, pages),
    `network batches ${network} ${by} ${value}`,
  )
  return (
    <View
      title="Settled batches"
      polled={polled}
      below={
        <p class="note">
          {nameNetwork(network)}
          {describe(by, value)}. <a href={href('network', network)}>The whole network</a>
        </p>
      }
      none={<Empty title="No batch" />}
    >
      {({ rows, more }) => (
        <section class="panel">
          <Table rows={rows} more={more} {...batchesOf(network)} />
        </section>
      )}
    </View>
  )
}

function describe(by: string | undefined, value: string | undefined): string {
  if (by === undefined || value === undefined) return ''
  if (by === 'keeper') return `, keeper ${shorten(value)}`
  return by === 'week' ? `, the week from ${value} (UTC)` : `, ${value} (UTC)`
}

function asQuery(by: string | undefined, value: string | undefined): Record<string, string | undefined> {
  if (by === 'keeper') return { keeper: value }
  const start = Date.parse(`${value}T00:00:00Z`)
  const length = lengthMs[by as Interval]
  if (length === undefined || Number.isNaN(start)) return {}
  return { from: new Date(start).toISOString(), to: new Date(start + length).toISOString() }
}

/** How a table shows a network's batches. */
function batchesOf(network: string) {
  const columns: Column<Batch>[] = [
    [
      'Batch',
      ({ batch_id, tx_hash }) => (
        <a href={`../settlements/batches${query({ network, tx_hash })}`}>#{batch_id}</a>
      ),
    ],
    ['Payments', ({ payment_count }) => writeCount(payment_count), 'number'],
    ['Moved, USDC', ({ total_usdc }) => <Usdc decimal={total_usdc} />, 'number'],
    [
      'Gas per payment',
      ({ gas_used, payment_count: payments }) => writeCount(gasPerPayment({ gas_used, payments })),
      'number',
    ],
    ['Trigger', ({ trigger_type }) => nameTrigger(trigger_type)],
    ['Keeper', ({ keeper }) => <Copyable text={keeper} link={linkOf(network, keeper)} />],
    ['Mined', ({ created_at }) => <Time at={created_at} />],
    ['Transaction', ({ tx_hash }) => <Transaction hash={tx_hash} network={network} />],
  ]
  return { label: 'Settled batches', columns, keyOf: ({ batch_id }: Batch) => batch_id }
}

/** Where a keeper's batches are. */
function linkOf(network: string, keeper: string): string {
  return href('network', network, 'batches', 'keeper', keeper)
}
