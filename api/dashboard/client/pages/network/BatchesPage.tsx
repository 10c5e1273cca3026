import type { NetworkBatches } from '../../answers.ts'
import { nameNetwork, nameTrigger, shorten, writeCount } from '../../format.ts'
import { createGateway, query, readPages } from '../../gateway.ts'
import { Copyable, ShowMore, Table, Time, Transaction, Usdc } from '../../parts/bits.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { href } from '../../routing.ts'
import { usePolledPages } from '../../usePolledPages.ts'
import { gasPerPayment, type Interval, lengthMs } from './intervals.ts'

const gateway = createGateway()
const pageSize = 50

/** The batches behind one figure: a keeper's, those of a day or week, or all. */
export function BatchesPage({ network, filter: [by, value] }: { network: string; filter: string[] }) {
  const { polled, showMore } = usePolledPages(
    (signal, pages) =>
      readPages(
        (cursor) =>
          gateway.get<NetworkBatches>(
            `network/batches${query({ network, ...asQuery(by, value), limit: pageSize, cursor })}`,
            signal,
          ),
        ({ batches }) => batches,
        pages,
      ),
    `network batches ${network} ${by} ${value}`,
  )
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
      isStacked
      head={[
        ['Batch'],
        ['Payments', true],
        ['Moved, USDC', true],
        ['Gas per payment', true],
        ['Trigger'],
        ['Keeper'],
        ['Mined'],
        ['Transaction'],
      ]}
    >
      {batches.map((batch) => (
        <tr key={batch.batch_id}>
          <td>
            <a href={`../settlements/batches${query({ network, tx_hash: batch.tx_hash })}`}>
              #{batch.batch_id}
            </a>
          </td>
          <td class="right number" data-title="Payments">
            {writeCount(batch.payment_count)}
          </td>
          <td class="right" data-title="Moved, USDC">
            <Usdc decimal={batch.total_usdc} />
          </td>
          <td class="right number" data-title="Gas per payment">
            {writeCount(gasPerPayment({ gas_used: batch.gas_used, payments: batch.payment_count }))}
          </td>
          <td data-title="Trigger">{nameTrigger(batch.trigger_type)}</td>
          <td data-title="Keeper">
            <Copyable
              text={batch.keeper}
              link={href('network', network, 'batches', 'keeper', batch.keeper)}
            />
          </td>
          <td data-title="Mined">
            <Time at={batch.created_at} />
          </td>
          <td data-title="Transaction">
            <Transaction hash={batch.tx_hash} network={network} />
          </td>
        </tr>
      ))}
    </Table>
  )
}
