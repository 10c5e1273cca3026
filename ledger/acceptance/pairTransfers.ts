import type { SignedAuthorization } from '#protocol/payload'
import { settlementItems } from '#protocol/settlement'

/**
 * Finds the platform fees among transfers that come as SPEC.md 4.2 has them: the provider's, then its fee.
 *
 * @param isFee whether an address takes fees; the fee recipient of a batch is one for all of them.
 * @returns for each transfer the position of the one that it's the fee of, or null.
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
