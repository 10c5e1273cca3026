import { ponder } from 'ponder:registry'
import { addressesOf } from './addresses.ts'
import { fetchBlockLogs } from './fetchBlockLogs.ts'
import { fetchReceipt, isFetched } from './fetchReceipt.ts'
import { recordTransfer, setAside } from './record.ts'

let lastBlock: string | undefined

// Handles transfers to a platform wallet. Most of them are fees in batches, which BatchSettlement.ts reads. This handler finds the fees of payments
// that a stranger sent to USDC directly or through another contract.
ponder.on('Usdc:Transfer', async ({ event, context }) => {
  const { db } = context
  const { block, log, transaction } = event
  const addresses = addressesOf(context)
  const place = {
    chainId: context.chain.id,
    txHash: transaction.hash,
    blockNumber: block.number,
    blockHash: block.hash,
    blockTime: block.timestamp,
  }

  // A call of `settle` is most likely a batch, whose receipt is needed anyway. But anyone can make many such calls with another token, so only the
  // first such call in a block fetches its receipt. The remaining calls are read from the block's logs.
  const isFirst = lastBlock !== block.hash
  lastBlock = block.hash
  const to = transaction.to?.toLowerCase()
  const isSettle = to === addresses.settlement || to === addresses.tabSettlement
  const reading =
    isSettle && (isFirst || isFetched(context, place))
      ? (await fetchReceipt(context, place, addresses))?.reading
      : (await fetchBlockLogs(context, block.hash, log.logIndex, addresses))?.get(place.txHash)
  if (reading) {
    await recordTransfer(db, place, addresses.token, log.logIndex, reading)
  } else {
    const detail = 'transfer to the platform: no node had the logs of its transaction'
    await setAside(db, place, { logIndex: log.logIndex, reason: 'receipt_unavailable', detail })
  }
})
