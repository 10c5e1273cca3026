import { countThatFit } from '@tollkeeper/chain/gas'
import { type Entry, type GasShare, sumGas } from '@tollkeeper/chain/gasShares'
import { requireStanding } from '@tollkeeper/ledger/acceptance/acceptance'
import type { Candidate } from '@tollkeeper/ledger/acceptance/acceptPayments'
import { refuseWhere } from '@tollkeeper/ledger/acceptance/checkSignatures'
import { checkPresented } from '@tollkeeper/ledger/acceptance/door'
import type { PresentedAgain } from '@tollkeeper/ledger/acceptance/submissions'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { HttpContext, HttpNetwork } from '../context.ts'
import type { StoredTransfers } from './storedTransfers.ts'
import { pairFees, toCandidates, toEntries, toPresentedAgain } from './submissionPayments.ts'

/** Transfers as a caller presented them. */
export type Presentation = {
  network: HttpNetwork
  transfers: readonly SignedAuthorization[]
  stored: StoredTransfers
  /** The provider of the API key that was sent; null: none was. */
  providerId: string | null
}

/** A submission that can be settled, as it is to be stored. */
export type Judged = {
  /** Its new transfers as payments. */
  candidates: Candidate[]
  /** The stored payments that hold its other transfers. */
  known: PresentedAgain[]
  /** The cost of its transaction, if nothing else is in it. */
  cost: GasShare
}

/**
 * Judges a submission: validity, signatures, nonces and balances, of its stored transfers as well as of the new ones.
 *
 * @throws {PresentedRefused|BaseError} for transfers that can't be settled now.
 */
export async function judgeSubmission(
  { now, signatures, platformWallets, platformWallet }: HttpContext,
  { network, transfers, stored, providerId }: Presentation,
): Promise<Judged> {
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
    admit: (hasCode) => requireFit(toEntries(transfers, feeOf), hasCode),
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
    candidates: await requireStanding(candidates, network.payers, presented),
    known,
    cost: sumGas(entries, await network.meter.read()),
  }
}

const triedInVain = 'The keeper has sent it before, and it failed on chain: sign another authorization'

function requireValidNow(transfers: readonly SignedAuthorization[], now: Date): void {
  const seconds = BigInt(Math.floor(now.getTime() / 1000))
  refuseWhere(transfers, ({ validAfter, validBefore }) => {
    if (validAfter >= seconds)
      return {
        code: 'authorization_not_yet_valid',
        detail: `valid after ${validAfter}, and the keeper's clock says ${seconds}: is the payer's clock ahead?`,
      }
    if (validBefore > seconds) return null
    const detail = `valid before ${validBefore}, and the keeper's clock says ${seconds}: is the payer's clock behind?`
    return { code: 'authorization_expired', detail }
  })
}

/** Requires that a submission fits into one transaction, because its answer names one. */
function requireFit(entries: Entry[], hasCode: boolean): void {
  if (countThatFit(entries, hasCode) === entries.length) return
  throw new BaseError('payload_too_large', 'The transfers need more gas than one transaction may have')
}
