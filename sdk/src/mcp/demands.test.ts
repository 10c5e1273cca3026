import { describe, expect, test } from 'vitest'
import { withHostileParts } from '../../../test/support/hostileJson.ts'
import { networkByName } from '../protocol/networks.ts'
import { chooseOffer } from './demands.ts'
import { readMppOffer } from './mpp.ts'

const usdc = `0x${'c'.repeat(40)}` as const
const payTo = `0x${'1'.repeat(40)}`
const asset = { network: networkByName('base'), usdc }

describe('chooseOffer', () => {
  const accepted = {
    scheme: 'exact',
    network: 'eip155:8453',
    amount: '10000',
    asset: usdc,
    payTo,
    maxTimeoutSeconds: 60,
    extra: {},
  }
  const choose = (change: object, x402Version = 2) =>
    chooseOffer(
      { required: { x402Version, accepts: [{ ...accepted, ...change }] }, isBase64: false, mpp: [] },
      asset,
    )

  test('behavior: chooses from offers with any value anywhere in them, and never throws', () => {
    const resource = { url: 'mcp://tool/tides', description: 'Tides' }
    for (const { accepts, x402Version } of [
      { x402Version: 2, accepts: accepted },
      { x402Version: 1, accepts: { ...accepted, network: 'base', maxAmountRequired: '7' } },
    ])
      for (const hostile of withHostileParts({ accepted: accepts, resource })) {
        const { accepted: offer, ...rest } = (hostile ?? {}) as { accepted?: unknown }
        const required = { ...rest, x402Version, accepts: [offer] }
        expect(chooseOffer({ required, isBase64: false, mpp: [] }, asset) ?? {}).toBeTypeOf('object')
      }
  })

  test('default: takes USDC on its network by scheme exact', () => {
    expect(choose({})).toMatchObject({ amount: 10_000n, payTo, maxTimeoutSeconds: 60 })
    expect(choose({ network: 'base', maxAmountRequired: '7' }, 1)).toMatchObject({ amount: 7n, payTo })
  })

  test.each([
    ['another network', { network: 'eip155:1' }],
    ['a network by the name of version 1', { network: 'base' }],
    ['another token', { asset: payTo }],
    ['another scheme', { scheme: 'upto' }],
    ['another way to transfer', { extra: { assetTransferMethod: 'permit2' } }],
    ['an amount of 0', { amount: '0' }],
    ['a fraction', { amount: '1.5' }],
    ['a payee that is no address', { payTo: 'weather.eth' }],
    ['no time', { maxTimeoutSeconds: 0 }],
  ])('error: does not take %s', (_, change) => {
    expect(choose(change)).toBeUndefined()
  })
})

describe('readMppOffer', () => {
  const details = { chainId: 8453, credentialTypes: ['authorization'], decimals: 6 }
  const challenge = {
    id: 'req_1',
    realm: 'gateway.example',
    method: 'evm',
    intent: 'charge',
    request: { amount: '10000', currency: usdc, recipient: payTo, methodDetails: details },
  }
  const { request } = challenge

  test('behavior: reads a challenge with any value anywhere in it, and never throws', () => {
    for (const hostile of withHostileParts(challenge))
      expect(readMppOffer(hostile, asset) ?? {}).toBeTypeOf('object')
  })

  test('default: takes a charge in USDC on its network by one authorization', () => {
    expect(readMppOffer(challenge, asset)).toMatchObject({ amount: 10_000n, payTo })
  })

  test.each([
    ['another chain', { request: { ...request, methodDetails: { ...details, chainId: 1 } } }],
    ['splits', { request: { ...request, methodDetails: { ...details, splits: [{ recipient: payTo }] } } }],
    ['another token', { request: { ...request, currency: payTo } }],
    [
      'another credential',
      { request: { ...request, methodDetails: { ...details, credentialTypes: ['transaction'] } } },
    ],
    ['another method', { method: 'tempo' }],
    ['another intent', { intent: 'session' }],
    ['an amount of 0', { request: { ...request, amount: '0' } }],
  ])('error: does not take %s', (_, change) => {
    expect(readMppOffer({ ...challenge, ...change }, asset)).toBeUndefined()
  })
})
