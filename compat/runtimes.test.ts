import { cp, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { build } from 'esbuild'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { beforeAll, expect, onTestFinished, test } from 'vitest'
import { registerProvider } from '../apps/devstack/stack/registerProvider.ts'
import { installPackages } from '../test/support/installed.ts'
import { killAll, root, runCommand } from '../test/support/processes.ts'
import { useTestStack } from '../test/support/stack.ts'
import { until } from '../test/support/until.ts'
import { useInstalled } from './install.ts'

// The built SDK in runtimes other than Node. The keeper waits its usual hour: a payment that it has claimed can't be voided any more.

const stack = useTestStack({
  // Transactions don't wait for a block, and each idle block costs every process time.
  chain: { network: 'base-sepolia', blockTimeMs: 5_000 },
})
const folder = useInstalled('runtimes')
beforeAll(async () => {
  for (const name of ['jose', 'viem', 'hono'])
    await symlink(join(root, 'node_modules', name), join(folder.path, 'node_modules', name))
  const { sdk } = await installPackages()
  await cp(sdk, join(folder.path, 'node_modules/@tollkeeper/sdk'), { recursive: true })
  // As wrangler does it.
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
  'behavior: %s sells by /fetch and /hono, voids what it fails to serve, and buys',
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
      maxPaymentUsdc: '0.01',
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
