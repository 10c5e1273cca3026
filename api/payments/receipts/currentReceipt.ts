import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import type { PaymentRecord } from '../records/payments.ts'
import type { ReceiptKey } from './keys.ts'
import { receiptClaims } from './receiptClaims.ts'
import { signReceipt } from './signReceipt.ts'

export type CurrentReceiptOptions = {
  network: Network
  /** The newest block that the record covers; null: none yet. */
  indexedBlock: number | null
  issuer: string
  /** Unix milliseconds. */
  signedAt: number
  key: ReceiptKey
}

/**
 * Signs the receipt of a payment in its current state. The receipt names the transaction once the transaction has its network's confirmations.
 *
 * @returns null for a payment that didn't come through the gateway's /verify, because we give no receipt for it.
 */
export function currentReceipt(
  payment: PaymentRecord,
  { network, indexedBlock, issuer, signedAt, key }: CurrentReceiptOptions,
): string | null {
  const { providerId, endpointId, splitter } = sellerOf(payment)
  if (providerId === null || endpointId === null) return null
  const isConfirmed = (blockNumber: bigint | null) =>
    blockNumber !== null && Number(blockNumber) + network.confirmations <= (indexedBlock ?? -1)
  const { state, txHash, blockHash, blockNumber } = payment.provider
  const isSettled = state === 'settled' && txHash !== null && blockHash !== null && isConfirmed(blockNumber)
  const refunds = payment.refunds
    .filter(({ status }) => status !== 'failed')
    .map(({ number, from, value, nonce, txHash, blockNumber }) => ({
      number,
      from,
      value: value.toString(),
      nonce,
      transactionHash: (isConfirmed(blockNumber) && txHash) || zeroHash,
    }))
  const claims = receiptClaims(
    { ...payment, providerId, endpointId, splitter, network, acceptedAt: payment.acceptedAt.getTime() },
    {
      issuer,
      signedAt,
      status: payment.status,
      refunds,
      ...(isSettled && { settlement: { transactionHash: txHash, blockHash } }),
    },
  )
  return signReceipt(claims, key)
}

/**
 * Returns the seller for a receipt. A whole tab may pay many sellers, so the tab's id replaces provider and endpoint. If a fee is split
 * off, the tab's contract replaces the splitter.
 */
function sellerOf({
  source,
  providerId,
  endpointId,
  splitter,
  resource,
  feeAmount,
  provider,
}: PaymentRecord) {
  if (source !== 'tab') return { providerId, endpointId, splitter }
  return { providerId: resource, endpointId: resource, splitter: feeAmount > 0n ? provider.recipient : null }
}
