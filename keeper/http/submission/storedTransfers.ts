import { type KnownAuthorization, nameOf, takenElsewhere } from '@tollkeeper/ledger/acceptance/submissions'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'

/** For each transfer of a submission, the stored payment that holds it; undefined if the transfer is new. */
export type StoredTransfers = readonly (KnownAuthorization | undefined)[]

/**
 * Requires that, according to the record, the stored transfers of a submission can settle as a part of it. The chain may still refuse them.
 *
 * @returns for each transfer the payment that holds it
 * @throws {BaseError} `payment_voided`; `payment_replayed` if a nonce was accepted with other terms, or settles elsewhere
 */
export function requireSettleable(
  transfers: readonly SignedAuthorization[],
  known: ReadonlyMap<string, KnownAuthorization>,
): StoredTransfers {
  const stored = toStored(transfers, known)
  for (const [index, transfer] of transfers.entries()) {
    const payment = stored[index]
    const fault = payment && faultOf(payment, transfer, partnerOf(stored, index) === null)
    if (!fault) continue
    const details = { transfer: index, paymentId: payment.paymentId }
    throw new BaseError(fault.code, fault.message, { details })
  }
  return stored
}

/** Returns the known payment of each transfer, in the order of the transfers. */
export function toStored(
  transfers: readonly SignedAuthorization[],
  known: ReadonlyMap<string, KnownAuthorization>,
): StoredTransfers {
  return transfers.map((transfer) => known.get(nameOf(transfer)))
}

type Fault = { code: 'payment_voided' | 'payment_replayed'; message?: string }

function faultOf(payment: KnownAuthorization, transfer: SignedAuthorization, isAlone: boolean): Fault | null {
  if (payment.ended === 'voided') return { code: 'payment_voided' }
  if (payment.isReserved) return { code: 'payment_replayed' }
  if (!hasSameTerms(payment, transfer))
    return {
      code: 'payment_replayed',
      message: 'This nonce was accepted with other terms: sign the transfer with a new nonce',
    }
  if (payment.isTaken) return { code: 'payment_replayed', message: takenElsewhere }
  if (payment.isPair && isAlone && isFresh(payment))
    return {
      code: 'payment_replayed',
      message: 'This transfer was accepted together with its fee: submit both, or sign it with a new nonce',
    }
  return null
}

function hasSameTerms(payment: KnownAuthorization, transfer: SignedAuthorization): boolean {
  return (
    payment.recipient === transfer.to &&
    payment.value === transfer.value &&
    payment.validAfter === transfer.validAfter &&
    payment.validBefore === transfer.validBefore
  )
}

/** Returns the position of the other transfer of the same payment, or null if it isn't in the submission. */
export function partnerOf(stored: StoredTransfers, index: number): number | null {
  const paymentId = stored[index]?.paymentId
  const partner = stored.findIndex((one, other) => other !== index && one?.paymentId === paymentId)
  return paymentId === undefined || partner < 0 ? null : partner
}

/** Whether a transfer was never accepted, or was accepted only as part of a submission that failed. */
export function isFresh(payment: KnownAuthorization | undefined): boolean {
  return payment === undefined || (payment.isSubmission && payment.ended === 'failed')
}

/** Returns the payments of a submission if each of its transfers is stored and is either in progress or settled. Otherwise returns null. */
export function idsUnderWay(stored: StoredTransfers): string[] | null {
  const isUnderWay = stored.every(
    (one) => one !== undefined && !one.isReleased && (one.ended !== 'failed' || one.isOut),
  )
  return isUnderWay ? idsOf(stored) : null
}

/** Returns the ids of the payments that hold transfers, without duplicates. */
export function idsOf(stored: StoredTransfers): string[] {
  return [...new Set(stored.flatMap((one) => one?.paymentId ?? []))]
}
