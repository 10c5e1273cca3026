import type { PayerSignatures } from '#chain/payerSignatures'
import type { ServedNetwork } from '#chain/servedNetworks'
import { Refusal } from '../refusal.ts'
import type { Presented } from './checkPayment.ts'
import { isSignedByContract } from './contractSignature.ts'
import type { Payers } from './payers.ts'

export type SignatureCheckOptions = {
  payerSignatures: PayerSignatures
  /** How long a contract wallet may take to answer. */
  contractTimeoutMs: number
}

/**
 * Holds both signatures against the payer: by its contract (ERC-1271) where it has code, else by recovery of its key.
 *
 * @returns whether the payer has code.
 * @throws {Refusal} `invalid_signature`; `dependency_unavailable` where the payer's contract does not answer in time.
 */
export async function checkSignatures(
  { provider, fee }: Presented,
  { served, payers }: { served: ServedNetwork; payers: Payers },
  { payerSignatures, contractTimeoutMs }: SignatureCheckOptions,
): Promise<boolean> {
  const [isFirstSigned, isSecondSigned] = await payerSignatures(served.domainSeparator, [provider, fee])
  const isSigned = isFirstSigned && isSecondSigned
  // Its code comes with its balance, which is asked for only where the payer itself wants something.
  const hasCode = isSigned ? (await payers.allowance(provider.from)).hasCode : undefined
  if (hasCode ?? (await payers.hasCode(provider.from))) {
    const [first, second] = await Promise.all([
      isSignedByContract(served, provider, contractTimeoutMs),
      isSignedByContract(served, fee, contractTimeoutMs),
    ])
    if (!first || !second)
      throw badSignature(first ? 'payloads[1]' : 'payloads[0]', 'its contract says no (ERC-1271)')
    return true
  }
  if (!isSigned) {
    throw badSignature(
      isFirstSigned ? 'payloads[1]' : 'payloads[0]',
      `expected 65 bytes with a low s that recover to ${provider.from} on ${served.network.name}`,
    )
  }
  return false
}

function badSignature(payload: string, reason: string): Refusal {
  return new Refusal('invalid_signature', `Signature of ${payload} is not the payer's: ${reason}`, {
    details: { payload },
  })
}
