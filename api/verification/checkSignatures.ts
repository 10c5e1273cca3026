import type { PayerSignatures } from '#chain/payerSignatures'
import type { ServedNetwork } from '#chain/servedNetworks'
import { Refusal } from '../refusal.ts'
import type { ChainReads, PayerState } from './chainReads.ts'
import type { Presented } from './checkPayment.ts'
import { isSignedByContract } from './contractSignature.ts'
import type { Payers } from './payers.ts'

export type SignatureCheckOptions = {
  payerSignatures: PayerSignatures
  /** How long a contract wallet may take to answer. */
  contractTimeoutMs: number
}

export type SignatureCheck = {
  /** Whether the payer has code. */
  hasCode: boolean
  /** What the chain says of the nonces; undefined where that was not asked for. */
  nonces: PayerState | undefined
}

/**
 * Holds both signatures against the payer: by its contract (ERC-1271) where it has code, else by recovery of its key.
 *
 * @param asksNonces whether to look up the nonces as well, in the call that reads the payer's account.
 * @throws {Refusal} `invalid_signature`; `dependency_unavailable` where the payer's contract does not answer in time.
 */
export async function checkSignatures(
  { provider, fee }: Presented,
  { served, reads, payers }: { served: ServedNetwork; reads: ChainReads; payers: Payers },
  { payerSignatures, contractTimeoutMs, asksNonces }: SignatureCheckOptions & { asksNonces: boolean },
): Promise<SignatureCheck> {
  const payer = provider.from
  const [isFirstSigned, isSecondSigned] = await payerSignatures(served.domainSeparator, [provider, fee])
  const isSigned = isFirstSigned && isSecondSigned
  const readNonces = () =>
    asksNonces ? reads.read({ payer, nonces: [provider.nonce, fee.nonce] }) : undefined
  // Balance and code are asked for only where the payer itself wants something.
  const [allowance, nonces] = isSigned ? await Promise.all([payers.allowance(payer), readNonces()]) : []
  if (allowance?.hasCode ?? (await payers.hasCode(payer))) {
    const [first, second] = await Promise.all([
      isSignedByContract(served, provider, contractTimeoutMs),
      isSignedByContract(served, fee, contractTimeoutMs),
    ])
    if (!first || !second)
      throw badSignature(first ? 'payloads[1]' : 'payloads[0]', 'its contract says no (ERC-1271)')
    return { hasCode: true, nonces: nonces ?? (await readNonces()) }
  }
  if (!isSigned) {
    throw badSignature(
      isFirstSigned ? 'payloads[1]' : 'payloads[0]',
      `expected 65 bytes with a low s that recover to ${payer} on ${served.network.name}`,
    )
  }
  return { hasCode: false, nonces }
}

function badSignature(payload: string, reason: string): Refusal {
  return new Refusal('invalid_signature', `Signature of ${payload} is not the payer's: ${reason}`, {
    details: { payload },
  })
}
