import type { PayerState } from '@tollkeeper/chain/chainReads'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { Address } from 'viem'
import { newId } from '../store/identifiers.ts'
import type { Candidate } from './acceptPayments.ts'
import { type CheckOptions, checkSignatures, type PresentedFailure, refuse } from './checkSignatures.ts'

// The one door for signed money. A source brings its terms: a macaroon, a seller's requirements, a refund, a submission.
// After that all sources share the steps: signatures and nonces here, standing and uniqueness in acceptance.ts, and the row.

/** A payment's authorizations: the provider's, then the platform's; or one for both. */
export type Presented = readonly [SignedAuthorization, SignedAuthorization?]

/** An authorization, with what the payer's key, its contract and the chain say of it. */
export type Checked = SignedAuthorization & {
  hasCode: boolean
  /** What the chain said of the payer, if it was asked. */
  state: PayerState | undefined
  /** The block at which an unbound nonce was unused; null for a bound one. */
  acceptedBlock: bigint | null
}

/**
 * Checks signatures and nonces.
 *
 * @param isBound for each authorization, whether its nonce belongs to this payment alone. Default: no nonce does.
 * @param countPayer called once the signatures are good; throws when the payer has reached its limit.
 * @throws {BaseError} `authorization_used`; and as {@link checkSignatures}.
 */
export async function checkPresented<const T extends readonly SignedAuthorization[] | Presented>(
  presented: T,
  network: Parameters<typeof checkSignatures>[1],
  {
    isBound = [],
    countPayer,
    ...options
  }: CheckOptions & { isBound?: readonly boolean[]; countPayer?: (payer: Address) => void },
): Promise<{ [K in keyof T]: Checked }> {
  const all = presented as readonly SignedAuthorization[]
  const checks = await checkSignatures(all, network, options)
  if (all[0]) countPayer?.(all[0].from)
  const used = checks.flatMap(({ isUsed }, index): PresentedFailure[] =>
    isUsed ? [{ index, code: 'authorization_used', detail: 'its nonce was used or cancelled on chain' }] : [],
  )
  refuse(used, { nonce: all[used[0]?.index ?? 0]?.nonce })
  return all.map((one, index) => {
    const { hasCode, state } = checks[index] as (typeof checks)[number]
    return { ...one, hasCode, state, acceptedBlock: isBound[index] ? null : (state?.blockNumber ?? null) }
  }) as { [K in keyof T]: Checked }
}

/** What a source says of a payment, without what was signed. Times in Unix milliseconds. */
export type Terms = Omit<Candidate, 'id' | 'payer' | 'payerHasCode' | 'authorizations' | 'limit'> & {
  /** Default: a new one. */
  id?: string
}

/** A payment of these terms by these authorizations: the provider's, then the platform's; or one for both. */
export function toCandidate(terms: Terms, [first, second]: readonly [Checked, Checked?]): Candidate {
  return {
    id: newId('pay'),
    ...terms,
    payer: first.from,
    payerHasCode: first.hasCode,
    authorizations: second ? [toAccepted(first), toAccepted(second)] : [toAccepted(first)],
    limit: null,
  }
}

function toAccepted({ to, value, validAfter, validBefore, nonce, signature, acceptedBlock }: Checked) {
  return { recipient: to, value, validAfter, validBefore, nonce, signature, acceptedBlock }
}
