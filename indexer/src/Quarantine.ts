import { ponder } from 'ponder:registry'
import { missingReceipt, quarantine } from 'ponder:schema'
import { and, eq, sql } from 'ponder'
import { addressesOf } from './addresses.ts'
import { fetchBlockLogs } from './fetchBlockLogs.ts'
import { fetchReceipt } from './fetchReceipt.ts'
import { recordBatch, recordTransfer } from './record.ts'

const atOnce = 10

// A receipt that no node had when its event came is fetched again every few blocks, until one has it. For Ponder, what is read
// then belongs to the current block: a reorg that takes this block also puts the row back. The first receipt that is
// still missing ends the turn, so that missing ones cost one call every few blocks.
ponder.on('Quarantine:block', async ({ context }) => {
  const { db, chain } = context
  if (!(await db.find(missingReceipt, { chainId: chain.id }))) return
  const rows = await db.sql
    .select()
    .from(quarantine)
    .where(and(eq(quarantine.chainId, chain.id), eq(quarantine.reason, 'receipt_unavailable')))
    .orderBy(sql`random()`) // a receipt that stays away for good must not keep the others waiting
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
    await db.delete(quarantine, { chainId, txHash, logIndex, reason })
  }
})
