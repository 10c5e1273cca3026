import { createClient } from '@tollkeeper/sdk/client/createClient'
import { x402Client } from '@x402/core/client'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { wrapFetchWithPayment } from '@x402/fetch'
import { expect, test } from 'vitest'
import { call, openShop, signedBody } from '../support/gateway.ts'
import { useSellers } from './sellers.ts'

// Buyers and gateways whose clocks differ. The tests change the gateway's clock, which has the same effect as a buyer's clock that is wrong in
// the other direction.

const sellers = useSellers()
const minuteMs = 60_000

/** Buys with x402's client. Its authorization is valid for as long as the offer says: one hour. */
async function buyByStock(url: string) {
  const account = await sellers.gateway.buyer(1_000_000n)
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(account)).setSpendControls(false)
  const response = await wrapFetchWithPayment(fetch, client)(url)
  return { status: response.status, body: (await response.json()) as { code?: string; error?: string } }
}

async function buyByOurs(url: string, tabs: boolean) {
  const client = createClient({
    gatewayUrl: sellers.state.url,
    network: 'localhost',
    account: await sellers.gateway.buyer(1_000_000n),
    usdcAddress: sellers.gateway.served.token,
    limits: { perPayment: '1' },
    tabs,
  })
  return client.request(url)
}

test('error: if a buyer’s clock is 56 minutes behind, the rejection says that the clock is wrong, and our client can buy anyway', async () => {
  const seller = await sellers.open('hono')
  const url = `${seller.url}/weather`
  sellers.gateway.setNow(Date.now() + 56 * minuteMs)
  const { status, body } = await buyByStock(url)
  expect([status, body.code]).toEqual([402, 'authorization_expires_too_soon'])
  expect(body.error).toMatch(/the gateway's clock says .*\. Is the payer's clock behind\?$/)
  expect(seller.served).toHaveLength(0)
  // Our client signs for a longer time, so its payment is accepted.
  for (const tabs of [true, false]) expect((await buyByOurs(url, tabs)).receipt).toBeTruthy()
})

test('error: if a buyer’s clock is 11 minutes ahead, the rejection says that the clock is wrong, and our client can buy anyway', async () => {
  const seller = await sellers.open('fetch')
  const url = `${seller.url}/weather`
  const now = Date.now() - 11 * minuteMs
  sellers.gateway.setNow(now)
  // Some clients set validAfter to ten minutes before their own time. Here, that is one minute after the gateway's time.
  const validAfter = BigInt(Math.floor(now / 1000) + 60)
  const { gateway } = sellers
  const account = await gateway.buyer(1_000_000n)
  const json = await signedBody(gateway, await openShop(gateway.app), account, [{ validAfter }, {}])
  const { status, body } = await call(gateway.app, 'POST', '/verify', { json })
  expect([status, body.code]).toEqual([402, 'authorization_not_yet_valid'])
  expect(body.detail).toMatch(/the gateway's clock says .*\. Is the payer's clock ahead\?$/)
  for (const tabs of [true, false]) expect((await buyByOurs(url, tabs)).receipt).toBeTruthy()
})

test('behavior: sells to all clients if the gateway’s clock is 2 minutes behind', async () => {
  const seller = await sellers.open('express')
  const url = `${seller.url}/weather`
  sellers.gateway.setNow(Date.now() - 2 * minuteMs)
  expect((await buyByStock(url)).status).toBe(200)
  for (const tabs of [true, false]) expect((await buyByOurs(url, tabs)).receipt).toBeTruthy()
})
