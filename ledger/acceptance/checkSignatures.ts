import type { ChainReads, PayerState } from '#chain/chainReads'
import { isSignedByContract } from '#chain/contractSignature'
import type { PayerSignatures } from '#chain/payerSignatures'
import type { ServedNetwork } from '#chain/servedNetworks'
import { BaseError } from '#protocol/errors'
import type { SignedAuthorization } from '#protocol/payload'
import type { Payers } from './payers.ts'

export type SignatureCheckOptions = {
  payerSignatures: PayerSignatures
  /** How long a contract wallet may take to answer. */
  contractTimeoutMs: number
}

export type SignatureCheck = {
  /** Whether the payer has code. */
  hasCode: boolean
  /** What the chain says of the payer and these nonces; undefined where that was not asked for. */
  state: PayerState | undefined
}

/**
 * Holds the signatures of one payer's authorizations against it: by its contract (ERC-1271) where it has code, else by
 * recovery of its key.
 *
 * @param asksNonces whether to look up the nonces as well, in the call that reads the payer's account.
 * @throws {BaseError} `invalid_signature`; `dependency_unavailable` where the payer's contract does not answer in time.
 */
export async function checkSignatures(
  authorizations: readonly [SignedAuthorization, SignedAuthorization?],
  { served, reads, payers }: { served: ServedNetwork; reads: ChainReads; payers: Payers },
  { payerSignatures, contractTimeoutMs, asksNonces }: SignatureCheckOptions & { asksNonces: boolean },
): Promise<SignatureCheck> {
  const [{ from: payer, nonce }, second] = authorizations
  const all = authorizations.filter((one) => one !== undefined)
  const unsigned = (await payerSignatures(served.domainSeparator, all)).indexOf(false)
  const isSigned = unsigned < 0
  const readState = () =>
    asksNonces ? reads.read({ payer, nonces: second ? [nonce, second.nonce] : [nonce] }) : undefined
  // Balance and code are asked for only where the payer itself wants something.
  const state = isSigned ? await readState() : undefined
  const known = state ?? (isSigned ? await payers.allowance(payer) : undefined)
  if (known?.hasCode ?? (await payers.hasCode(payer))) {
    const answers = await Promise.all(all.map((one) => isSignedByContract(served, one, contractTimeoutMs)))
    if (answers.includes(false)) throw badSignature(answers.indexOf(false), 'its contract says no (ERC-1271)')
    return { hasCode: true, state: state ?? (await readState()) }
  }
  if (!isSigned) {
    const expected = `expected 65 bytes with a low s that recover to ${payer} on ${served.network.name}`
    throw badSignature(unsigned, expected)
  }
  return { hasCode: false, state }
}

function badSignature(index: number, reason: string): BaseError {
  const payload = `payloads[${index}]`
  return new BaseError('invalid_signature', `Signature of ${payload} is not the payer's: ${reason}`, {
    details: { payload },
  })
}
