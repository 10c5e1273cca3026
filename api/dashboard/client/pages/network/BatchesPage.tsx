import type { NetworkBatches } from '../../answers.ts'
import { nameNetwork, nameTrigger, shorten, writeCount } from '../../format.ts'
import { createGateway, query, readPages } from '../../gateway.ts'
import { Copyable, ShowMore, Table, Time, Transaction, Usdc } from '../../parts/bits.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { href } from '../../routing.ts'
import { usePolledPages } from '../../usePolledPages.ts'
import { gasPerPayment, type Interval, lengthMs } from './intervals.ts'

const gateway = createGateway()

/** The batches behind one figure: a keeper's, those of a day or week, or all. */
export function BatchesPage({ network, filter: [by, value] }: { network: string; filter: string[] }) {
  const { polled, showMore } = usePolledPages((pages) => {
    const asked = { network, ...asQuery(by, value), limit: 50 }
    return readPages(gateway, 'network/batches', asked, ({ batches }: NetworkBatches) => batches, pages)
  }, `network batches ${network} ${by} ${value}`)
  const of = by === undefined || value === undefined ? '' : describe(by, value)
  return (
    <View
      title="Settled batches"
      polled={polled}
      below={
        <p class="note">
          {nameNetwork(network)}
          {of}. <a href={href('network', network)}>The whole network</a>
        </p>
      }
    >
      {({ rows, hasMore }) =>
        rows.length === 0 ? (
          <Empty title="No batch" />
        ) : (
          <section class="panel">
            <BatchTable batches={rows} network={network} />
            <ShowMore hasMore={hasMore} showMore={showMore} />
          </section>
        )
      }
    </View>
  )
}

function describe(by: string, value: string): string {
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

export function BatchTable({ batches, network }: { batches: NetworkBatches['batches']; network: string }) {
  return (
    <Table
      label="Settled batches"
      rows={batches}
      keyOf={({ batch_id }) => batch_id}
      columns={[
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
          ({ gas_used, payment_count }) => writeCount(gasPerPayment({ gas_used, payments: payment_count })),
          'number',
        ],
        ['Trigger', ({ trigger_type }) => nameTrigger(trigger_type)],
        [
          'Keeper',
          ({ keeper }) => (
            <Copyable text={keeper} link={href('network', network, 'batches', 'keeper', keeper)} />
          ),
        ],
        ['Mined', ({ created_at }) => <Time at={created_at} />],
        ['Transaction', ({ tx_hash }) => <Transaction hash={tx_hash} network={network} />],
      ]}
    />
  )
}
