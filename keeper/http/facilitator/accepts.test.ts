import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { describe, expect, test } from 'vitest'
import { completeRequirements } from './accepts.ts'
import { parseRequest } from './request.ts'

// Requests in which other servers ask their facilitator to complete their requirements: @faremeter/middleware 0.22 and thirdweb 5.121.

const usdc = networks['base-sepolia'].usdc as `0x${string}`
const served = [{ network: networks['base-sepolia'], token: usdc } as ServedNetwork]
const payTo = `0x${'ab'.repeat(20)}`
const extra = { name: 'USDC', version: '2', decimals: 6, primaryType: 'TransferWithAuthorization' }

describe('completeRequirements for faremeter’s servers', () => {
  const asked = { scheme: 'exact', network: 'eip155:84532', amount: '10000', asset: usdc, payTo }
  const body = { x402Version: 2, resource: { url: 'https://seller.example/weather' }, accepts: [asked] }

  test('default: adds missing fields to the payment requirements, and leaves out requirements that this facilitator does not serve', () => {
    const others = [
      { ...asked, network: 'eip155:8453' },
      { ...asked, scheme: 'upto' },
      { ...asked, asset: payTo },
    ]
    const accepts = [{ ...asked, maxTimeoutSeconds: 0, extra: { name: 'Coin', own: 1 } }, ...others]
    expect(completeRequirements(served, { ...body, accepts })).toEqual({
      status: 200,
      body: {
        x402Version: 2,
        resource: body.resource,
        accepts: [{ ...asked, maxTimeoutSeconds: 300, extra: { ...extra, own: 1 } }],
      },
    })
  })

  test('args: accepts payment requirements that have a timeout and a network name of x402 version 1, but no asset', () => {
    const { asset: _, ...bare } = asked
    const accepts = [{ ...bare, network: 'base-sepolia', maxTimeoutSeconds: 60 }]
    expect(completeRequirements(served, { ...body, accepts }).body).toMatchObject({
      accepts: [{ ...asked, maxTimeoutSeconds: 60, extra }],
    })
  })

  test.each([
    ['a list in which this facilitator serves no entry', { accepts: [{ ...asked, scheme: 'upto' }] }, 400],
    ['an empty list', { accepts: [] }, 400],
    ['an invalid amount', { accepts: [{ ...asked, amount: '-1' }] }, 400],
    ['a missing recipient', { accepts: [{ ...asked, payTo: undefined }] }, 400],
    ['x402 version 3', { x402Version: 3 }, 400],
  ])('error: rejects %s', (_, change, status) => {
    expect(() => completeRequirements(served, { ...body, ...change })).toThrow(
      expect.objectContaining({ name: 'Refused', status }),
    )
  })
})

describe('completeRequirements for thirdweb’s servers', () => {
  const asked = {
    resourceUrl: 'https://seller.example/weather',
    method: 'GET',
    network: 'eip155:84532',
    x402Version: 2,
    price: '$0.01',
    serverWalletAddress: payTo,
    routeConfig: { description: 'The weather' },
  }
  const accepted = {
    scheme: 'exact',
    network: 'eip155:84532',
    amount: '10000',
    maxAmountRequired: '10000',
    asset: usdc,
    payTo,
    maxTimeoutSeconds: 300,
    resource: asked.resourceUrl,
    description: 'The weather',
    mimeType: 'application/json',
    extra,
  }

  test('default: answers 402 with one set of payment requirements, which has the fields of both x402 versions and is accepted by /verify', () => {
    const { status, body } = completeRequirements(served, asked)
    expect([status, body]).toEqual([402, { x402Version: 1, error: 'Payment required', accepts: [accepted] }])
    const authorization = {
      from: usdc,
      to: payTo,
      value: '10000',
      validAfter: '0',
      validBefore: '1800000000',
      nonce: `0x${'11'.repeat(32)}`,
    }
    // The request in which thirdweb's server passes on the payment that its buyer signed.
    const paymentPayload = {
      x402Version: 2,
      scheme: 'exact',
      network: 'eip155:84532',
      accepted,
      payload: { authorization, signature: `0x${'22'.repeat(65)}` },
    }
    const request = { x402Version: 2, paymentPayload, paymentRequirements: accepted, waitUntil: 'confirmed' }
    expect(parseRequest(served, request).asked).toEqual({ asset: usdc, payTo, amount: '10000' })
  })

  test.each([
    [0.01, '10000'],
    ['0.5', '500000'],
    [{ amount: '7', asset: { address: usdc } }, '7'],
  ])('args: accepts the price %j', (price, amount) => {
    expect(completeRequirements(served, { ...asked, price }).body).toMatchObject({ accepts: [{ amount }] })
  })

  test('args: uses the recipient and the timeout that the request names', () => {
    const recipientAddress = `0x${'cd'.repeat(20)}`
    const change = { recipientAddress, routeConfig: { maxTimeoutSeconds: 60 } }
    expect(completeRequirements(served, { ...asked, ...change }).body).toMatchObject({
      accepts: [{ payTo: recipientAddress, maxTimeoutSeconds: 60, description: '' }],
    })
  })

  test.each([
    ['a network that this facilitator does not serve', { network: 'eip155:8453' }, 400],
    ['a scheme that this facilitator does not serve', { scheme: 'upto' }, 400],
    [
      'a token that this facilitator does not serve',
      { price: { amount: '7', asset: { address: payTo } } },
      400,
    ],
    ['a price of 0', { price: '$0' }, 400],
    ['a price in words', { price: 'much' }, 400],
    ['a price with more decimals than the token has', { price: '$0.0000001' }, 400],
  ])('error: rejects %s', (_, change, status) => {
    expect(() => completeRequirements(served, { ...asked, ...change })).toThrow(
      expect.objectContaining({ name: 'Refused', status }),
    )
  })
})
