import { type AuthorizationHeader, parseAuthorizationHeader } from '../protocol/authorizationHeader.ts'
import { ProtocolError } from '../protocol/errors.ts'
import type { NetworkName } from '../protocol/networks.ts'
import type { TabPayload } from '../protocol/tab.ts'
import { parsePaymentHeader } from '../protocol/x402.ts'

type Value = string | null | undefined

export type PaymentHeaders = {
  authorization?: Value
  /** `PAYMENT-SIGNATURE` of x402 v2. */
  paymentSignature?: Value
  /** `X-PAYMENT` of x402 v1. */
  xPayment?: Value
}

/** A request's payment. Nothing in it is verified. */
export type PresentedPayment =
  | Exclude<AuthorizationHeader, { kind: 'payment' }>
  | {
      kind: 'payment'
      macaroon: string | undefined
      payloads: [string, string?]
      /** From a header of x402: its version, and the network that it is paid on. */
      x402?: { version: 1 | 2; network: NetworkName }
    }
  | { kind: 'tab'; macaroon: string | undefined; tab: TabPayload; network: NetworkName }

/**
 * Reads the payment of a request from the one header that has it.
 *
 * @throws {ProtocolError} `invalid_authorization_header`, `invalid_payload`, `unknown_network`
 */
export function readPayment({ authorization, paymentSignature, xPayment }: PaymentHeaders): PresentedPayment {
  const header = parseAuthorizationHeader(authorization)
  const [value, another] = [paymentSignature, xPayment].filter((one) => typeof one === 'string')
  if (value === undefined) return header
  // Two readers that each take one of two payments would not agree on what was paid.
  if (another !== undefined || header.kind !== 'absent') {
    throw new ProtocolError('invalid_payload', 'A request carries one payment, in one header')
  }
  const payment = parsePaymentHeader(value)
  const { x402Version, network, macaroon } = payment
  if (payment.scheme === 'tab') return { kind: 'tab', macaroon, tab: payment.tab, network }
  return { kind: 'payment', macaroon, payloads: [payment.payload], x402: { version: x402Version, network } }
}
