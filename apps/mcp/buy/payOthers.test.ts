import { decodePaymentHeader, encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { describe, expect, test } from 'vitest'
import { serve } from '../../../sdk/test/serve.ts'
import { payOthers } from './payOthers.ts'

const url = 'https://api.example/weather'
const usdc = '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913'
const required = {
  x402Version: 2,
  resource: { url },
  accepts: [
    {
      scheme: 'exact',
      network: 'eip155:8453',
      amount: '10000',
      asset: usdc,
      payTo: `0x${'1'.repeat(40)}`,
      maxTimeoutSeconds: 60,
      extra: { name: 'USD Coin', version: '2' },
    },
  ],
}

const answerOf = (status: number, headers: Record<string, string> = {}) =>
  new Response('{}', { status, headers })
const headers = { 'payment-required': encodePaymentHeader(required) }
const options = {
  gatewayUrl: 'https://gateway.example',
  network: 'base',
  walletPrivateKey: `0x${'1'.repeat(64)}`,
  maxPaymentUsdc: '0.05',
} as const

/** A fetch that pays, and the nonces that the seller was shown. */
function createPayer(seller: (nonce: string | undefined) => Response) {
  const nonces: string[] = []
  const fetch = async (_: unknown, init: RequestInit = {}) => {
    const header = new Headers(init.headers).get('payment-signature')
    if (header === null) return seller(undefined)
    const { payload } = decodePaymentHeader(header) as { payload: { authorization: { nonce: string } } }
    const { nonce } = payload.authorization
    nonces.push(nonce)
    return seller(nonce)
  }
  const paying = payOthers(fetch as typeof globalThis.fetch, options)
  return { paying, nonces }
}

describe('payOthers', () => {
  test('default: pays what the seller asks for', async () => {
    const { paying, nonces } = createPayer((nonce) => answerOf(nonce ? 200 : 402, headers))
    expect((await paying(url)).status).toBe(200)
    expect(nonces).toHaveLength(1)
  })

  test('error: does not pay an origin that the request was redirected to', async () => {
    const payments: unknown[] = []
    const elsewhere = await serve((request, response) => {
      payments.push(request.headers['payment-signature'])
      response.writeHead(402, headers).end('{}')
    })
    const seller = await serve((_, response) => response.writeHead(307, { location: elsewhere }).end())
    expect((await payOthers(fetch, options)(seller)).status).toBe(402)
    expect(payments).toEqual([undefined])
  })

  test('behavior: shows a seller that refuses a payment no other one for the same request', async () => {
    const { paying, nonces } = createPayer(() => answerOf(402, headers))
    await expect(paying(url)).rejects.toThrow()
    await expect(paying(url)).rejects.toThrow()
    expect(nonces).toHaveLength(2)
    expect(new Set(nonces).size).toBe(1)
  })

  test('error: does not pay more than the limit', async () => {
    const { paying, nonces } = createPayer(() =>
      answerOf(402, {
        'payment-required': encodePaymentHeader({
          ...required,
          accepts: required.accepts.map((one) => ({ ...one, amount: '50001' })),
        }),
      }),
    )
    await expect(paying(url)).rejects.toThrow('maxPaymentUsdc')
    expect(nonces).toEqual([])
  })
})
