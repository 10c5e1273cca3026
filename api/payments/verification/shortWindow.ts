import { type Entry, sumGas } from '@tollkeeper/chain/gasShares'
import type { GasDraw } from '@tollkeeper/ledger/acceptance/acceptPayments'
import type { GatewaySettings } from '../../http/settings.ts'
import type { VerifyNetwork } from './paymentTerms.ts'

/** How long a payment must be valid to wait for others that share its transaction. Seconds. */
export const patientSeconds = 1_800

/**
 * What a payment with a short window reserves for gas when it is accepted: what its fee lacks for a transaction of its own, from its
 * provider's grant or the common allowance. Keys are free, so otherwise a stranger who pays itself could have one transaction after
 * another at the operator's cost, each with one payment.
 *
 * @param fee the platform's part, base units.
 * @param validForSeconds how long it is still valid.
 * @returns undefined if it can wait, or its fee carries its gas.
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
