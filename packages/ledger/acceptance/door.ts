import type { PayerState } from '@tollkeeper/chain/chainReads'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { Address } from 'viem'
import { newId } from '../store/identifiers.ts'
import type { Candidate } from './acceptPayments.ts'
import { type CheckOptions, checkSignatures, type PresentedFailure, refuse } from './checkSignatures.ts'

// All signed payments enter here. Their terms come from a macaroon, a seller's requirements, a refund, or a submission. The following steps are the
// same for all sources: this module checks signatures and nonces, acceptance.ts checks that the payer may pay and that the payment is new, and then
// the payment is stored.

/** A payment's authorizations: the provider's and then the platform's, or one authorization that contains both parts. */
export type Presented = readonly [SignedAuthorization, SignedAuthorization?]

/** An authorization whose signature is valid, with what the checks found out about its payer and nonce. */
export type Checked = SignedAuthorization & {
  hasCode: boolean
  /** The chain's state of the payer, if it was read. */
  state: PayerState | undefined
  /**
   * The block at which the nonce was found to be unused. Null if the nonce is bound to its challenge: no other payment can use it, so the block
   * doesn't matter.
   */
  acceptedBlock: bigint | null
}

/** Checks whether the providers' hooks allow the payers of signed authorizations to pay. @throws {BaseError} as `Hooks.require`. */
export type Screen = (presented: readonly SignedAuthorization[]) => Promise<void>

/**
 * Checks signatures and nonces.
 *
 * @param isBound for each authorization, whether its nonce can belong only to this payment. Default: false for all.
 * @param screen asks the hooks of the paid providers once the signatures are valid, and throws if they refuse. Null if these authorizations
 * buy nothing new. It has no default, so that every caller decides explicitly.
 * @param countPayer called once the signatures are valid; throws if the payer has reached its limit.
 * @throws {BaseError} `authorization_used`; and as {@link checkSignatures}.
 */
export async function checkPresented<const T extends readonly SignedAuthorization[] | Presented>(
  presented: T,
  network: Parameters<typeof checkSignatures>[1],
  {
    isBound = [],
    countPayer,
    screen,
    ...options
  }: CheckOptions & {
    isBound?: readonly boolean[]
    countPayer?: (payer: Address) => void
    screen: Screen | null
  },
): Promise<{ [K in keyof T]: Checked }> {
  const all = presented as readonly SignedAuthorization[]
  const checks = await checkSignatures(all, network, options)
  if (all[0]) countPayer?.(all[0].from)
  const used = checks.flatMap(({ isUsed }, index): PresentedFailure[] =>
    isUsed ? [{ index, code: 'authorization_used', detail: 'its nonce was used or cancelled on chain' }] : [],
  )
  refuse(used, { nonce: all[used[0]?.index ?? 0]?.nonce })
  await screen?.(all)
  return all.map((one, index) => {
    const { hasCode, state } = checks[index] as (typeof checks)[number]
    return { ...one, hasCode, state, acceptedBlock: isBound[index] ? null : (state?.blockNumber ?? null) }
  }) as { [K in keyof T]: Checked }
}

/** A source's terms of a payment, without the signed authorizations. Times are in Unix milliseconds. */
export type Terms = Omit<Candidate, 'id' | 'payer' | 'payerHasCode' | 'authorizations' | 'limit'> & {
  /** Default: a new id. */
  id?: string
}

/** Creates the candidate payment from its terms and authorizations: the provider's and then the platform's, or one for both parts. */
export function toCandidate(terms: Terms, [first, second]: readonly [Checked, Checked?]): Candidate {
  return {
    ...terms,
    id: terms.id ?? newId('pay'),
    payer: first.from,
    payerHasCode: first.hasCode,
    authorizations: second ? [toAccepted(first), toAccepted(second)] : [toAccepted(first)],
    limit: null,
  }
}

function toAccepted({ to, value, validAfter, validBefore, nonce, signature, acceptedBlock }: Checked) {
  return { recipient: to, value, validAfter, validBefore, nonce, signature, acceptedBlock }
}
