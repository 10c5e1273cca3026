import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseEnv } from 'node:util'
import { isPortFree } from '@tollkeeper/runtime/port'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest'
import { installPackages } from '../support/installed.ts'
import { killAll, type RunningCommand, runCommand, untilGone } from '../support/processes.ts'
import { startProduction } from '../support/production.ts'

let folder: string
const started: RunningCommand[] = []
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-dev-'))
  // If we run as root, Postgres runs as another user, which must be able to read the folder.
  await chmod(folder, 0o755)
})
afterEach(async () => {
  await Promise.all(started.splice(0).map(killAll))
  await rm(folder, { recursive: true, force: true })
})

/** Runs the installed `tollkeeper dev`. */
const dev = (...args: string[]) => devBeside({}, ...args)

async function devBeside(env: Record<string, string>, ...args: string[]): Promise<RunningCommand> {
  const { bin, folder: cwd } = await installPackages()
  const command = runCommand([bin, 'dev', ...args], { ...env, TMPDIR: folder }, { cwd })
  started.push(command)
  return command
}

/**
 * A seller's program next to the installed packages. The program uses these packages and its environment variables,
 * and chooses its exit status.
 */
const seller = `
  import { existsSync } from 'node:fs'
  import { createServer, request } from 'node:http'
  import { createClient } from '@tollkeeper/sdk'
  import { requirePayment } from '@tollkeeper/sdk/express'
  import { startTollkeeper } from 'tollkeeper/testing'
  const { NETWORK: network, WALLET_PRIVATE_KEY: walletPrivateKey, USDC_ADDRESS: usdcAddress } = process.env
  const { CONTROL_URL, GATEWAY_URL, FACILITATOR_URL, PROVIDER_ID, PROVIDER_API_KEY, PORT, PAY_TO } = process.env
  const control = new URL('/state', CONTROL_URL)
  const ask = async (url, init) => {
    const answer = await fetch(url, init)
    const { code } = await answer.json()
    return [answer.status, code]
  }
  const post = (path, body) => ask(new URL(path, CONTROL_URL), { method: 'POST', body: JSON.stringify(body) })
  const asRebound = () => new Promise((resolve) => request(control, { headers: { host: 'evil.example' } }, ({ statusCode }) => resolve(statusCode)).end())
  const key = { authorization: 'Bearer ' + PROVIDER_API_KEY }
  const paid = requirePayment({ gatewayUrl: GATEWAY_URL, providerId: PROVIDER_ID, apiKey: PROVIDER_API_KEY, pricing: { usdcPerUnit: '0.01' } })
  const server = createServer((request, response) => paid(request, response, () => response.setHeader('content-type', 'text/plain').end('served')))
  await new Promise((resolve) => server.listen(Number(PORT), '127.0.0.1', resolve))
  const client = createClient({ gatewayUrl: GATEWAY_URL, network, walletPrivateKey, usdcAddress, limits: { perPayment: '0.01' }, tabs: false })
  const { RPC_URL_BASE_SEPOLIA, DEPLOYMENTS_FILE } = process.env
  const chainId = async () => (await (await fetch(RPC_URL_BASE_SEPOLIA, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_chainId' }) })).json()).result
  console.log(JSON.stringify({
    world: [network, usdcAddress, await chainId(), existsSync(DEPLOYMENTS_FILE)],
    kinds: (await (await fetch(FACILITATOR_URL + '/supported')).json()).kinds.map(({ network }) => network),
    paid: [(await client.request('http://127.0.0.1:' + PORT + '/weather')).data, typeof startTollkeeper],
    settled: Object.values((await (await fetch(new URL('/settle', CONTROL_URL), { method: 'POST' })).json()).payments),
    endpoints: (await (await fetch(GATEWAY_URL + '/providers/' + PROVIDER_ID + '/endpoints', { headers: key })).json()).endpoints.map(({ url }) => url === 'http://127.0.0.1:' + PORT + '/*'),
    supported: (await ask(FACILITATOR_URL + '/supported'))[0],
    control: (await ask(control))[0],
    rebound: await asRebound(),
    page: await ask(control, { headers: { origin: GATEWAY_URL } }),
    unknown: await post('/nothing', {}),
    noJson: await ask(new URL('/time', CONTROL_URL), { method: 'POST', body: '{' }),
    tooDeep: await post('/reorg', { depth: 26 }),
    typo: await post('/mine', { block: 1 }),
    mined: (await post('/mine', { blocks: 2 }))[0],
    frozen: [await post('/usdc/blacklist', { address: PAY_TO }), await post('/usdc/blacklist', { address: PAY_TO, blacklisted: false }), await post('/usdc/blacklist', { address: 'nobody' })].map(([status]) => status),
    faults: [await post('/rpc/faults', { kind: 'stall', delayMs: 1 }), await post('/rpc/faults', { kind: 'none' }), await ask(new URL('/rpc/faults', CONTROL_URL), { method: 'DELETE' })].map(([status]) => status),
    paused: [await post('/usdc/pause', {}), await post('/usdc/pause', { paused: false })].map(([status]) => status),
  }))
  process.exit(7)`

