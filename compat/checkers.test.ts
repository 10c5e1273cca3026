import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import type { Server } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { serve } from '@hono/node-server'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { requirePayment, serveDiscovery } from '@tollkeeper/sdk/middleware/hono'
import { Hono } from 'hono'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { registerProvider } from '../../local/stack/registerProvider.ts'
import { root } from '../support/processes.ts'
import type { Shop } from '../support/shop.ts'
import type { TestStack } from '../support/stack.ts'

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

/** Other people's checkers, on what gateway, facilitator and a provider's middleware serve for discovery. */
export function addCheckerTests(stackOf: () => TestStack, soldByGateway: () => Shop): void {
  describe('other people’s checkers', () => {
    let folder: string
    let server: Server
    let origin: string
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'tollkeeper-checkers-'))
      await cp(join(root, 'test/checkers'), folder, { recursive: true })
      await run('npm', ['ci', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'], {
        cwd: folder,
      })
      const { api } = stackOf()
      await describeEndpoint(api.url, soldByGateway(), shown)
      ;({ server, origin } = await openSeller(stackOf()))
    })
    afterAll(async () => {
      server?.close()
      await rm(folder, { recursive: true, force: true })
    })

    const inFolder = async (...args: string[]) => {
      const { stdout } = await run(process.execPath, args, { cwd: folder, maxBuffer: 2 ** 24 })
      return JSON.parse(stdout)
    }
    const discovery = (...args: string[]) =>
      inFolder(join(folder, 'node_modules/@agentcash/discovery/bin/discovery.js'), ...args, '--json')

    test('behavior: @agentcash/discovery finds what is sold at a provider’s origin and the gateway’s, and warns of nothing', async () => {
      const { api } = stackOf()
      for (const [at, paths] of [
        [origin, ['/ask', '/weather']],
        [api.url, [`/p/${soldByGateway().providerId}/data`]],
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

    test('behavior: Redocly and Spectral find no error in what gateway, facilitator and provider serve', async () => {
      const { api, keeper } = stackOf()
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
  })
}

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

/** A provider's own server, with our middleware. */
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
