import { formatUsdc } from '../protocol/amount.ts'
import { type GatewayCall, type GatewayClientOptions, postToGateway } from './gatewayClient.ts'
import type { VerifiedPayment } from './verification.ts'
import type { Warnings } from './warnings.ts'

/** The fields by which the gateway identifies a payment. */
export type Chargeable = Pick<VerifiedPayment, 'paymentId' | 'tab'>

/** A payment as reported by the gateway or by mock mode. The gate adds `charge`. */
export type Accepted = Omit<VerifiedPayment, 'charge'>

/**
 * The outcome of a charge or a void:
 *
 * - `done`: the charge has changed. `receipt`: the receipt of the new charge, or null if the gateway returned none
 * - `refused`: the charge has not changed, so the full price is charged
 * - `unknown`: no definite response arrived, so the charge may have changed
 */
export type Charged =
  | { outcome: 'done'; receipt: string | null }
  | { outcome: 'refused' }
  | { outcome: 'unknown' }

/** Sets the charge of an accepted payment to this amount, in base units. */
export type Charge = (payment: Accepted, amount: bigint) => Promise<Charged>

/**
 * Creates functions that reduce the charge after the handler has run. On a tab, the charge can be any amount below the price. A single payment can
 * only be voided.
 */
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

  /** Sets the charge of a request on a tab to this amount. */
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

/** Returns whether a rejection is final. After a 5xx, the gateway may still have executed the request. */
function isFinal(status: number): boolean {
  return status < 500 && status !== 408 && status !== 429
}
