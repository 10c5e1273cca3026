import payments from '../../test/vectors/payments.json' with { type: 'json' }
import { encodeAuthorizationHeader } from '../src/protocol/authorizationHeader.ts'
import { encodePaymentHeader } from '../src/protocol/x402.ts'

// A payment from the test vectors, in each header that can contain one, and a seller in mock mode.

const [signed] = payments.payments
export const payload = signed?.authorization.payload ?? ''
const [from, to, value, validAfter, validBefore, nonce, signature] = payload.split(',')
/** The payment in x402's form. */
export const x402Payload = {
  signature,
  authorization: { from, to, value, validAfter, validBefore, nonce },
}
/** The provider's payload and the platform's payload. */
export const payloads: [string, string] = [payload, signed?.fee?.payload ?? '']
export const authorization = encodeAuthorizationHeader({ macaroon: 'AgEA', payloads })
const accepted = { scheme: 'exact', network: 'eip155:8453', extra: { macaroon: 'AgEA' } }
export const paymentSignature = encodePaymentHeader({ x402Version: 2, accepted, payload: x402Payload })
export const xPayment = encodePaymentHeader({
  x402Version: 1,
  scheme: 'exact',
  network: 'base',
  payload: x402Payload,
})

export const sellerOptions = {
  gatewayUrl: 'https://gateway.example',
  providerId: `prov_${'1'.repeat(32)}`,
  pricing: { usdcPerUnit: '0.05' },
}
export const mockOptions = { ...sellerOptions, mockPayments: true }
export const mockPaid = { headers: { authorization: 'x402 mock:mock' } }
