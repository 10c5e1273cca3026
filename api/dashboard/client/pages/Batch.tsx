import type { ProviderPayments, TransactionBatches } from '../answers.ts'
import { nameBatch, nameTrigger, writeCount } from '../format.ts'
import { query, readPages } from '../gateway.ts'
import { Fact, ShowMore, Time, Transaction, Usdc } from '../parts/bits.tsx'
import { PaymentTable } from '../parts/PaymentTable.tsx'
import { Empty, View } from '../parts/View.tsx'
import { useSession } from '../session.ts'
import { usePolledPages } from '../usePolledPages.ts'

const pageSize = 100

/** A settlement transaction: its batches, and which of the provider's payments it moved. */
export function BatchPage({ network, txHash }: { network: string; txHash: string }) {
  const { gateway, provider } = useSession()
  const { polled, showMore } = usePolledPages(async (signal, pages) => {
    const asked = { network, tx_hash: txHash }
    const [{ batches }, { rows: payments, hasMore }] = await Promise.all([
      gateway.get<TransactionBatches>(`settlements/batches${query(asked)}`, signal),
      readPages(
        (cursor) =>
          gateway.get<ProviderPayments>(
            `providers/${provider.providerId}/payments${query({ ...asked, limit: pageSize, cursor })}`,
            signal,
          ),
        (page) => page.payments,
        pages,
      ),
    ])
    return { batches, payments, hasMore }
  }, `batch ${network} ${txHash}`)
  return (
    <View title="Batch" polled={polled}>
      {({ batches, payments, hasMore }) =>
        batches.length === 0 && payments.length === 0 ? (
          <Empty title="This transaction settled nothing that the index knows">
            <p>A reorg may have dropped it: its payments settle again by themselves.</p>
          </Empty>
        ) : (
          <>
            {batches.map((batch) => (
              <dl key={batch.batch_id} class="panel facts">
                <Fact title="Batch">{nameBatch(network, batch.batch_id)}</Fact>
                <Fact title="Transaction">
                  <Transaction hash={batch.tx_hash} network={network} />
                </Fact>
                <Fact title="Payments, everybody’s">{writeCount(batch.payment_count)}</Fact>
                <Fact title="To all providers">
                  <Usdc decimal={batch.total_usdc} /> USDC
                </Fact>
                <Fact title="Trigger">{nameTrigger(batch.trigger_type)}</Fact>
                <Fact title="Gas cost, paid by the platform">
                  <Usdc decimal={batch.gas_cost_usdc} /> USDC
                </Fact>
                <Fact title="Mined">
                  <Time at={batch.created_at} />
                </Fact>
                <Fact title="Confirmed">
                  {batch.confirmed_at === null ? 'not yet' : <Time at={batch.confirmed_at} />}
                </Fact>
              </dl>
            ))}
            <section class="panel">
              <h2>Your payments in it</h2>
              {payments.length === 0 ? (
                <p class="note">None of them is yours.</p>
              ) : (
                <PaymentTable payments={payments} label="Payments of the batch" />
              )}
              <ShowMore hasMore={hasMore} showMore={showMore} />
            </section>
          </>
        )
      }
    </View>
  )
}
