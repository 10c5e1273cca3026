import { ponder } from 'ponder:registry'
import { authorization, platformTransfer } from 'ponder:schema'
import type { Hex } from 'viem'
import { fetchReceipt } from './fetchReceipt.ts'
import { type Place, recordAuthorizations, setAside } from './record.ts'

// Fees that reach a platform wallet. Most do so in batches, which BatchSettlement.ts reads; this finds the payments
// that a stranger sent straight to USDC, or through a contract of his own.
ponder.on('Usdc:Transfer', async ({ event, context }) => {
  const { db } = context
  const { args, block, log, transaction } = event
  const place: Place = {
    chainId: context.chain.id,
    token: lowerCase(log.address),
    txHash: transaction.hash,
    blockNumber: block.number,
    blockHash: block.hash,
    blockTime: block.timestamp,
  }
  // Ponder brings each log once: no need to look whether it's there, which live costs a query each.
  await db.insert(platformTransfer).values({
    ...place,
    logIndex: log.logIndex,
    sender: lowerCase(args.from),
    recipient: lowerCase(args.to),
    value: args.value,
  })

  const { address } = context.contracts.BatchSettlement
  if (address === undefined) throw new Error(`BatchSettlement has no address on ${context.chain.name}`)
  const found = await fetchReceipt(
    context,
    { ...place, transactionHash: place.txHash },
    { settlement: lowerCase(address), token: place.token },
  )
  if (found === null) {
    const detail = `transfer to the platform: no node had the receipt in block ${place.blockHash}`
    await setAside(db, place, { logIndex: log.logIndex, reason: 'receipt_unavailable', detail })
    return
  }
  const { entries, unreadable, batches } = found.reading
  if (batches.length > 0) return // they record all of it
  const own = entries.find((entry) => entry.state === 'used' && entry.logIndex === log.logIndex - 1)
  if (own === undefined) return // an ordinary transfer

  // The provider's half stands in the same transaction if the same stranger sent both, so all of it is recorded.
  // Where a transaction holds many fees, the first of them has done so.
  const { chainId, token } = place
  const isRecorded = await db.find(authorization, {
    chainId,
    token,
    authorizer: own.authorizer,
    nonce: own.nonce,
  })
  if (isRecorded) return
  await recordAuthorizations(db, place, entries)
  for (const item of unreadable) await setAside(db, place, item)
})

function lowerCase(address: Hex): Hex {
  return address.toLowerCase() as Hex
}
