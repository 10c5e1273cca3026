import { type Entry, sumGas } from '@tollkeeper/chain/gasShares'
import type { GasDraw } from '@tollkeeper/ledger/acceptance/acceptPayments'
import type { GatewaySettings } from '../../http/settings.ts'
import type { VerifyNetwork } from './paymentTerms.ts'

/** Minimum validity in seconds with which a payment can wait for other payments to settle with it in one transaction. */
export const patientSeconds = 1_800

/**
 * Returns what a payment with a short validity reserves for gas when it is accepted: the part of a separate transaction's cost that the payment's
 * fee doesn't cover. The provider's grant or the common allowance pays it. Keys are free, so otherwise a stranger that pays itself could cause one
 * transaction after another at the operator's cost, each with one payment.
 *
 * @param fee the platform's part, base units.
 * @param validForSeconds remaining validity.
 * @returns undefined if the payment can wait, or its fee covers its gas.
 */
export async function gasOfShortWindow(
  { meter, gasPerFee }: VerifyNetwork,
  { gasAllowance: common }: Pick<GatewaySettings, 'gasAllowance'>,
  {
    entry,
    fee,
    providerId,
    validForSeconds,
  }: { entry: Entry; fee: bigint; providerId: string; validForSeconds: number },
): Promise<GasDraw | undefined> {
  if (validForSeconds >= patientSeconds || (gasPerFee === 0n && fee > 0n)) return undefined
  const { expected, most } = sumGas([entry], await meter.read())
  return expected <= fee ? undefined : { providerId, amount: most - fee, common }
}
