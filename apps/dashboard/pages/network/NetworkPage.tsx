import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { useState } from 'preact/hooks'
import {
  countOf,
  nameBatch,
  nameNetwork,
  nameTrigger,
  shorten,
  writeCount,
  writeUsdc,
} from '../../display/format.ts'
import { href, type Route } from '../../display/routing.ts'
import type { Home, NetworkActivity, NetworkBatches, TransactionBatches } from '../../gateway/answers.ts'
import { createGateway, query } from '../../gateway/gateway.ts'
import { finalMs, usePolled, usePolledPages } from '../../gateway/usePolled.ts'
import { type Column, Table } from '../../parts/Table.tsx'
import {
  Choice,
  Copyable,
  ExplorerLink,
  Facts,
  Figures,
  Panel,
  Tabs,
  Time,
  Transaction,
  Usdc,
} from '../../parts/ui.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { gasPerPayment, type Interval, lengthMs } from './intervals.ts'
import { NetworkPlots } from './NetworkPlots.tsx'

type Batch = NetworkBatches['batches'][number]

const gateway = createGateway()
/** Time in ms for which the gateway returns the same response to all readers. */
const everyMs = 10_000
const newest = 10
const periods = [
  ['day', '30 days'],
  ['week', '26 weeks'],
] as const

/** Shows anyone, without a key, the settlements on a network, the keepers that send them, and their costs. */
export function NetworkPage({ route: [network, list, ...filter] }: { route: Route }) {
  const [by, value] = filter
  if (network !== undefined && list === 'batches') {
    if (by === 'transaction' && value !== undefined) return <BatchPage network={network} txHash={value} />
    return <BatchesPage network={network} filter={filter} />
  }
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
            block {writeCount(activity.indexedBlock)}.{activity.testnet && ' Testnet funds, no real value.'}
          </p>
          {activity.total.batches === 0 ? (
            <Empty title={`Nothing settled in the last ${new Map(periods).get(activity.interval)}`}>
              Payments settle in batches. The next batch appears here within seconds after it settles.
            </Empty>
          ) : (
            <>
              <Totals activity={activity} />
              <NetworkPlots activity={activity} />
              <Panel title="Keepers">
                <Keepers activity={activity} />
                <p class="note">
                  Anyone can settle by paying the gas. A keeper that settles a tab gets the reward that the
                  buyer signed, a share of the platform’s part; payments without a tab carry no reward. Gas in
                  USDC is at the current price of the gas token.
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
        ['Keepers', writeCount(keepers), 'settled at least one batch'],
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

/** Shows the batches that a figure counts: the batches of a keeper, of a day or week, or all batches. */
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
      none={
        <Empty title="No batches settled here">
          No batch on this network matches this link. See{' '}
          <a href={href('network', network)}>the whole network</a>.
        </Empty>
      }
    >
      {({ rows, more }) => (
        <section class="panel">
          <Table rows={rows} more={more} {...batchesOf(network)} />
        </section>
      )}
    </View>
  )
}

/** Shows what one transaction settled, for all providers. */
function BatchPage({ network, txHash }: { network: string; txHash: string }) {
  const polled = usePolled(
    (signal) =>
      gateway.get<TransactionBatches>(`settlements/batches${query({ network, tx_hash: txHash })}`, signal),
    `network batch ${network} ${txHash}`,
    ({ batches }) =>
      batches.length > 0 && batches.every(({ confirmed_at }) => confirmed_at !== null) ? finalMs : everyMs,
  )
  return (
    <View
      title="Batch"
      polled={polled}
      below={
        <p class="note">
          {nameNetwork(network)}. <a href={href('network', network, 'batches')}>All batches</a>
        </p>
      }
    >
      {({ batches }) =>
        batches.length === 0 ? (
          <Empty title="No settlement in this transaction">
            Check that the link has the whole transaction hash. If a reorg dropped the transaction, its
            payments settle again in another transaction.
          </Empty>
        ) : (
          batches.map((batch) => (
            <Facts
              key={batch.batch_id}
              isPanel
              of={{
                Batch: nameBatch(network, batch.batch_id),
                Transaction: <Transaction hash={batch.tx_hash} network={network} />,
                Payments: writeCount(batch.payment_count),
                'To providers, USDC': <Usdc decimal={batch.total_usdc} />,
                Trigger: nameTrigger(batch.trigger_type),
                'Gas, USDC': <Usdc decimal={batch.gas_cost_usdc} />,
                Mined: <Time at={batch.created_at} />,
                Confirmed: <Time at={batch.confirmed_at} none="not yet" />,
              }}
            />
          ))
        )
      }
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

/** Returns the columns of a table of a network's batches. */
function batchesOf(network: string) {
  const columns: Column<Batch>[] = [
    [
      'Batch',
      ({ batch_id, tx_hash }) => (
        <a href={href('network', network, 'batches', 'transaction', tx_hash)}>#{batch_id}</a>
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

/** Returns the link to a keeper's batches. */
function linkOf(network: string, keeper: string): string {
  return href('network', network, 'batches', 'keeper', keeper)
}
