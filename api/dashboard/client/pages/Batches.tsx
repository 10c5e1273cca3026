import { useMemo } from 'preact/hooks'
import { parseUsdc } from '#protocol/amount'
import type { Batch, Batches } from '../answers.ts'
import { nameBatch, nameTrigger, writeCount, writeTime } from '../format.ts'
import { readPages } from '../gateway.ts'
import { type Column, Panel, ShowMore, Table, Time, Transaction, Usdc } from '../parts/bits.tsx'
import { Plot } from '../parts/Plot.tsx'
import { Empty, View } from '../parts/View.tsx'
import { href } from '../routing.ts'
import { useSession } from '../session.ts'
import { usePolledPages } from '../usePolledPages.ts'

export function BatchesPage() {
  const { gateway, path } = useSession()
  const { polled, showMore } = usePolledPages((asked) => {
    const batchesOf = ({ batches }: Batches) => batches
    return readPages(gateway, `${path}/batches`, { limit: 50 }, batchesOf, asked)
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
            <Panel title="Gas per payment">
              <GasPlot batches={batches} />
            </Panel>
            <Panel title="Settled together">
              <Table label="Batches" columns={columns} rows={batches} keyOf={keyOf} />
              <ShowMore hasMore={hasMore} showMore={showMore} />
            </Panel>
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
  const shown = useMemo(
    () => batches.filter(({ batch_payment_count }) => batch_payment_count > 0).reverse(),
    [batches],
  )
  return (
    <Plot
      label="Gas per payment of each batch over time, as points."
      points={shown}
      timeOf={({ created_at }) => Date.parse(created_at)}
      series={[{ title: 'Gas per payment', color: '--accent', of: (batch) => Number(gasPerPayment(batch)) }]}
      shape="points"
      writeValue={(value) => value.toLocaleString('en')}
      readout={(batch) => (
        <>
          {writeTime(batch.created_at)}: <b>{writeCount(gasPerPayment(batch))}</b> gas each,{' '}
          {writeCount(batch.batch_payment_count)} in the batch
        </>
      )}
      table={<Table label="Gas per payment" columns={gasColumns} rows={shown.toReversed()} keyOf={keyOf} />}
    />
  )
}

const keyOf = ({ network, batch_id }: Batch) => `${network} ${batch_id}`

const gasColumns: Column<Batch>[] = [
  ['Mined', ({ created_at }) => <Time at={created_at} />],
  ['Payments in the batch', ({ batch_payment_count }) => writeCount(batch_payment_count), 'number'],
  ['Gas', ({ gas_used }) => writeCount(BigInt(gas_used)), 'number'],
  ['Gas per payment', (batch) => writeCount(gasPerPayment(batch)), 'number'],
]

const columns: Column<Batch>[] = [
  [
    'Batch',
    ({ network, batch_id, tx_hash }) => (
      <a href={href('batches', network, tx_hash)}>{nameBatch(network, batch_id)}</a>
    ),
  ],
  [
    'Your payments',
    ({ payment_count, batch_payment_count }) => (
      <>
        {writeCount(payment_count)}
        {batch_payment_count !== payment_count && (
          <span class="note"> of {writeCount(batch_payment_count)}</span>
        )}
      </>
    ),
    'number',
  ],
  ['You got, USDC', ({ total_usdc }) => <Usdc decimal={total_usdc} />, 'number'],
  ['Trigger', ({ trigger_type }) => nameTrigger(trigger_type)],
  [
    'Gas cost, USDC',
    ({ gas_cost_usdc }) =>
      parseUsdc(gas_cost_usdc) === 0n ? '< 0.000001' : <Usdc decimal={gas_cost_usdc} />,
    'number',
  ],
  ['Mined', ({ created_at }) => <Time at={created_at} />],
  [
    'Confirmed',
    ({ confirmed_at }) =>
      confirmed_at === null ? <span class="note">not yet</span> : <Time at={confirmed_at} distance />,
  ],
  ['Transaction', ({ tx_hash, network }) => <Transaction hash={tx_hash} network={network} />],
]
