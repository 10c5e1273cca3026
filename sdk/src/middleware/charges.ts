import { formatUsdc } from '../protocol/amount.ts'
import { type GatewayCall, type GatewayClientOptions, postToGateway } from './gatewayClient.ts'
import type { VerifiedPayment } from './verification.ts'
import type { Warnings } from './warnings.ts'

/** The fields by which the gateway knows a payment. */
export type Chargeable = Pick<VerifiedPayment, 'paymentId' | 'tab'>

/** A payment by the word of the gateway, or of mock mode; the gate adds how it is charged. */
export type Accepted = Omit<VerifiedPayment, 'charge'>

/**
 * What became of a charge, or of a void:
 *
 * - `done`: with the receipt of the new charge; null if the gateway gave none
 * - `refused`: it stays at the price
 * - `unknown`: no answer came, so the gateway may have changed the charge or not
 */
export type Charged =
  | { outcome: 'done'; receipt: string | null }
  | { outcome: 'refused' }
  | { outcome: 'unknown' }

/** Charges this much of an accepted payment, in base units. */
export type Charge = (payment: Accepted, amount: bigint) => Promise<Charged>

/** Charges after the handler: less than the price for a request on a tab, or nothing. */
export function createCharges(
  gateway: GatewayClientOptions,
  { mockPayments, warnings }: { mockPayments: boolean; warnings: Pick<Warnings, 'explain' | 'tell'> },
) {
  async function send(call: GatewayCall, what: string): Promise<Charged> {
    if (!gateway.apiKey) {
      warnings.tell('no_api_key')
      return { outcome: 'refused' }
    }
    const answer = await postToGateway(gateway, call)
    if (answer === undefined) return { outcome: 'unknown' }
    if (answer.status < 200 || answer.status >= 300) {
      warnings.explain(answer, what)
      return { outcome: isFinal(answer.status) ? 'refused' : 'unknown' }
    }
    const { receipt } = (answer.body ?? {}) as { receipt?: unknown }
    return { outcome: 'done', receipt: typeof receipt === 'string' ? receipt : null }
  }

  /** Charges this much of a request on a tab. */
  async function charge({ tab }: Chargeable, amount: bigint): Promise<Charged> {
    if (!tab) return { outcome: 'refused' }
    const path = `/tabs/${encodeURIComponent(tab.id)}/requests/${tab.sequence}/charge`
    return send({ path, body: { amount: formatUsdc(amount) } }, 'charging a tab')
  }

  async function voidPayment(payment: Chargeable): Promise<Charged> {
    if (mockPayments) return { outcome: 'done', receipt: null }
    if (payment.tab) return charge(payment, 0n)
    const path = `/payments/${encodeURIComponent(payment.paymentId)}/void`
    return send({ path, body: {} }, 'voiding a payment')
  }

  return { charge, voidPayment }
}

/** Whether a refusal stays. Behind a 5xx, the gateway may have done what it was asked. */
function isFinal(status: number): boolean {
  return status < 500 && status !== 408 && status !== 429
}
