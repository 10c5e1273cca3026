import { zeroAddress } from 'viem'
import { encodeBase64url, encodeUtf8 } from '../protocol/bytes.ts'
import { type Challenge, createChallenge, maxTimeoutSeconds } from '../protocol/challenge.ts'
import { networks } from '../protocol/networks.ts'
import { type ReceiptClaims, zeroHash } from '../protocol/receipt.ts'
import { effectiveRate, type Split } from '../protocol/tier.ts'
import type { Accepted } from './charges.ts'

/*
 * Mock mode (conformance 4.5): challenges and receipts have the usual form, but there is no gateway, no signature and no chain. Nothing here can be
 * mistaken for money: the token is the zero address, for which no client signs, and the receipt's JWS says `alg: none`.
 */

export type MockTerms = {
  gatewayUrl: string
  providerId: string
  endpointId: string
  resource: string
  split: Split
}

export const mockEndpoint = 'ep_mock'
export const mockNetwork = 'base-sepolia'

const network = networks[mockNetwork]

export function mockChallenge({ gatewayUrl, providerId, endpointId, resource, split }: MockTerms): Challenge {
  return createChallenge({
    issuer: gatewayUrl,
    requestId: `req_${randomHex()}`,
    providerId,
    endpointId,
    macaroon: 'mock',
    network,
    asset: zeroAddress,
    resource,
    description: 'Mock payment: answer with "Authorization: x402 mock:mock"',
    payTo: zeroAddress,
    feePayTo: zeroAddress,
    amount: split.providerAmount,
    feeAmount: split.feeAmount,
    tier: split.tier,
  })
}

export function mockPayment({ gatewayUrl, providerId, endpointId, resource, split }: MockTerms): Accepted {
  const now = Date.now()
  const iat = Math.floor(now / 1000)
  const paymentId = `pay_mock${randomHex()}`
  const claims: ReceiptClaims & { mock: true } = {
    mock: true,
    paymentId,
    providerId,
    endpointId,
    totalUsdc: split.price.toString(),
    providerUsdc: split.providerAmount.toString(),
    platformUsdc: split.feeAmount.toString(),
    tier: split.tier,
    effectiveRate: effectiveRate(split.price, split.feeAmount),
    timestamp: new Date(now).toISOString(),
    transactionHash: zeroHash,
    iss: gatewayUrl,
    iat,
    status: 'verified',
    network: network.name,
    testnet: network.testnet,
    asset: zeroAddress,
    payer: zeroAddress,
    resource,
    validBefore: String(iat + maxTimeoutSeconds),
    authorizations: [
      { to: zeroAddress, value: split.providerAmount.toString(), nonce: zeroHash },
      { to: zeroAddress, value: split.feeAmount.toString(), nonce: zeroHash },
    ],
  }
  const header = { alg: 'none', typ: 'JWT', kid: 'mock' }
  const receipt = [JSON.stringify(header), JSON.stringify(claims), 'mock']
    .map((part) => encodeBase64url(encodeUtf8(part)))
    .join('.')
  return { verified: true, receipt, paymentId }
}

function randomHex(): string {
  return crypto.randomUUID().replaceAll('-', '')
}
