import { useMemo } from 'preact/hooks'
import { parseUsdc } from '#protocol/amount'
import type { Batch, Batches } from '../answers.ts'
import { nameBatch, nameTrigger, writeCount, writeTime } from '../format.ts'
import { query, readPages } from '../gateway.ts'
import { ShowMore, Table, Time, Transaction, Usdc } from '../parts/bits.tsx'
import { Plot } from '../parts/Plot.tsx'
import { Empty, View } from '../parts/View.tsx'
import { href } from '../routing.ts'
import { useSession } from '../session.ts'
import { usePolledPages } from '../usePolledPages.ts'

const pageSize = 50

export function BatchesPage() {
  const { gateway, provider } = useSession()
  const { polled, showMore } = usePolledPages((signal, pages) => {
    const path = `providers/${provider.providerId}/batches`
    return readPages(
      (cursor) => gateway.get<Batches>(`${path}${query({ limit: pageSize, cursor })}`, signal),
      ({ batches }) => batches,
      pages,
    )
  }, 'batches')
  return (
    <View title="Batches" polled={polled}>
      {({ rows: batches, hasMore }) =>
        batches.length === 0 ? (
          <Empty title="No batch yet">
            <p>
              Payments settle together, in one transaction, once a trigger fires.{' '}
              <a href={href('queue')}>See the queue</a>
            </p>
          </Empty>
        ) : (
          <>
            <section class="panel">
              <h2>Gas per payment</h2>
              <GasPlot batches={batches} />
            </section>
            <section class="panel">
              <h2>Settled together</h2>
              <BatchTable batches={batches} />
              <ShowMore hasMore={hasMore} showMore={showMore} />
            </section>
          </>
        )
      }
    </View>
  )
}

function gasPerPayment({ gas_used, batch_payment_count }: Batch): bigint {
  return batch_payment_count === 0 ? 0n : BigInt(gas_used) / BigInt(batch_payment_count)
}

function GasPlot({ batches }: { batches: Batch[] }) {
  const { shown, times, series } = useMemo(() => {
    const ordered = batches.filter(({ batch_payment_count }) => batch_payment_count > 0).reverse()
    return {
      shown: ordered,
      times: ordered.map(({ created_at }) => Date.parse(created_at) / 1000),
      series: [
        {
          title: 'Gas per payment',
          color: '--accent',
          values: ordered.map((batch) => Number(gasPerPayment(batch))),
        },
      ],
    }
  }, [batches])
  return (
    <Plot
      label="Gas per payment of each batch over time, as points."
      times={times}
      series={series}
      shape="points"
      writeValue={(value) => value.toLocaleString('en')}
      readout={(index) => {
        const batch = shown[index]
        if (!batch) return null
        return (
          <>
            {writeTime(batch.created_at)}: <b>{writeCount(gasPerPayment(batch))}</b> gas each,{' '}
            {writeCount(batch.batch_payment_count)} in the batch
          </>
        )
      }}
      table={
        <Table
          label="Gas per payment"
          head={[['Mined'], ['Payments in the batch', true], ['Gas', true], ['Gas per payment', true]]}
        >
          {shown.toReversed().map((batch) => (
            <tr key={`${batch.network} ${batch.batch_id}`}>
              <td>
                <Time at={batch.created_at} />
              </td>
              <td class="right number">{writeCount(batch.batch_payment_count)}</td>
              <td class="right number">{writeCount(BigInt(batch.gas_used))}</td>
              <td class="right number">{writeCount(gasPerPayment(batch))}</td>
            </tr>
          ))}
        </Table>
      }
    />
  )
}

function BatchTable({ batches }: { batches: Batch[] }) {
  return (
    <Table
      label="Batches"
      head={[
        ['Batch'],
        ['Your payments', true],
        ['You got, USDC', true],
        ['Trigger'],
        ['Gas cost, USDC', true],
        ['Mined'],
        ['Confirmed'],
        ['Transaction'],
      ]}
    >
      {batches.map((batch) => (
        <tr key={`${batch.network} ${batch.batch_id}`}>
          <td>
            <a href={href('batches', batch.network, batch.tx_hash)}>
              {nameBatch(batch.network, batch.batch_id)}
            </a>
          </td>
          <td class="right number">
            {writeCount(batch.payment_count)}
            {batch.batch_payment_count !== batch.payment_count && (
              <span class="note"> of {writeCount(batch.batch_payment_count)}</span>
            )}
          </td>
          <td class="right">
            <Usdc decimal={batch.total_usdc} />
          </td>
          <td>{nameTrigger(batch.trigger_type)}</td>
          <td class="right number">
            {parseUsdc(batch.gas_cost_usdc) === 0n ? '< 0.000001' : <Usdc decimal={batch.gas_cost_usdc} />}
          </td>
          <td>
            <Time at={batch.created_at} />
          </td>
          <td>
            {batch.confirmed_at === null ? (
              <span class="note">not yet</span>
            ) : (
              <Time at={batch.confirmed_at} distance />
            )}
          </td>
          <td>
            <Transaction hash={batch.tx_hash} network={batch.network} />
          </td>
        </tr>
      ))}
    </Table>
  )
}
