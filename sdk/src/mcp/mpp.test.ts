import { describe, expect, test } from 'vitest'
import { withHostileParts } from '../../../test/support/hostileJson.ts'
import { networkByName } from '../protocol/networks.ts'
import { readMppHeader, readMppOffer } from './mpp.ts'

const usdc = `0x${'c'.repeat(40)}` as const
const payTo = `0x${'1'.repeat(40)}` as const
const asset = { network: networkByName('base'), usdc }

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
  const signed = {
    from: payTo,
    to: payTo,
    value: 10_000n,
    validAfter: 0n,
    validBefore: 1_800_000_060n,
    nonce: `0x${'2'.repeat(64)}`,
    signature: `0x${'3'.repeat(130)}`,
  } as const

  test('behavior: never throws, whatever values the fields of a challenge have', () => {
    for (const hostile of withHostileParts(challenge))
      expect(readMppOffer(hostile, asset)?.present(signed) ?? {}).toBeTypeOf('object')
  })

  test('default: accepts a charge in USDC on the client’s network with one authorization', () => {
    expect(readMppOffer(challenge, asset)).toMatchObject({ amount: 10_000n, payTo })
  })

  test('behavior: returns the credential as an HTTP Authorization header that readMppHeader can read', () => {
    const { name, value } = readMppOffer(challenge, asset)?.present(signed) ?? {}
    expect([name, readMppHeader(value ?? '')]).toEqual([
      'authorization',
      {
        challenge,
        payload: {
          type: 'authorization',
          ...signed,
          value: '10000',
          validAfter: '0',
          validBefore: '1800000060',
        },
        source: `did:pkh:eip155:8453:${payTo}`,
      },
    ])
    expect(readMppHeader('x402 mock:mock')).toBeUndefined()
  })

  test.each([
    ['another chain', { request: { ...request, methodDetails: { ...details, chainId: 1 } } }],
    ['splits', { request: { ...request, methodDetails: { ...details, splits: [{ recipient: payTo }] } } }],
    ['another token', { request: { ...request, currency: payTo } }],
    [
      'another credential',
      { request: { ...request, methodDetails: { ...details, credentialTypes: ['transaction'] } } },
    ],
    ['another payment method', { method: 'tempo' }],
    ['another intent', { intent: 'session' }],
    ['an amount of 0', { request: { ...request, amount: '0' } }],
    [
      'an amount that is too large for a payment',
      { request: { ...request, amount: '18446744073709551616' } },
    ],
    ['a payee that is not an address', { request: { ...request, recipient: 'tides.eth' } }],
  ])('error: ignores a challenge with %s', (_, change) => {
    expect(readMppOffer({ ...challenge, ...change }, asset)).toBeUndefined()
  })
})
