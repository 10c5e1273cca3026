import { countThatFit, gasCutOf } from '@tollkeeper/chain/gas'
import { type Entry, type GasShare, sumGas } from '@tollkeeper/chain/gasShares'
import { requirePayersInGoodStanding } from '@tollkeeper/ledger/acceptance/acceptance'
import type { Candidate } from '@tollkeeper/ledger/acceptance/acceptPayments'
import { refuseWhere } from '@tollkeeper/ledger/acceptance/checkSignatures'
import { checkPresented } from '@tollkeeper/ledger/acceptance/door'
import type { PresentedAgain } from '@tollkeeper/ledger/acceptance/submissions'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { HttpContext, HttpNetwork } from '../context.ts'
import { screenPayments } from '../screenPayments.ts'
import { isFresh, type StoredTransfers } from './storedTransfers.ts'
import { pairFees, toCandidates, toEntries, toPresentedAgain } from './submissionPayments.ts'

/** Transfers as a caller presented them. */
export type Presentation = {
  network: HttpNetwork
  transfers: readonly SignedAuthorization[]
  stored: StoredTransfers
  /** The provider whose API key the request contained; null for a request without a key. */
  providerId: string | null
}

/** A submission that can be settled, in the form in which it is stored. */
export type Judged = {
  /** The submission's new transfers, as payments. */
  candidates: Candidate[]
  /** The stored payments that contain the transfers which aren't new. */
  known: PresentedAgain[]
  /** The cost of a transaction that contains only this submission. */
  cost: GasShare
}

/**
 * Judges a submission: checks the validity, signatures, nonces and balances of its new and of its stored transfers.
 *
 * @throws {PresentedRefused|BaseError} for transfers that can't be settled now.
 */
export async function judgeSubmission(
  context: HttpContext,
  { network, transfers, stored, providerId }: Presentation,
): Promise<Judged> {
  const { now, signatures, platformWallets, platformWallet } = context
  requireValidNow(transfers, now())
  refuseWhere(transfers, (_, index) =>
    stored[index]?.isTriedInVain ? { code: 'settlement_failed', detail: triedInVain } : null,
  )
  const feeOf = pairFees(transfers, stored, platformWallets)
  const presented = await checkPresented(transfers, network, {
    ...signatures,
    asksNonces: true,
    asksPayees: true,
    mayHaveCode: providerId !== null,
    screen: screenPayments(context, network, {
      // The hook of the API key's provider isn't asked about the payments, because here the key only decides who pays the gas.
      providerId: null,
      source: 'submission',
      resource: '',
      isNew: (index) => isFresh(stored[index]),
    }),
    admit: (hasCode) => requireFit(toEntries(transfers, feeOf), hasCode, gasCutOf(network.served.network)),
  })
  const {
    token,
    network: { chainId },
  } = network.served
  const candidates = toCandidates(
    presented,
    { stored, feeOf },
    { chainId, token, platformWallet, now: now() },
  )
  const known = toPresentedAgain(presented, stored)
  const entries = toEntries(presented, feeOf)
  return {
    candidates: await requirePayersInGoodStanding(candidates, network.payers, presented),
    known,
    cost: sumGas(entries, await network.meter.read()),
  }
}

const triedInVain =
  'The keeper has sent this transfer before, and it failed on chain: sign a new authorization'

function requireValidNow(transfers: readonly SignedAuthorization[], now: Date): void {
  const seconds = BigInt(Math.floor(now.getTime() / 1000))
  refuseWhere(transfers, ({ validAfter, validBefore }) => {
    if (validAfter >= seconds)
      return {
        code: 'authorization_not_yet_valid',
        detail: `valid after ${validAfter}, but the keeper's time is ${seconds}: check whether the payer's clock is ahead`,
      }
    if (validBefore > seconds) return null
    const detail = `valid before ${validBefore}, but the keeper's time is ${seconds}: check whether the payer's clock is behind`
    return { code: 'authorization_expired', detail }
  })
}

/** Requires that a submission fits into one transaction, because the answer to `POST /submit` names only one. */
function requireFit(entries: Entry[], hasCode: boolean, gasCut: bigint): void {
  if (countThatFit(entries, hasCode, gasCut) === entries.length) return
  throw new BaseError(
    'payload_too_large',
    'The transfers need more gas than one transaction may have: submit fewer transfers at once',
  )
}
