import { ponder } from 'ponder:registry'
import { indexGap, missingReceipt } from 'ponder:schema'
import { and, eq, sql } from 'ponder'
import { addressesOf } from './addresses.ts'
import { fetchBlockLogs } from './fetchBlockLogs.ts'
import { fetchReceipt } from './fetchReceipt.ts'
import { recordBatch, recordTransfer } from './record.ts'

const atOnce = 10

// Fills index gaps. If no node had a receipt when its event came, this handler fetches the receipt again every few blocks until a node has it. Ponder
// attributes the data to the block in which the handler ran. A reorg that drops this block also restores the row of the gap. The handler stops at the
// first receipt that is still missing, so that missing receipts cost only one call every few blocks.
ponder.on('IndexGap:block', async ({ context }) => {
  const { db, chain } = context
  if (!(await db.find(missingReceipt, { chainId: chain.id }))) return
  const rows = await db.sql
    .select()
    .from(indexGap)
    .where(and(eq(indexGap.chainId, chain.id), eq(indexGap.reason, 'receipt_unavailable')))
    .orderBy(sql`random()`) // so that a receipt that never appears doesn't block the others
    .limit(atOnce)
  if (rows.length === 0) await db.delete(missingReceipt, { chainId: chain.id })
  const addresses = addressesOf(context)
  for (const { sequence, logIndex, reason, detail: _, ...place } of rows) {
    const { chainId, txHash, blockHash } = place
    if (sequence === null) {
      const block = await fetchBlockLogs(context, blockHash, logIndex, addresses, { isPatient: false })
      const reading = block?.get(txHash)
      if (!reading) return
      await recordTransfer(db, place, addresses.token, logIndex, reading)
    } else {
      const found = await fetchReceipt(context, place, addresses, { isPatient: false })
      if (!found?.reading.batches.includes(logIndex)) return
      await recordBatch(db, place, logIndex, sequence, found)
    }
    await db.delete(indexGap, { chainId, txHash, logIndex, reason })
  }
})
