import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Unproven } from '@tollkeeper/ledger/discovery/originProofs'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { withHostileParts } from '../../test/support/hostileJson.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { readOriginAnswer } from './originAnswer.ts'

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
const read = (value: unknown) =>
  readOriginAnswer({ httpStatus: 402, paymentRequired: encode(value), body: '' }, one, served)

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
  ['an amount that is none', { amount: '1.5' }],
])('behavior: the price is not that of an offer of %s', (_, change) => {
  expect(read({ ...required, accepts: [{ ...offer, ...change }, offer] })).toMatchObject({ amount: 10_000n })
})

test('behavior: the price of version 1 is read from the body', () => {
  const { amount: maxAmountRequired, ...rest } = offer
  const body = JSON.stringify({ x402Version: 1, accepts: [{ ...rest, network: 'base', maxAmountRequired }] })
  expect(readOriginAnswer({ httpStatus: 402, paymentRequired: undefined, body }, one, served)).toEqual({
    kind: 'proven',
    amount: 10_000n,
    said: null,
  })
})

test.each([
  [400, 'ask for payment before you check the input'],
  [500, 'it answered 500'],
  [200, 'it answered 200'],
])('error: status %i proves nothing, and the finding says what to do', (httpStatus, why) => {
  expect(readOriginAnswer({ httpStatus, paymentRequired: encode(required), body: '' }, one, served)).toEqual({
    kind: 'unproven',
    isAway: true,
    why: expect.stringContaining(why),
  })
})

test('error: a 402 that asks for payments to others proves nothing, and is no outage', () => {
  expect(read({ ...required, accepts: [{ ...offer, payTo: randomHex(20) }] })).toEqual({
    kind: 'unproven',
    isAway: false,
    why: 'its 402 asks for payments to others',
  })
})

test('behavior: reads a 402 with any value anywhere in it', () => {
  for (const hostile of withHostileParts(required)) {
    expect(read(hostile).kind).toMatch(/proven/)
    const body = encode(hostile) ?? ''
    expect(
      readOriginAnswer({ httpStatus: 402, paymentRequired: 7, body: atob(body) }, one, served).kind,
    ).toMatch(/proven/)
  }
})
