/** Shows how a seller tests the effect of a reorg on its revenue. */
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

test('behavior: a payment whose settlement a reorg removes is settled again', async () => {
  const { paymentId = '' } = await tollkeeper.buyer.client.request(priceOf('/forecast'))
  const before = await tollkeeper.state()
  await tollkeeper.settle()

  await tollkeeper.reorg({ after: before.block })
  expect((await tollkeeper.state()).balances).toMatchObject({ provider: before.balances.provider })
  expect((await tollkeeper.settle()).payments).toMatchObject({ [paymentId]: 'settled' })
  expect((await tollkeeper.state()).balances.provider).toBe('0.009500')
})
