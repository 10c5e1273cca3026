import { formatUsdc } from '../protocol/amount.ts'
import {
  type GatewayAnswer,
  type GatewayCall,
  type GatewayClientOptions,
  postToGateway,
} from './gatewayClient.ts'
import type { VerifiedPayment } from './verification.ts'
import type { Warnings } from './warnings.ts'

/** What names a payment to the gateway. */
export type Chargeable = Pick<VerifiedPayment, 'paymentId' | 'tab'>

/** What the gateway, or mock mode, says of a payment; the gate adds how it is charged. */
export type Accepted = Omit<VerifiedPayment, 'charge'>

/**
 * Charges so much of an accepted payment, in base units.
 *
 * @returns the receipt of what is charged then; null: the gateway gave none; undefined: it stays at the price.
 */
export type Charge = (payment: Accepted, amount: bigint) => Promise<string | null | undefined>

/** What is charged after the handler: less than the price of a request on a tab, or nothing. */
export function createCharges(
  gateway: GatewayClientOptions,
  { mockPayments, warnings }: { mockPayments: boolean; warnings: Pick<Warnings, 'explain' | 'tell'> },
) {
  /** @returns the answer; undefined where it isn't done. */
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

  /** Charges so much of a request on a tab. */
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
