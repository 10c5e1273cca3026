import { cp, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { build } from 'esbuild'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { registerProvider } from '../apps/devstack/stack/registerProvider.ts'
import { askLiterally, spellings, unclearSpellings } from '../sdk/test/spellings.ts'
import { installPackages } from '../test/support/installed.ts'
import { killAll, root, runCommand } from '../test/support/processes.ts'
import { newBuyer } from '../test/support/shop.ts'
import { useTestStack } from '../test/support/stack.ts'
import { until } from '../test/support/until.ts'
import { useInstalled } from './install.ts'

// Tests the built SDK in runtimes other than Node. The keeper waits for its usual hour before it claims payments, because a claimed payment couldn't
// be voided.

const stack = useTestStack({
  // Transactions are mined at once, so idle blocks would only slow down every process.
  chain: { network: 'base-sepolia', blockTimeMs: 5_000 },
})
const folder = useInstalled('runtimes')
beforeAll(async () => {
  for (const name of ['jose', 'viem', 'hono', 'uqr'])
    await symlink(join(root, 'node_modules', name), join(folder.path, 'node_modules', name))
  const { sdk } = await installPackages()
  await cp(sdk, join(folder.path, 'node_modules/@tollkeeper/sdk'), { recursive: true })
  // Bundle the Worker as wrangler does.
  await build({
    entryPoints: [join(folder.path, 'worker.ts')],
    outfile: join(folder.path, 'worker.js'),
    bundle: true,
    format: 'esm',
    target: 'es2022',
    external: ['cloudflare:*'],
    conditions: ['workerd', 'worker', 'browser'],
  })
}, 900_000)

const runHere = (command: string, env: Record<string, string>) => {
  const [program = '', ...args] = command.split(' ')
  const running = runCommand([join(folder.path, 'node_modules/.bin', program), ...args], env, {
    cwd: folder.path,
  })
  onTestFinished(() => killAll(running))
  return running
}

test.each([
  ['bun', () => 'bun bun.ts'],
  ['deno', () => 'deno run --allow-net --allow-env deno.ts'],
  ['workerd', (port: number) => `workerd serve workerd.capnp --socket-addr=http=${loopback}:${port}`],
])(
  'behavior: %s sells through /fetch and /hono, voids the payment of a failed request, and buys',
  async (name, commandOf) => {
    const { api, chain, get } = stack
    const port = await reservePort()
    const url = `http://${loopback}:${port}`
    const { providerId, apiKey } = await registerProvider({
      gatewayUrl: api.url,
      name,
      network: chain.network,
      address: privateKeyToAddress(generatePrivateKey()),
      endpoints: ['fetch', 'hono', 'failing'].map((path) => ({
        url: `${url}/${path}`,
        usdcPerUnit: '0.01',
      })),
    })
    const WALLET_PRIVATE_KEY = generatePrivateKey()
    await chain.mintUsdc([privateKeyToAddress(WALLET_PRIVATE_KEY)], parseUsdc('1'))
    const env = {
      GATEWAY_URL: api.url,
      NETWORK: chain.network,
      WALLET_PRIVATE_KEY,
      PROVIDER_ID: providerId,
      PROVIDER_API_KEY: apiKey,
      PORT: `${port}`,
    }
    const command = commandOf(port)
    const seller = runHere(command, env)
    const ask = (path: string) => fetch(`${url}/${path}`)
    await Promise.race([
      until('it answers', () =>
        ask('fetch').then(
          () => true,
          () => false,
        ),
      ),
      seller.exited.then(() => {
        throw new Error(seller.output())
      }),
    ])

    const client = createClient({
      tabs: false,
      timeout: 240_000,
      gatewayUrl: api.url,
      network: chain.network,
      walletPrivateKey: WALLET_PRIVATE_KEY,
      limits: { perPayment: '0.01' },
    })
    for (const path of ['fetch', 'hono']) {
      expect((await ask(path)).status, seller.output()).toBe(402)
      const { data, receipt, paymentId } = await client.request(`${url}/${path}`)
      expect(data).toEqual({ by: path, paymentId })
      expect(receipt?.split('.')).toHaveLength(3)
    }
    const failed = await client.request(`${url}/failing`).catch((error) => error)
    expect(failed).toMatchObject({ status: 500, paymentId: expect.stringMatching(/^pay_/) })
    expect((await get(`/payments/${failed.paymentId}`)).body.payment_status).toBe('voided')

    const bought =
      name === 'workerd'
        ? await (await ask(`buy?url=${url}/hono`)).json()
        : await runHere(`${command} ${url}/hono`, env)
            .line(/^\{/)
            .then((line) => JSON.parse(line))
    expect(bought).toMatchObject({ data: { by: 'hono', paymentId: expect.stringMatching(/^pay_/) } })
    const { body } = await get(`/payments/${bought.paymentId}`)
    expect(body.payment_status).not.toBe('voided')
  },
)

describe('Elysia on Bun', () => {
  let url: string
  let stop: () => Promise<void>
  const open = async (env: Record<string, string>) => {
    const bun = join(folder.path, 'node_modules/.bin/bun')
    const server = runCommand([bun, 'elysia.ts'], { PORT: new URL(url).port, ...env }, { cwd: folder.path })
    stop = () => killAll(server)
    await server.line(/^selling /)
  }

  test('sells through the middleware for fetch, including parsed bodies and failures', async () => {
    url = `http://${loopback}:${await reservePort()}`
    const { providerId, apiKey } = await registerProvider({
      gatewayUrl: stack.api.url,
      name: 'Elysia',
      network: stack.chain.network,
      address: privateKeyToAddress(generatePrivateKey()),
      endpoints: ['weather/:city', 'reports', 'failing'].map((path) => ({
        url: `${url}/${path}`,
        method: path === 'reports' ? 'POST' : 'GET',
        usdcPerUnit: '0.01',
      })),
    })
    await open({ GATEWAY_URL: stack.api.url, PROVIDER_ID: providerId, PROVIDER_API_KEY: apiKey })
    onTestFinished(() => stop())
    const { client } = await newBuyer(stack, '1')
    const { data, paymentId } = await client.request(`${url}/weather/lisbon`)
    expect(data).toEqual({ celsius: 19, paymentId })
    const report = { method: 'POST', body: { city: 'Lisbon' } } as const
    expect((await client.request(`${url}/reports`, report)).data).toMatchObject({ body: { city: 'Lisbon' } })
    const failed = await client.request(`${url}/failing`).catch((error) => error)
    expect((await stack.get(`/payments/${failed.paymentId}`)).body.payment_status).toBe('voided')
    const page = await fetch(`${url}/weather/lisbon`, { headers: { accept: 'text/html,*/*;q=0.8' } })
    expect([page.status, page.headers.get('content-type')]).toEqual([402, 'text/html; charset=utf-8'])
  })

  describe('other spellings of a path', () => {
    beforeAll(async () => {
      url = `http://${loopback}:${await reservePort()}`
      await open({ GATEWAY_URL: 'https://gateway.example', PROVIDER_ID: 'prov_1', MOCK: '1' })
    })
    afterAll(() => stop?.())
    const served = async () => ((await (await fetch(`${url}/served`)).json()) as { served: number }).served

    test.each([...spellings, ...unclearSpellings])('never serves %s without payment', async (path) => {
      const { status } = await askLiterally(url, path)
      expect([400, 402, 404]).toContain(status)
      expect(await served()).toBe(0)
    })

    test('serves a paying client', async () => {
      const { status } = await askLiterally(url, '/weather/lisbon', { authorization: 'x402 mock:mock' })
      expect([status, await served()]).toEqual([200, 1])
    })
  })
})
