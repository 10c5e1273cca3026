import { type Entry, sumGas } from '#chain/gasShares'
import type { GasDraw } from '#ledger/acceptance/acceptPayments'
import type { GatewaySettings } from '../../http/settings.ts'
import type { VerifyNetwork } from './paymentTerms.ts'

/** A payment that runs out sooner can't wait for others that share a transaction with it. Seconds. */
export const patientSeconds = 1_800

/**
 * What is reserved for the gas of a payment with a short window, when it is accepted: what its fee lacks of a transaction of its own, of
 * its provider's grant or the common allowance. Keys are free: a stranger who pays itself could else have one transaction after
 * another at the operator's cost, each with one payment in it.
 *
 * @param fee what the platform gets of it, base units.
 * @param validForSeconds how long it is still valid.
 * @returns undefined: it can wait, or its fee carries its gas.
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
