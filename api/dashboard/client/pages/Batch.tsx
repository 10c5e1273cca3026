import type { ProviderPayments, TransactionBatches } from '../answers.ts'
import { nameBatch, nameTrigger, writeCount } from '../format.ts'
import { query, readPages } from '../gateway.ts'
import { Facts, Panel, ShowMore, Time, Transaction, Usdc } from '../parts/bits.tsx'
import { PaymentTable } from '../parts/PaymentTable.tsx'
import { Empty, View } from '../parts/View.tsx'
import { useSession } from '../session.ts'
import { usePolledPages } from '../usePolledPages.ts'

/** A settlement transaction: its batches, and which of the provider's payments it moved. */
export function BatchPage({ network, txHash }: { network: string; txHash: string }) {
  const { gateway, path } = useSession()
  const { polled, showMore } = usePolledPages(async (pages) => {
    const asked = { network, tx_hash: txHash }
    const paymentsOf = ({ payments }: ProviderPayments) => payments
    const [{ batches }, payments] = await Promise.all([
      gateway.get<TransactionBatches>(`settlements/batches${query(asked)}`, pages.signal),
      readPages(gateway, `${path}/payments`, { ...asked, limit: 100 }, paymentsOf, pages),
    ])
    return { batches, ...payments }
  }, `batch ${network} ${txHash}`)
  return (
    <View title="Batch" polled={polled}>
      {({ batches, rows, hasMore }) =>
        batches.length === 0 && rows.length === 0 ? (
          <Empty title="This transaction settled nothing that the index knows">
            <p>A reorg may have dropped it: its payments settle again by themselves.</p>
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
                  'Payments, everybody’s': writeCount(batch.payment_count),
                  'To all providers, USDC': <Usdc decimal={batch.total_usdc} />,
                  Trigger: nameTrigger(batch.trigger_type),
                  'Gas cost, paid by the platform, USDC': <Usdc decimal={batch.gas_cost_usdc} />,
                  Mined: <Time at={batch.created_at} />,
                  Confirmed: batch.confirmed_at === null ? 'not yet' : <Time at={batch.confirmed_at} />,
                }}
              />
            ))}
            <Panel title="Your payments in it">
              {rows.length === 0 ? (
                <p class="note">None of them is yours.</p>
              ) : (
                <PaymentTable payments={rows} label="Payments of the batch" />
              )}
              <ShowMore hasMore={hasMore} showMore={showMore} />
            </Panel>
          </>
        )
      }
    </View>
  )
}
