import { ponder } from 'ponder:registry'
import { batch, batchCounter, batchRecipient, keeper } from 'ponder:schema'
import { type Hex, hexToBigInt } from 'viem'
import { fetchAhead, fetchReceipt } from './fetchReceipt.ts'
import { countPayments, shareOf } from './receipt.ts'
import { addToDay, type Place, recordAuthorizations, setAside } from './record.ts'

ponder.on('BatchSettlement:BatchSettled', async ({ event, context }) => {
  const { db } = context
  const { args, block, log, transaction } = event
  const settlement = lowerCase(log.address)
  const place: Place = {
    chainId: context.chain.id,
    token: lowerCase(args.token),
    txHash: transaction.hash,
    blockNumber: block.number,
    blockHash: block.hash,
    blockTime: block.timestamp,
  }

  // Numbered before it is read: its place among the others doesn't hang on what can be read of it.
  const { batches: sequence } = await db
    .insert(batchCounter)
    .values({ chainId: place.chainId, batches: 1 })
    .onConflictDoUpdate((row) => ({ batches: row.batches + 1 }))

  await fetchAhead(context, block.number, { settlement, token: place.token })
  const found = await fetchReceipt(
    context,
    { ...place, transactionHash: place.txHash },
    { settlement, token: place.token },
  )
  // A receipt without this very event isn't one either.
  if (!found?.reading.batches.includes(log.logIndex)) {
    const detail = `batch ${sequence}: no node had the receipt in block ${place.blockHash}`
    await setAside(db, place, { logIndex: log.logIndex, reason: 'receipt_unavailable', detail })
    return
  }

  const { receipt, reading } = found
  const { entries, unreadable } = shareOf(reading, log.logIndex)
  const settled = entries.filter(
    (entry) => entry.state === 'used' && entry.batchLogIndex === log.logIndex,
  ) as Extract<(typeof entries)[number], { state: 'used' }>[]
  for (const item of unreadable) await setAside(db, place, item)

  let providerTotal = 0n
  let feeTotal = 0n
  const received = new Map<Hex, { paymentCount: number; total: bigint }>()
  for (const { half, recipient, value } of settled) {
    if (half === 'fee') feeTotal += value
    else providerTotal += value
    const sum = received.get(recipient) ?? { paymentCount: 0, total: 0n }
    received.set(recipient, { paymentCount: sum.paymentCount + 1, total: sum.total + value })
  }

  await recordAuthorizations(db, place, entries, received.keys())

  const gasUsed = hexToBigInt(receipt.gasUsed)
  const effectiveGasPrice = hexToBigInt(receipt.effectiveGasPrice)
  const l1Fee = receipt.l1Fee ? hexToBigInt(receipt.l1Fee) : null
  const paymentCount = countPayments(args.outcomes)
  const authorizations = settled.length

  await db.insert(batch).values({
    chainId: place.chainId,
    txHash: place.txHash,
    logIndex: log.logIndex,
    sequence,
    batchId: args.batchId,
    keeper: lowerCase(args.keeper),
    token: place.token,
    trigger: args.trigger,
    authorizations,
    paymentCount,
    providerTotal,
    feeTotal,
    outcomes: args.outcomes,
    blockNumber: place.blockNumber,
    blockHash: place.blockHash,
    blockTime: place.blockTime,
    gasUsed,
    effectiveGasPrice,
    l1Fee,
  })

  if (received.size > 0) {
    await db.insert(batchRecipient).values(
      [...received].map(([recipient, sum]) => ({
        chainId: place.chainId,
        txHash: place.txHash,
        logIndex: log.logIndex,
        recipient,
        sequence,
        ...sum,
        blockNumber: place.blockNumber,
        blockTime: place.blockTime,
      })),
    )
  }

  // The gas is the transaction's: it counts with the first of its batches.
  const gas =
    reading.batches[0] === log.logIndex
      ? { gasUsed, gasCost: gasUsed * effectiveGasPrice + (l1Fee ?? 0n) }
      : { gasUsed: 0n, gasCost: 0n }
  const counts = { batchCount: 1, authorizations, paymentCount }
  await db
    .insert(keeper)
    .values({
      chainId: place.chainId,
      address: lowerCase(args.keeper),
      ...counts,
      ...gas,
      firstBlockTime: place.blockTime,
      lastBlockTime: place.blockTime,
    })
    .onConflictDoUpdate((row) => ({
      batchCount: row.batchCount + 1,
      authorizations: row.authorizations + authorizations,
      paymentCount: row.paymentCount + paymentCount,
      gasUsed: row.gasUsed + gas.gasUsed,
      gasCost: row.gasCost + gas.gasCost,
      lastBlockTime: place.blockTime,
    }))
  await addToDay(db, place, { ...counts, ...gas, providerTotal, feeTotal })
})

function lowerCase(address: Hex): Hex {
  return address.toLowerCase() as Hex
}
