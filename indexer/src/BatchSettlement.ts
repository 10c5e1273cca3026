import { ponder } from 'ponder:registry'
import { batchCounter } from 'ponder:schema'
import { addressesOf } from './addresses.ts'
import { fetchAhead, fetchReceipt } from './fetchReceipt.ts'
import { recordBatch, setAside } from './record.ts'

ponder.on('BatchSettlement:BatchSettled', async ({ event, context }) => {
  const { db } = context
  const { block, log, transaction } = event
  const { logIndex } = log
  const addresses = addressesOf(context)
  const place = {
    chainId: context.chain.id,
    txHash: transaction.hash,
    blockNumber: block.number,
    blockHash: block.hash,
    blockTime: block.timestamp,
  }

  // The batch gets its number before its receipt is read, so that a receipt that can't be read doesn't change any batch's number.
  const { batches: sequence } = await db
    .insert(batchCounter)
    .values({ chainId: place.chainId, batches: 1 })
    .onConflictDoUpdate((row) => ({ batches: row.batches + 1 }))

  await fetchAhead(context, { ...place, logIndex }, addresses)
  const found = await fetchReceipt(context, place, addresses)
  // A receipt without this event counts as missing as well.
  if (found?.reading.batches.includes(logIndex)) {
    await recordBatch(db, place, logIndex, sequence, found)
  } else {
    const detail = `batch ${sequence}: no node had the receipt`
    await setAside(db, place, { logIndex, reason: 'receipt_unavailable', detail, sequence })
  }
})
