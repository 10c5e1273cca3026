import { cp, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { build } from 'esbuild'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { registerProvider } from '../apps/devstack/stack/registerProvider.ts'
import { askLiterally, spellings, unclearSpellings } from '../sdk/test/spellings.ts'
import { installPackages } from '../test/support/installed.ts'
import { killAll, root, runCommand } from '../test/support/processes.ts'
import { newBuyer } from '../test/support/shop.ts'
import { useTestStack } from '../test/support/stack.ts'
import { useInstalled } from './install.ts'

// Tests Nest on Express and Fastify, with the guards copied from docs/jest-and-nest.md.

const stack = useTestStack({ chain: { network: 'base-sepolia', blockTimeMs: 5_000 } })
const folder = useInstalled('frameworks', ['--ignore-scripts'])

beforeAll(async () => {
  const { sdk } = await installPackages()
  await cp(sdk, join(folder.path, 'node_modules/@tollkeeper/sdk'), { recursive: true })
  const page = await readFile(join(root, 'docs/jest-and-nest.md'), 'utf8')
  for (const platform of ['express', 'fastify']) {
    const [, guard = ''] = new RegExp(`\`\`\`ts ${platform}\n(.*?)\`\`\``, 's').exec(page) ?? []
    const tested = guard
      .replace("'https://gateway.example'", 'String(process.env.GATEWAY_URL)')
      .replace('pricing:', "mockPayments: process.env.MOCK === '1',\n  timeout: 60_000,\n  pricing:")
    await writeFile(join(folder.path, `${platform}.guard.ts`), tested)
  }
  const tsc = [join(root, 'node_modules/typescript/bin/tsc'), '-p', folder.path]
  const checked = runCommand(['node', ...tsc], {}, { cwd: folder.path })
  expect(await checked.exited, checked.output()).toBe(0)
  await build({
    entryPoints: [join(folder.path, 'main.ts')],
    outfile: join(folder.path, 'main.js'),
    bundle: true,
    packages: 'external',
    format: 'esm',
    platform: 'node',
    tsconfigRaw: { compilerOptions: { experimentalDecorators: true } },
  })
}, 900_000)

async function start(platform: string, port: number, env: Record<string, string>) {
  const server = runCommand(['node', join(folder.path, 'main.js'), platform], { PORT: `${port}`, ...env })
  await server.line(/^selling /)
  return server
}

const paths = ['weather/:city', 'reports', 'failing']

describe.each(['express', 'fastify'])('Nest on %s', (platform) => {
  let url: string
  let stop: () => Promise<void>
  let client: Awaited<ReturnType<typeof newBuyer>>['client']
  beforeAll(async () => {
    const port = await reservePort()
    url = `http://${loopback}:${port}`
    const { providerId, apiKey } = await registerProvider({
      gatewayUrl: stack.api.url,
      name: 'Nest',
      network: stack.chain.network,
      address: privateKeyToAddress(generatePrivateKey()),
      endpoints: paths.map((path) => ({
        url: `${url}/${path}`,
        method: path === 'reports' ? 'POST' : 'GET',
        usdcPerUnit: '0.01',
      })),
    })
    const env = { GATEWAY_URL: stack.api.url, PROVIDER_ID: providerId, PROVIDER_API_KEY: apiKey }
    const server = await start(platform, port, env)
    stop = () => killAll(server)
    ;({ client } = await newBuyer(stack, '1'))
  }, 900_000)
  afterAll(() => stop?.())

  test('asks for payment, and serves a handler to a paying client', async () => {
    expect((await fetch(`${url}/weather/lisbon`)).status).toBe(402)
    const { data, paymentId, receipt } = await client.request(`${url}/weather/lisbon`)
    expect(data).toEqual({ celsius: 19, paymentId })
    expect(receipt?.split('.')).toHaveLength(3)
  })

  test('gives the handler the body that Nest has parsed', async () => {
    const { data, paymentId } = await client.request(`${url}/reports`, {
      method: 'POST',
      body: { city: 'Lisbon' },
    })
    expect(data).toEqual({ body: { city: 'Lisbon' }, paymentId })
  })

  test('voids the payment of a handler that throws', async () => {
    const error = await client.request(`${url}/failing`).catch((thrown) => thrown)
    expect(error).toMatchObject({ status: 500, paymentId: expect.stringMatching(/^pay_/) })
    expect((await stack.get(`/payments/${error.paymentId}`)).body.payment_status).toBe('voided')
  })

  test('shows a payment page to a browser', async () => {
    const page = await fetch(`${url}/weather/lisbon`, { headers: { accept: 'text/html,*/*;q=0.8' } })
    expect([page.status, page.headers.get('content-type')]).toEqual([402, 'text/html; charset=utf-8'])
    expect(await page.text()).toContain('This costs 0.01 USDC')
  })
})

describe.each(['express', 'fastify'])('other spellings of a path, in Nest on %s', (platform) => {
  let url: string
  let stop: () => Promise<void>
  beforeAll(async () => {
    const port = await reservePort()
    url = `http://${loopback}:${port}`
    const env = { GATEWAY_URL: 'https://gateway.example', PROVIDER_ID: 'prov_1', MOCK: '1' }
    const server = await start(platform, port, env)
    stop = () => killAll(server)
  }, 900_000)
  afterAll(() => stop?.())
  const served = async () => ((await (await fetch(`${url}/served`)).json()) as { served: number }).served

  test.each([...spellings, ...unclearSpellings])('never serves %s without payment', async (path) => {
    const { status, body } = await askLiterally(url, path)
    expect([400, 402, 404]).toContain(status)
    // Fastify is configured to treat these spellings as one path, so the 402 is for the route whose handler would run.
    if (platform === 'fastify' && spellings.includes(path)) {
      expect(status).toBe(402)
      expect(new URL(JSON.parse(body).accepts[0].resource).pathname).toBe('/weather/lisbon')
    }
    expect(await served()).toBe(0)
  })

  test('serves a paying client', async () => {
    const paid = { authorization: 'x402 mock:mock' }
    const { status } = await askLiterally(url, '/weather/lisbon', paid)
    expect([status, await served()]).toEqual([200, 1])
  })
})
