/** Shows how a seller tests a paid API with real USDC on a local chain and a real gateway, without Docker or a faucet. */
import { type ServerType, serve } from '@hono/node-server'
import { startTollkeeper, type Tollkeeper } from 'tollkeeper/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createWeatherApi } from './weatherApi.ts'

let tollkeeper: Tollkeeper
let server: ServerType

beforeAll(async () => {
  tollkeeper = await startTollkeeper()
  const { fetch } = createWeatherApi(tollkeeper.env)
  server = serve({ fetch, hostname: '127.0.0.1', port: tollkeeper.port })
})
afterAll(async () => {
  server?.close()
  await tollkeeper?.close()
})

const priceOf = (path: string) => `${tollkeeper.apiUrl}${path}`
const statusOf = async (paymentId: string | undefined) => {
  const answer = await fetch(`${tollkeeper.gatewayUrl}/payments/${paymentId}`)
  return ((await answer.json()) as { payment_status: string }).payment_status
}

test('default: a buyer pays, and the provider receives the money', async () => {
  const { data, paymentId = '' } = await tollkeeper.buyer.client.request(priceOf('/forecast'))
  expect(data).toEqual({ celsius: 19 })
  expect(await statusOf(paymentId)).toBe('verified')

  expect(await tollkeeper.settle()).toEqual({ payments: { [paymentId]: 'settled' } })
  expect((await tollkeeper.state()).balances).toMatchObject({ provider: '0.009500', platform: '0.000500' })
})

test('behavior: a buyer is not charged for a request that fails', async () => {
  const { settle, state, buyer } = tollkeeper
  const { balances } = await state()
  await expect(buyer.client.request(priceOf('/broken'))).rejects.toMatchObject({ code: 'http_error' })
  expect(await settle()).toEqual({ payments: {} })
  expect((await state()).balances).toEqual(balances)
})

test('error: a payer with an empty wallet is refused, and a payment settles once a failing node works again', async () => {
  const { client } = await tollkeeper.createBuyer('0.005')
  await expect(client.request(priceOf('/forecast'))).rejects.toMatchObject({ code: 'insufficient_balance' })

  const { paymentId = '' } = await tollkeeper.buyer.client.request(priceOf('/forecast'))
  tollkeeper.failRpc({ kind: 'lose', method: 'eth_sendRawTransaction', times: 2 })
  expect((await tollkeeper.settle()).payments).toEqual({ [paymentId]: 'settled' })
})

test('behavior: a payment of a wallet that Circle has blacklisted does not settle', async () => {
  const { client, address } = await tollkeeper.createBuyer('1')
  const { paymentId = '' } = await client.request(priceOf('/forecast'))
  await tollkeeper.blacklist(address)
  expect(['failed', 'retrying']).toContain((await tollkeeper.settle()).payments[paymentId])
})

test('behavior: an authorization that expired before it was settled does not pay', async () => {
  const { paymentId = '' } = await tollkeeper.buyer.client.request(priceOf('/forecast'))
  await tollkeeper.travel(27 * 3600)
  const { payments } = await tollkeeper.settle()
  expect(['failed', 'retrying']).toContain(payments[paymentId])
})
