import type { NetworkName } from '../protocol/networks.ts'
import type { TabPayload } from '../protocol/tab.ts'
import { pathOfPayment, settlesUntil } from './errors.ts'
import type { PaymentHeader, SignedPayment } from './signedPayment.ts'

/**
 * A signed payment as JSON, as a {@link PaymentStore} keeps it. It contains no key. Anyone who reads it can settle the payment to its payee, and can
 * get the response that it bought.
 */
export type SavedPayment = {
  /** Lower-case letters, digits, `_` and `-`. Unique for each payment. */
  id: string
  /** SHA-256, in hex, of the payer, the network, the gateway and the paid request without its body. */
  request: string
  /** SHA-256, in hex, of the request's body. */
  body: string
  /** Expiry in Unix seconds. The payment can't settle afterwards and needn't be kept. */
  settlesUntil: number
  payment: {
    requestId: string
    network: string
    /** USDC base units, decimal. */
    amount: string
    payloads: string[]
    macaroon?: string
    tab?: TabPayload
    header?: PaymentHeader
  }
}

/**
 * Keeps signed payments with an unknown outcome, even after the process has ended. The client saves a payment before it sends it, and removes it when
 * the response is complete. If a restarted client repeats the request, it therefore presents the same payment and doesn't sign another one.
 *
 * Only one client at a time may use a store.
 */
export type PaymentStore = {
  /** Returns all payments that were saved and not removed. The client calls it once, before the first request. */
  load: () => Promise<readonly SavedPayment[]>
  /** Saves a payment, and replaces an earlier one with the same `id`. */
  save: (payment: SavedPayment) => Promise<void>
  /** Removes a payment; does nothing if there is none with this `id`. */
  remove: (id: string) => Promise<void>
}

/** The wallet and gateway whose payments a client keeps. */
export type PaymentScope = { payer: string; network: NetworkName; gatewayUrl: string }

/** Returns a payment in the form that a store keeps. */
export function toSaved(
  payment: SignedPayment,
  { request, body }: Pick<SavedPayment, 'request' | 'body'>,
): SavedPayment {
  const { amount, requestId, network, payloads, macaroon, tab, header } = payment
  return {
    id: idOf(payment),
    request,
    body,
    settlesUntil: settlesUntil(payment),
    payment: {
      requestId,
      network,
      amount: amount.toString(),
      payloads,
      ...(macaroon !== undefined && { macaroon }),
      ...(tab && { tab }),
      ...(header && { header }),
    },
  }
}

/** Returns a stored payment in the form that a client presents. */
export function fromSaved({ payment }: SavedPayment): SignedPayment {
  return { ...payment, amount: BigInt(payment.amount) } as unknown as SignedPayment
}

/** Returns an id that is unique for each payment: payer and nonce, or tab and number. */
export function idOf(payment: SignedPayment): string {
  return pathOfPayment(payment as Parameters<typeof pathOfPayment>[0])
    .toLowerCase()
    .replaceAll(/[^a-z0-9_-]/g, '-')
}
