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

type Registered = {
  url: string
  pricing: { usdcPerUnit: string }
  serverUrl: string | null
  version: number
}

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

  test('behavior: updates a changed price at the gateway, and sends nothing for an unchanged price', async () => {
    await registerTools(flags, [{ name: 'forecast', price: '0.050' }])
    expect(await registered()).toMatchObject([{ pricing: { usdcPerUnit: '0.050000' }, version: 1 }])
    await registerTools(flags, [{ name: 'forecast', price: '0.07' }])
    expect(await registered()).toMatchObject([{ pricing: { usdcPerUnit: '0.070000' }, version: 2 }])
  })

  test('registers the server’s URL, also for tools that are already registered', async () => {
    const served = { ...flags, server: 'served', serverUrl: 'https://tools.example/mcp' }
    const find = async () => (await registered()).filter(({ url }) => url.startsWith('mcp://tool/served/'))
    await registerTools({ ...served, serverUrl: undefined }, [{ name: 'forecast', price: '0.05' }])
    expect(await find()).toMatchObject([{ serverUrl: null, version: 1 }])
    for (let n = 0; n < 2; n++)
      await registerTools(served, [
        { name: 'forecast', price: '0.05' },
        { name: 'tides', price: '0.05' },
      ])
    expect(await find()).toMatchObject([
      { serverUrl: 'https://tools.example/mcp', version: 2 },
      { serverUrl: 'https://tools.example/mcp', version: 1 },
    ])
    await registerTools({ ...served, serverUrl: undefined }, [{ name: 'forecast', price: '0.05' }])
    expect((await find())[0]).toMatchObject({ serverUrl: 'https://tools.example/mcp' })
  })
})
