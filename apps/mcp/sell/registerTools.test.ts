import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { call } from '../../../test/support/gateway.ts'
import { registerTools as openSeller, type ServedGateway, serveGateway } from '../../../test/support/mcp.ts'
import { registerTools } from './registerTools.ts'

let gateway: ServedGateway
let flags: Parameters<typeof registerTools>[0]

beforeAll(async () => {
  gateway = await serveGateway()
  const { providerId, apiKey } = await openSeller(gateway, {})
  flags = { gateway: gateway.url, provider: providerId, apiKey }
})
afterAll(() => gateway?.close())

type Registered = { url: string; pricing: { usdcPerUnit: string }; version: number }

async function registered(): Promise<Registered[]> {
  const path = `/providers/${flags.provider}/endpoints`
  const { body } = await call<{ endpoints: Registered[] }>(gateway.app, 'GET', path, {
    key: flags.apiKey ?? '',
  })
  return body.endpoints
}

describe('registerTools', () => {
  test('default: registers each tool by its name, at its price', async () => {
    await registerTools(flags, [{ name: 'forecast', description: 'The weather', price: '0.05' }])
    expect(await registered()).toMatchObject([
      { url: 'mcp://tool/forecast', pricing: { usdcPerUnit: '0.050000' }, version: 1 },
    ])
  })

  test('behavior: sends the gateway a changed price, and an equal one not again', async () => {
    await registerTools(flags, [{ name: 'forecast', price: '0.050' }])
    expect(await registered()).toMatchObject([{ pricing: { usdcPerUnit: '0.050000' }, version: 1 }])
    await registerTools(flags, [{ name: 'forecast', price: '0.07' }])
    expect(await registered()).toMatchObject([{ pricing: { usdcPerUnit: '0.070000' }, version: 2 }])
  })
})
