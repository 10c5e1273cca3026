import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Unproven } from '@tollkeeper/ledger/discovery/originProofs'
import { judgeSellerAnswer } from '@tollkeeper/ledger/discovery/sellerAnswer'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { withHostileParts } from '../../test/support/hostileJson.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { findOwner } from './originAnswer.ts'

const network = networks.base
const token = network.usdc as `0x${string}`
const served = [{ network, token } as ServedNetwork]
const payTo = randomHex(20)
const one: Unproven = {
  declaredId: 1n,
  endpointId: null,
  chainId: network.chainId,
  payTo,
  url: 'https://tides.example/today',
  method: 'GET',
  input: null,
  failures: 0,
}
const bazaar = { info: { input: { type: 'http', method: 'GET' } }, schema: { type: 'object' } }
const offer = {
  scheme: 'exact',
  network: network.caip2,
  asset: token,
  payTo,
  amount: '10000',
  maxTimeoutSeconds: 60,
}
const required = {
  x402Version: 2,
  resource: { url: one.url, description: 'Tides' },
  accepts: [offer],
  extensions: { bazaar },
}
const encode = (value: unknown) => {
  try {
    return Buffer.from(JSON.stringify(value) ?? '').toString('base64')
  } catch {
    return undefined
  }
}
function readAnswer(httpStatus: number, header: string | undefined, body = '') {
  const answer = { httpStatus, headers: { 'payment-required': header }, body, isCut: false }
  const question = { url: one.url, method: one.method, sent: 'GET' as const }
  return findOwner(judgeSellerAnswer(answer, question, served), one)
}
const read = (value: unknown) => readAnswer(402, encode(value))

test('default: reads the price and the description of the 402 in the header', () => {
  expect(read(required)).toMatchObject({
    kind: 'proven',
    amount: 10_000n,
    said: { description: 'Tides', bazaar },
  })
})

test.each([
  ['another network', { network: 'eip155:56', amount: '1' }],
  ['another token', { asset: randomHex(20), amount: '1' }],
  ['another scheme', { scheme: 'upto', amount: '1' }],
  ['another payee', { payTo: randomHex(20), amount: '1' }],
  ['an invalid amount', { amount: '1.5' }],
])('behavior: ignores the price of an offer of %s', (_, change) => {
  expect(read({ ...required, accepts: [{ ...offer, ...change }, offer] })).toMatchObject({ amount: 10_000n })
})

test('behavior: reads the price of x402 v1 from the body', () => {
  const { amount: maxAmountRequired, ...rest } = offer
  const body = JSON.stringify({ x402Version: 1, accepts: [{ ...rest, network: 'base', maxAmountRequired }] })
  expect(readAnswer(402, undefined, body)).toEqual({
    kind: 'proven',
    amount: 10_000n,
    said: null,
  })
})

test.each([
  [400, 'checks_input_first'],
  [500, 'server_error'],
  [200, 'serves_unpaid'],
])('error: a response with status %i proves nothing, and the finding has a code', (httpStatus, code) => {
  expect(readAnswer(httpStatus, encode(required))).toEqual({
    kind: 'unproven',
    isAway: true,
    code,
    why: `It answered ${httpStatus} to a request without a payment, expected 402.`,
  })
})

test('error: a 402 that asks for payments to other wallets proves nothing, and does not count as an outage', () => {
  expect(read({ ...required, accepts: [{ ...offer, payTo: randomHex(20) }] })).toEqual({
    kind: 'unproven',
    isAway: false,
    code: 'pays_others',
    why: 'Its 402 asks for payments to other wallets than the listed one.',
  })
})

test('behavior: reads a 402 with arbitrary values in any field', () => {
  for (const hostile of withHostileParts(required)) {
    expect(read(hostile).kind).toMatch(/proven/)
    const body = encode(hostile) ?? ''
    expect(readAnswer(402, undefined, atob(body)).kind).toMatch(/proven/)
  }
})
