import { execFile } from 'node:child_process'
import { once } from 'node:events'
import type { Server } from 'node:http'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { serve } from '@hono/node-server'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { requirePayment, serveDiscovery } from '@tollkeeper/sdk/middleware/hono'
import { Hono } from 'hono'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { registerProvider } from '../apps/devstack/stack/registerProvider.ts'
import { openProxiedShop, type Shop } from '../test/support/shop.ts'
import { type TestStack, useTestStack } from '../test/support/stack.ts'
import { useInstalled } from './install.ts'

const run = promisify(execFile)

const json = (properties: object) => ({ type: 'object', properties, required: Object.keys(properties) })
const shown = {
  description: 'The weather of a city',
  mimeType: 'application/json',
  inputSchema: json({ city: { type: 'string' } }),
  inputExample: { city: 'Oslo' },
  outputSchema: json({ degrees: { type: 'number' } }),
  outputExample: { degrees: 7 },
}

// Runs third-party checkers on the discovery documents of the gateway, the facilitator and a provider's middleware.

const stack = useTestStack({
  chain: { network: 'base-sepolia' },
  env: { api: { UPSTREAM_ALLOW_PRIVATE: 'true' } },
})
const folder = useInstalled('checkers', ['--ignore-scripts'])
let soldByGateway: Shop
let server: Server
let origin: string
beforeAll(async () => {
  soldByGateway = await openProxiedShop(stack, '0.05')
  await describeEndpoint(stack.api.url, soldByGateway, shown)
  ;({ server, origin } = await openSeller(stack))
})
afterAll(async () => {
  server?.close()
  await soldByGateway?.close()
})

const inFolder = async (...args: string[]) => {
  const { stdout } = await run(process.execPath, args, { cwd: folder.path, maxBuffer: 2 ** 24 })
  return JSON.parse(stdout)
}
const discovery = (...args: string[]) =>
  inFolder(join(folder.path, 'node_modules/@agentcash/discovery/bin/discovery.js'), ...args, '--json')

test('behavior: @agentcash/discovery finds what is sold at a provider’s and the gateway’s origin, without warnings', async () => {
  const { api } = stack
  for (const [at, paths] of [
    [origin, ['/ask', '/weather']],
    [api.url, [`/p/${soldByGateway.providerId}/data`]],
  ] as const) {
    const { ok, resources, warnings } = await discovery('discover', at)
    expect([ok, warnings.filter(({ severity }: { severity: string }) => severity !== 'info')]).toEqual([
      true,
      [],
    ])
    expect(resources.map(({ path }: { path: string }) => path).sort()).toEqual(paths)
    for (const resource of resources)
      expect(resource).toMatchObject({
        authHint: 'paid',
        priceHint: expect.stringMatching(/ USD$/),
        protocols: ['x402'],
      })
    const checked = await discovery('check', `${at}${paths.at(-1)}`)
    expect(checked).toMatchObject({ found: true, warnings: [] })
    expect(checked.advisories[0]).toMatchObject({ outputSchema: shown.outputSchema })
  }
})

test('behavior: Redocly and Spectral find no error in the documents of gateway, facilitator and provider', async () => {
  const { api, keeper } = stack
  const documents = [
    `${api.url}/openapi/gateway.json`,
    `${api.url}/openapi.json`,
    `${keeper.url}/openapi.json`,
  ]
  const found = (await inFolder('lint.js', ...documents, `${origin}/openapi.json`)) as {
    severity: string
  }[]
  expect(found.filter(({ severity }) => severity === 'error')).toEqual([])
})

async function describeEndpoint(
  gatewayUrl: string,
  { providerId, apiKey, endpointIds: [id] }: Shop,
  body: object,
) {
  const response = await fetch(new URL(`/providers/${providerId}/endpoints/${id}`, gatewayUrl), {
    method: 'PATCH',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}`, 'if-match': '*' },
    body: JSON.stringify(body),
  })
  expect([response.status, await response.text()]).toEqual([200, expect.any(String)])
}

/** Starts a provider's server with our middleware. */
async function openSeller({ api, chain }: TestStack): Promise<{ server: Server; origin: string }> {
  const port = await reservePort()
  const origin = `http://${loopback}:${port}`
  const provider = await registerProvider({
    gatewayUrl: api.url,
    name: 'Weather',
    network: chain.network,
    address: privateKeyToAddress(generatePrivateKey()),
    endpoints: [
      { url: `${origin}/weather`, method: 'GET', usdcPerUnit: '0.01' },
      { url: `${origin}/ask`, method: 'POST', usdcPerUnit: '0.05' },
    ],
  })
  const shop = { ...provider } as never as Shop
  for (const id of provider.endpointIds)
    await describeEndpoint(api.url, { ...shop, endpointIds: [id] }, shown)
  const options = { gatewayUrl: api.url, providerId: provider.providerId, apiKey: provider.apiKey }
  const app = new Hono()
    .use(serveDiscovery(options))
    .get('/weather', requirePayment({ ...options, pricing: { usdcPerUnit: '0.01' } }), (c) =>
      c.json({ degrees: 7 }),
    )
    .post('/ask', requirePayment({ ...options, pricing: { usdcPerUnit: '0.05' } }), (c) =>
      c.json({ degrees: 7 }),
    )
    .get('/favicon.svg', (c) =>
      c.body('<svg xmlns="http://www.w3.org/2000/svg"/>', 200, { 'content-type': 'image/svg+xml' }),
    )
  const server = serve({ fetch: app.fetch, port, hostname: loopback }) as Server
  await once(server, 'listening')
  return { server, origin }
}
