import { x402Client } from '@x402/core/client'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { wrapFetchWithPayment } from '@x402/fetch'
import { expect, test } from 'vitest'
import { account, challengeFor } from '../../test/playProvider.ts'
import { serve } from '../../test/serve.ts'
import { splitterFactory } from '../protocol/deployments.ts'
import { encodePaymentHeader, toPaymentRequired } from '../protocol/x402.ts'
import { repeatPaid } from './index.ts'

/**
 * Starts a seller that fails `fail` times after a payment, and creates a client of the x402 standard that buys from it.
 */
async function open(fail: number, how: 'breaks' | 'serving') {
  const paid: unknown[] = []
  let unpaid = 0
  const url = await serve((request, response) => {
    const header = request.headers['payment-signature']
    if (header === undefined) {
      unpaid++
      const required = toPaymentRequired(challengeFor(`http://${request.headers.host}/`), splitterFactory)
      return response.writeHead(402, { 'PAYMENT-REQUIRED': encodePaymentHeader(required as object) }).end()
    }
    paid.push(header)
    if (paid.length > fail) return response.end('served')
    if (how === 'breaks') request.socket.destroy()
    else response.writeHead(409, { 'Retry-After': '0' }).end()
  })
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(account))
  return { get: wrapFetchWithPayment(repeatPaid(fetch), client), url, paid, unpaid: () => unpaid }
}

test.each([
  ['breaks the connection', 'breaks'],
  ['is still serving the request (409)', 'serving'],
] as const)('default: sends the same payment again, signed once, if the seller %s', async (_, how) => {
  const { get, url, paid, unpaid } = await open(2, how)
  expect(await (await get(url, { method: 'POST', body: 'asked' })).text()).toBe('served')
  expect([paid.length, new Set(paid).size, unpaid()]).toEqual([3, 1, 1])
})

test('error: throws fetch’s error if the connection keeps breaking', async () => {
  const { get, url, paid } = await open(9, 'breaks')
  await expect(get(url)).rejects.toThrow(new TypeError('fetch failed'))
  expect([paid.length, new Set(paid).size]).toEqual([3, 1])
})

test('behavior: forwards a request without a payment unchanged', async () => {
  let calls = 0
  const url = await serve((request) => {
    calls++
    request.socket.destroy()
  })
  await expect(repeatPaid(fetch)(url)).rejects.toThrow(new TypeError('fetch failed'))
  expect(calls).toBe(1)
})

test.each([
  ['sends text with a payment of version 2 again', 'payment-signature', 'asked', 3],
  ['sends text with a payment of version 1 again', 'x-payment', 'asked', 3],
  ['does not send a stream again, because it can’t be read twice', 'payment-signature', undefined, 1],
])('behavior: %s (%s)', async (_, header, text, expected) => {
  let calls = 0
  const url = await serve((request) => {
    calls++
    request.socket.destroy()
  })
  const body = text ?? new Blob(['asked']).stream()
  const init = { method: 'POST', headers: { [header]: 'payment' }, body, duplex: 'half' } as RequestInit
  await expect(repeatPaid(fetch)(url, init)).rejects.toThrow(new TypeError('fetch failed'))
  expect(calls).toBe(expected)
})

test('error: sends a stream only once, and returns the response of the failing server', async () => {
  let calls = 0
  const url = await serve((_, response) => {
    calls++
    response.writeHead(503, { 'Retry-After': '0' }).end('starting')
  })
  const body = new Blob(['asked']).stream()
  const headers = { 'payment-signature': 'payment' }
  const response = await repeatPaid(fetch)(url, {
    method: 'POST',
    headers,
    body,
    duplex: 'half',
  } as RequestInit)
  expect([response.status, await response.text()]).toEqual([503, 'starting'])
  expect(calls).toBe(1)
})
