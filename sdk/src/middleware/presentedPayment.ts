import {
  type AuthorizationHeader,
  mockAuthorizationHeader,
  parseAuthorizationHeader,
} from '../protocol/authorizationHeader.ts'
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

/** A request's payment. Its contents are unverified. */
export type PresentedPayment =
  | Exclude<AuthorizationHeader, { kind: 'payment' }>
  | {
      kind: 'payment'
      macaroon: string | undefined
      payloads: [string, string?]
      /** If the payment is in a header of x402: the version, and the network of the payment. */
      x402?: { version: 1 | 2; network: NetworkName }
    }
  | { kind: 'tab'; macaroon: string | undefined; tab: TabPayload; network: NetworkName }

/**
 * Reads the payment of a request. Only one header may contain a payment.
 *
 * @throws {ProtocolError} `invalid_authorization_header`, `invalid_payload`, `unknown_network`
 */
export function readPayment({ authorization, paymentSignature, xPayment }: PaymentHeaders): PresentedPayment {
  const header = parseAuthorizationHeader(authorization)
  const [value, another] = [paymentSignature, xPayment].filter((one) => typeof one === 'string')
  if (value === undefined) return header
  // Reject a request with two payments: two components could each read a different one.
  if (another !== undefined || header.kind !== 'absent') {
    throw new ProtocolError('invalid_payload', 'A request must have one payment, in one header')
  }
  // Mock mode may be combined with a login, which uses the `Authorization` header.
  if (value === mockAuthorizationHeader) return { kind: 'mock' }
  const payment = parsePaymentHeader(value)
  const { x402Version, network, macaroon } = payment
  if (payment.scheme === 'tab') return { kind: 'tab', macaroon, tab: payment.tab, network }
  return { kind: 'payment', macaroon, payloads: [payment.payload], x402: { version: x402Version, network } }
}
