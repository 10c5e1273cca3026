import type { Address } from 'viem'
import type { PayerState } from '#chain/chainReads'
import { BaseError } from '#protocol/errors'
import type { SignedAuthorization } from '#protocol/payload'
import { newId } from '../store/identifiers.ts'
import type { AcceptedAuthorization, Candidate } from './acceptPayments.ts'
import { checkSignatures, type SignatureCheckOptions } from './checkSignatures.ts'

// The one door for signed money. A source brings its terms: a macaroon, a seller's requirements, a refund, a submission.
// From then on all go the same way: signatures and nonces here, standing and uniqueness in acceptance.ts, and the row.

/** The authorizations of one payment: one a part, the provider's first, or one for both. */
export type Presented = readonly [SignedAuthorization, SignedAuthorization?]

/** What the payer's key, its contract and the chain say of what was presented. */
export type Checked = {
  hasCode: boolean
  /** What the chain said of the payer, where it was asked. */
  state: PayerState | undefined
  /** For each authorization the block at which an unbound nonce was unused; null for a bound one. */
  acceptedBlocks: (bigint | null)[]
}

/**
 * Holds signatures against the payer, and nonces against the chain.
 *
 * @param isBound for each authorization, whether its nonce can stand for no other payment. Default: none's can.
 * @param asksNonces whether the chain is asked about them.
 * @param countPayer called once the signatures are good; throws over the payer's limit.
 * @throws {BaseError} `invalid_signature`, `authorization_used`; `dependency_unavailable` where the payer's contract does
 *   not answer in time.
 */
export async function checkPresented(
  presented: Presented,
  network: Parameters<typeof checkSignatures>[1],
  {
    isBound = [],
    countPayer,
    ...options
  }: SignatureCheckOptions & {
    isBound?: readonly boolean[]
    asksNonces: boolean
    countPayer?: (payer: Address) => void
  },
): Promise<Checked> {
  const { hasCode, state } = await checkSignatures(presented, network, options)
  countPayer?.(presented[0].from)
  const acceptedBlocks = presented.map((one, half) => {
    if (state?.isUsed[half]) {
      const payload = `payloads[${half}]`
      throw new BaseError('authorization_used', `The nonce of ${payload} was used or cancelled on chain`, {
        details: { payload, nonce: one?.nonce },
      })
    }
    return isBound[half] ? null : (state?.blockNumber ?? null)
  })
  return { hasCode, state, acceptedBlocks }
}

/** What a source says of a payment, whatever was signed for it. Times in Unix milliseconds. */
export type Terms = Omit<Candidate, 'id' | 'payer' | 'payerHasCode' | 'authorizations' | 'limit'> & {
  /** Default: a new one. */
  id?: string
}

/** A payment of these terms, for what was presented. */
export function toCandidate(
  terms: Terms,
  [first, second]: Presented,
  { hasCode, acceptedBlocks }: Pick<Checked, 'hasCode' | 'acceptedBlocks'>,
): Candidate {
  const provider = toAccepted(first, acceptedBlocks[0])
  return {
    id: newId('pay'),
    ...terms,
    payer: first.from,
    payerHasCode: hasCode,
    authorizations: second ? [provider, toAccepted(second, acceptedBlocks[1])] : [provider],
    limit: null,
  }
}

function toAccepted(
  { to, value, validAfter, validBefore, nonce, signature }: SignedAuthorization,
  acceptedBlock: bigint | null = null,
): AcceptedAuthorization {
  return { recipient: to, value, validAfter, validBefore, nonce, signature, acceptedBlock }
}
