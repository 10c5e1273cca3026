import { formatUsdc } from '../protocol/amount.ts'
import {
  type GatewayAnswer,
  type GatewayCall,
  type GatewayClientOptions,
  postToGateway,
} from './gatewayClient.ts'
import type { VerifiedPayment } from './verification.ts'
import type { Warnings } from './warnings.ts'

/** The fields by which the gateway knows a payment. */
export type Chargeable = Pick<VerifiedPayment, 'paymentId' | 'tab'>

/** A payment by the word of the gateway, or of mock mode; the gate adds how it is charged. */
export type Accepted = Omit<VerifiedPayment, 'charge'>

/**
 * Charges this much of an accepted payment, in base units.
 *
 * @returns the receipt of the new charge; null: the gateway gave none; undefined: it stays at the price.
 */
export type Charge = (payment: Accepted, amount: bigint) => Promise<string | null | undefined>

/** Charges after the handler: less than the price for a request on a tab, or nothing. */
export function createCharges(
  gateway: GatewayClientOptions,
  { mockPayments, warnings }: { mockPayments: boolean; warnings: Pick<Warnings, 'explain' | 'tell'> },
) {
  /** @returns the answer; undefined if it isn't done. */
  async function send(call: GatewayCall, what: string): Promise<GatewayAnswer | undefined> {
    if (!gateway.apiKey) {
      warnings.tell('no_api_key')
      return undefined
    }
    const answer = await postToGateway(gateway, call)
    if (answer === undefined || (answer.status >= 200 && answer.status < 300)) return answer
    warnings.explain(answer, what)
    return undefined
  }

  /** Charges this much of a request on a tab. */
  async function charge({ tab }: Chargeable, amount: bigint): Promise<string | null | undefined> {
    if (!tab) return undefined
    const path = `/tabs/${encodeURIComponent(tab.id)}/requests/${tab.sequence}/charge`
    const answer = await send({ path, body: { amount: formatUsdc(amount) } }, 'charging a tab')
    const { receipt } = (answer?.body ?? {}) as { receipt?: unknown }
    return answer && (typeof receipt === 'string' ? receipt : null)
  }

  async function voidPayment(payment: Chargeable): Promise<boolean> {
    if (mockPayments) return true
    if (payment.tab) return (await charge(payment, 0n)) !== undefined
    const path = `/payments/${encodeURIComponent(payment.paymentId)}/void`
    return (await send({ path, body: {} }, 'voiding a payment')) !== undefined
  }

  return { charge, voidPayment }
}
