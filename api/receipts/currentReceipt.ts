import type { Network } from '#protocol/networks'
import type { PaymentRecord } from '../portal/queries/payments.ts'
import type { ReceiptKey } from './keys.ts'
import { receiptClaims } from './receiptClaims.ts'
import { signReceipt } from './signReceipt.ts'

export type CurrentReceiptOptions = {
  network: Network
  /** The last block that the index holds. */
  indexedBlock: bigint
  issuer: string
  /** Unix milliseconds. */
  signedAt: number
  key: ReceiptKey
}

/**
 * Signs the receipt of a payment as it stands. It names the transaction once that has its network's confirmations.
 *
 * @returns null for a payment that came through the facilitator, which has no receipt of ours.
 */
export function currentReceipt(
  payment: PaymentRecord,
  { network, indexedBlock, issuer, signedAt, key }: CurrentReceiptOptions,
): string | null {
  const { providerId, endpointId } = payment
  if (providerId === null || endpointId === null) return null
  const { state, txHash, blockHash, blockNumber } = payment.provider
  const isConfirmed =
    state === 'settled' && blockNumber !== null && blockNumber + BigInt(network.confirmations) <= indexedBlock
  const claims = receiptClaims(
    { ...payment, providerId, endpointId, network, acceptedAt: payment.acceptedAt.getTime() },
    {
      issuer,
      signedAt,
      status: payment.status,
      ...(isConfirmed &&
        txHash !== null &&
        blockHash !== null && { settlement: { transactionHash: txHash, blockHash } }),
    },
  )
  return signReceipt(claims, key)
}
