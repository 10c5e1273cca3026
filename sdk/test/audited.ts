import type { Address, Hex } from 'viem'
import type { ChainFacts } from '../src/audit/judge.ts'
import { type ReceiptAuthorization, type ReceiptClaims, zeroHash } from '../src/protocol/receipt.ts'

// The input of an audit: a receipt with two authorizations, and the chain's logs and blocks.

export const address = (digit: string) => `0x${digit.repeat(40)}` as Address
export const word = (digit: string) => `0x${digit.repeat(64)}` as Hex

export const payer = address('a')
export const stranger = address('b')
export const transaction = word('7')

export const signed: [ReceiptAuthorization, ReceiptAuthorization] = [
  { to: address('1'), value: '9500', nonce: word('1') },
  { to: address('2'), value: '500', nonce: word('2') },
]
export const claims: ReceiptClaims = {
  paymentId: 'pay_1',
  providerId: 'prov_1',
  endpointId: 'ep_1',
  totalUsdc: '10000',
  providerUsdc: '9500',
  platformUsdc: '500',
  tier: 'micropayment',
  effectiveRate: '0.05',
  timestamp: '2026-11-21T12:00:00.000Z',
  transactionHash: zeroHash,
  iss: 'https://gateway.example',
  iat: 1_795_262_400,
  status: 'verified',
  network: 'localhost',
  testnet: true,
  asset: address('c'),
  payer,
  resource: 'https://provider.example/weather',
  validBefore: '2000',
  authorizations: signed,
}

export const facts: ChainFacts = {
  token: address('c'),
  splitterFactory: address('f'),
  tabSettlement: address('e'),
  confirmations: 3,
  head: { number: 100n, time: 1000n },
}
