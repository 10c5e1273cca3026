import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { useMemo } from 'preact/hooks'
import { nameBatch, nameTrigger, writeCount, writeTime } from '../display/format.ts'
import { href } from '../display/routing.ts'
import type { Batch, ProviderPayment, TransactionBatches } from '../gateway/answers.ts'
import { type Pages, query } from '../gateway/gateway.ts'
import { useSession } from '../gateway/session.ts'
import { finalMs, usePolledPages, usualMs } from '../gateway/usePolled.ts'
import { Plot } from '../parts/Plot.tsx'
import { payments } from '../parts/payments.tsx'
import { type Column, Table } from '../parts/Table.tsx'
import { Facts, Panel, Time, Transaction, Usdc } from '../parts/ui.tsx'
import { Empty, View } from '../parts/View.tsx'

export function BatchesPage() {
  const { gateway, path } = useSession()
  const polled = usePolledPages(
    (asked) => gateway.list<Batch>(`${path}/batches`, { limit: 50 }, asked),
    'batches',
  )
  return (
    <View
      title="Batches"
      polled={polled}
      none={
        <Empty title="No batch yet">
          Payments settle together, in one transaction, once a trigger fires.{' '}
          <a href={href('payouts', 'queue')}>See the queue</a>
        </Empty>
      }
    >
      {({ rows, more }) => (
        <>
          <Panel title="Gas per payment">
            <GasPlot batches={rows} />
          </Panel>
          <Panel title="Settled together">
            <Table label="Batches" columns={batchColumns} rows={rows} keyOf={keyOf} more={more} />
          </Panel>
        </>
      )}
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
      title="Gas per payment"
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
      rows={shown.toReversed()}
      columns={gasColumns}
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

/** The columns of a table of batches. */
export const batchColumns: Column<Batch>[] = [
  [
    'Batch',
    ({ network, batch_id, tx_hash }) => (
      <a href={href('payouts', 'batches', network, tx_hash)}>{nameBatch(network, batch_id)}</a>
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
    'second',
  ],
  ['Net, USDC', ({ total_usdc }) => <Usdc decimal={total_usdc} />, 'number'],
  ['Trigger', ({ trigger_type }) => nameTrigger(trigger_type)],
  [
    'Gas cost, USDC',
    ({ gas_cost_usdc: cost }) => (parseUsdc(cost) === 0n ? '< 0.000001' : <Usdc decimal={cost} />),
    'number',
  ],
  ['Mined', ({ created_at }) => <Time at={created_at} />],
  ['Confirmed', ({ confirmed_at }) => <Time at={confirmed_at} distance none={notYet} />],
  ['Transaction', ({ tx_hash, network }) => <Transaction hash={tx_hash} network={network} />],
]

const notYet = <span class="note">not yet</span>

/** Shows a settlement transaction: its batches, and which of the provider's payments it moved. */
export function BatchPage({ network, txHash }: { network: string; txHash: string }) {
  const { gateway, path } = useSession()
  const read = async (pages: Required<Pages>) => {
    const asked = { network, tx_hash: txHash }
    const [{ batches }, own] = await Promise.all([
      gateway.get<TransactionBatches>(`settlements/batches${query(asked)}`, pages.signal),
      gateway.list<ProviderPayment>(`${path}/payments`, { ...asked, limit: 100 }, pages),
    ])
    return { batches, ...own }
  }
  const polled = usePolledPages(read, `batch ${network} ${txHash}`, ({ batches }) =>
    batches.length > 0 && batches.every(({ confirmed_at }) => confirmed_at !== null) ? finalMs : usualMs,
  )
  return (
    <View title="Batch" polled={polled}>
      {({ batches, rows, more }) =>
        batches.length + rows.length === 0 ? (
          <Empty title="No settlement found in this transaction">
            Check that the link has the whole transaction hash. If a reorg dropped the transaction, its
            payments settle again automatically.
          </Empty>
        ) : (
          <>
            {batches.map((batch) => (
              <Facts
                key={batch.batch_id}
                isPanel
                of={{
                  Batch: nameBatch(network, batch.batch_id),
                  Transaction: <Transaction hash={batch.tx_hash} network={network} />,
                  'Payments of all providers': writeCount(batch.payment_count),
                  'To all providers, USDC': <Usdc decimal={batch.total_usdc} />,
                  Trigger: nameTrigger(batch.trigger_type),
                  'Gas cost, paid by the platform, USDC': <Usdc decimal={batch.gas_cost_usdc} />,
                  Mined: <Time at={batch.created_at} />,
                  Confirmed: <Time at={batch.confirmed_at} none="not yet" />,
                }}
              />
            ))}
            <Panel title="Your payments in it">
              <Table
                label="Payments of the batch"
                rows={rows}
                none="None of these payments is yours."
                more={more}
                {...payments}
              />
            </Panel>
          </>
        )
      }
    </View>
  )
}
