import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { describe, expect, test } from 'vitest'
import { call, openShop } from '../../test/support/gateway.ts'
import { useGateway } from '../../test/support/useGateway.ts'

const gateway = useGateway()

/** Returns the gateway as it would be on a network of real money whose gas token has this price. */
function onRealMoney(gasTokenUsd: string, client = gateway.served.client) {
  const network = { ...gateway.served.network, testnet: false }
  const clients = gateway.served.clients
  return gateway.withOptions({
    settings: { ...gateway.settings, gasTokenUsd: parseUsdc(gasTokenUsd) },
    networks: [{ ...gateway.served, network, client, clients }],
  })
}

describe('registering a price', () => {
  test('warns if its fee is less than the gas, until the price is raised', async () => {
    const app = onRealMoney('1000000000')
    const shop = await openShop(app, '0.01')
    const path = `/providers/${shop.providerId}/endpoints`
    const json = { url: 'https://api.example/cheap', pricing: { usdcPerUnit: '0.02' } }
    const { status, body } = await call(app, 'POST', path, { key: shop.key, json })
    expect([status, body.advice]).toEqual([
      201,
      expect.stringMatching(/^At 0\.02 USDC on localhost, the fee of 0\.001 USDC/),
    ])
    const raised = await call(app, 'PATCH', `${path}/${body.endpointId}`, {
      key: shop.key,
      json: { pricing: { usdcPerUnit: '100000000' } },
      headers: { 'if-match': '*' },
    })
    expect([raised.status, raised.body.advice]).toEqual([200, null])
  })

  test('gives no advice if the fee covers the gas, or on test networks', async () => {
    const json = { url: 'https://api.example/other', pricing: { usdcPerUnit: '0.02' } }
    for (const app of [onRealMoney('0.000001'), gateway.another({ gasTokenUsd: parseUsdc('1000000000') })]) {
      const shop = await openShop(app, '0.01')
      const { body } = await call(app, 'POST', `/providers/${shop.providerId}/endpoints`, {
        key: shop.key,
        json,
      })
      expect(body.advice).toBeNull()
    }
  })

  test('registers without advice while no node answers', async () => {
    const silent = { ...gateway.served.client, getBlock: () => new Promise<never>(() => {}) }
    const app = onRealMoney('1000000000', silent as typeof gateway.served.client)
    const shop = await openShop(app, '0.01')
    const json = { url: 'https://api.example/late', pricing: { usdcPerUnit: '0.02' } }
    const { status, body } = await call(app, 'POST', `/providers/${shop.providerId}/endpoints`, {
      key: shop.key,
      json,
    })
    expect([status, body.advice]).toEqual([201, null])
  })
})
