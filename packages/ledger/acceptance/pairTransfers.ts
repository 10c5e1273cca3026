import { settlementItems } from '@tollkeeper/sdk/protocol/batchSettlement'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'

/**
 * Finds the platform fees in a list of transfers, where each fee follows the provider's transfer that it belongs to (conformance 4.2-4).
 *
 * @param isFee returns whether an address receives fees; a batch has one fee recipient.
 * @returns for each transfer, the position of the transfer whose fee it is, or null.
 */
export function pairTransfers(
  transfers: readonly SignedAuthorization[],
  isFee: (address: string) => boolean,
): (number | null)[] {
  const feeRecipient = transfers.find((transfer, index) => index > 0 && isFee(transfer.to))?.to
  const feeOf: (number | null)[] = transfers.map(() => null)
  if (feeRecipient === undefined) return feeOf
  for (let index = 1; index < transfers.length; index++) {
    const [provider, fee] = [transfers[index - 1], transfers[index]]
    if (!provider || !fee || feeOf[index - 1] !== null || isFee(provider.to)) continue
    if (settlementItems(provider, fee, feeRecipient).length === 1) feeOf[index] = index - 1
  }
  return feeOf
}