test('default: runs a command in an isolated environment and exits with the command’s status, or waits if there is no command', async () => {
  const file = join((await installPackages()).folder, 'seller.mjs')
  await writeFile(file, seller)
  const env = join(folder, 'env')
  const production = await startProduction()
  onTestFinished(production.close)
  const command = await devBeside(production.env, '--', process.execPath, file)
  const waiting = await dev('--write-env', env, '--price', '0.02', '--network', 'localhost')
  expect(await command.exited, command.output()).toBe(7)
  // Standard output has only the command's output.
  expect(JSON.parse(command.stdout())).toEqual({
    world: ['base-sepolia', networks['base-sepolia'].usdc, '0x14a34', true],
    kinds: ['eip155:84532', 'base-sepolia'],
    settled: ['settled'],
    paid: ['served', 'function'],
    endpoints: [true],
    supported: 200,
    control: 200,
    rebound: 403,
    page: [403, 'forbidden'],
    unknown: [404, 'not_found'],
    noJson: [400, 'invalid_json'],
    tooDeep: [422, 'invalid_field'],
    typo: [422, 'invalid_field'],
    mined: 200,
    frozen: [200, 200, 422],
    faults: [200, 422, 200],
    paused: [200, 200],
  })
  expect(production.calls()).toBe(0)
  await untilGone(command)

  await waiting.line(/Ctrl-C stops everything/)
  const variables = parseEnv(await readFile(env, 'utf8'))
  expect(waiting.output()).toContain(`GATEWAY_URL=${variables.GATEWAY_URL}`)
  expect(variables.NETWORK).toBe('localhost')
  expect((await fetch(`${variables.GATEWAY_URL}/readyz`)).status).toBe(200)
  process.kill(-(waiting.child.pid as number), 'SIGINT')
  expect(await waiting.exited).toBe(130)
  await untilGone(waiting)
  for (const name of ['GATEWAY_URL', 'FACILITATOR_URL', 'CONTROL_URL', 'RPC_URL_LOCALHOST']) {
    expect(await isPortFree(Number(new URL(variables[name] as string).port)), name).toBe(true)
  }
  expect((await readdir(folder)).filter((name) => name.startsWith('tollkeeper'))).toEqual([])
})

test('error: rejects a port that is taken or a number that is invalid, and leaves nothing behind', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const taken = await dev('--port', String(port), '--', 'true')
  expect(await taken.exited).toBe(1)
  expect(taken.output()).toContain(`port ${port} is taken`)
  const invalid = await dev('--settle-after', 'soon')
  expect(await invalid.exited).toBe(2)
  expect(invalid.output()).toContain('--settle-after: expected a whole number from 1 to 3600, got "soon"')
  server.close()
})

test('behavior: stops everything at Ctrl-C during the start', async () => {
  const command = await dev()
  await command.line(/starting/)
  process.kill(-(command.child.pid as number), 'SIGINT')
  expect(await command.exited).toBe(130)
  await untilGone(command)
  expect((await readdir(folder)).filter((name) => name.startsWith('tollkeeper'))).toEqual([])
})
