import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { get } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { payingMcpClient } from '@tollkeeper/sdk/mcp/index'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { call } from '../support/gateway.ts'
import { registerTools, type ServedGateway, serveGateway, textOf } from '../support/mcp.ts'
import { killAll, type RunningCommand, root, runCommand, untilGone } from '../support/processes.ts'
import { until } from '../support/until.ts'

// `tollkeeper mcp sell` as a process in front of another MCP server, on a real gateway.

let gateway: ServedGateway
let seller: Awaited<ReturnType<typeof registerTools>>
let folder: string

const prices = {
  forecast: '0.05',
  structured: '0.05',
  failing: '0.05',
  refusing: '0.05',
  slow: '0.05',
  seen: '0.05',
  counted: '0.05',
  help: 'free',
}

beforeAll(async () => {
  gateway = await serveGateway()
  seller = await registerTools(gateway, {})
  folder = await mkdtemp(join(tmpdir(), 'mcp-sell-'))
  await writeFile(join(folder, 'prices.json'), JSON.stringify(prices))
})
afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
  await gateway?.close()
})

/** Returns the command's arguments and environment. */
function sellCommand(flags: string[] = [], weather = [process.execPath, 'test/support/weatherServer.ts']) {
  return {
    args: [
      'apps/cli/main.ts',
      'mcp',
      'sell',
      '--prices',
      join(folder, 'prices.json'),
      ...flags,
      '--',
      ...weather,
    ],
    env: {
      TOLLKEEPER_GATEWAY_URL: gateway.url,
      TOLLKEEPER_PROVIDER_ID: seller.providerId,
      TOLLKEEPER_API_KEY: seller.apiKey,
    },
  }
}

/** Starts the command as an agent's host would: as an MCP server on stdio. Returns the MCP client that is connected to it. */
async function startByHost(flags?: string[]) {
  const { args, env } = sellCommand(flags)
  const transport = new StdioClientTransport({
    command: process.execPath,
    args,
    cwd: root,
    stderr: 'pipe',
    env: { ...(process.env as Record<string, string>), ...env },
  })
  let errors = ''
  transport.stderr?.on('data', (chunk) => {
    errors += String(chunk)
  })
  const client = new Client({ name: 'host', version: '1.0.0' })
  await client.connect(transport)
  onTestFinished(() => client.close())
  return { client, transport, errors: () => errors }
}

async function payingOptions() {
  const account = await gateway.buyer(1_000_000n)
  const { url: gatewayUrl, served } = gateway
  return {
    gatewayUrl,
    network: 'localhost' as const,
    account,
    usdcAddress: served.token,
    limits: { perPayment: '1' },
    tabs: false,
  }
}

const forecast = { name: 'forecast', arguments: { city: 'Lisbon' } }
const receiptOf = (result: unknown) =>
  ((result as CallToolResult)._meta?.['tollkeeper/receipt'] ?? {}) as { paymentId: string; status: string }

async function paymentsOf({ address }: { address: string }): Promise<string[]> {
  const rows = await gateway.database<{ id: string }[]>`
    select id from payment where payer = ${address.toLowerCase()}`
  const answers = await Promise.all(rows.map(({ id }) => call(gateway.app, 'GET', `/payments/${id}`)))
  return answers.map(({ body }) => String(body.payment_status))
}

test('default: charges for tools and forwards everything else unchanged', async () => {
  const { client, errors } = await startByHost()
  const { tools } = await client.listTools()
  expect(tools.map(({ name }) => name)).toEqual([...Object.keys(prices)])
  expect(tools[0]?._meta).toMatchObject({ 'tollkeeper/price': { usdc: '0.05' } })
  expect(tools.at(-1)?._meta).toBeUndefined()
  expect(textOf(await client.callTool({ name: 'help' }))).toBe('Ask for the forecast')
  expect(await client.readResource({ uri: 'weather://lisbon' })).toMatchObject({
    contents: [{ text: 'Sunny' }],
  })
  expect(await client.getPrompt({ name: 'ask' })).toMatchObject({ messages: [{ role: 'user' }] })

  const unpaid = (await client.callTool(forecast)) as CallToolResult
  expect(unpaid).toMatchObject({
    isError: true,
    structuredContent: { resource: { url: 'mcp://tool/forecast' } },
  })
  const paying = payingMcpClient(client, await payingOptions())
  const result = await paying.callTool(forecast)
  expect(textOf(result)).toBe('Lisbon: 19 °C')
  expect(receiptOf(result).status).toBe('verified')
  expect(await paying.callTool({ name: 'structured' })).toMatchObject({ structuredContent: { celsius: 19 } })

  // The command registered the tool, at the price in the file and with the server's own description.
  const { providerId, apiKey: key } = seller
  const { body } = await call<{ endpoints: object[] }>(
    gateway.app,
    'GET',
    `/providers/${providerId}/endpoints`,
    { key },
  )
  expect(body.endpoints).toHaveLength(7)
  expect(body.endpoints).toContainEqual(
    expect.objectContaining({
      url: 'mcp://tool/forecast',
      description: 'Weather of tomorrow',
      pricing: { usdcPerUnit: '0.050000' },
    }),
  )
  expect(errors()).toContain('weather server started')
  expect(errors()).toContain('unlisted has no price and is not served')
})

test('behavior: does not serve a tool that the configuration file does not name', async () => {
  const { client } = await startByHost()
  await expect(client.callTool({ name: 'unlisted' })).rejects.toMatchObject({ code: -32602 })
})

test.each([
  ['failing', { isError: true }],
  ['refusing', { code: -32042 }],
])('behavior: does not charge a call of the tool `%s`', async (name, outcome) => {
  const { client } = await startByHost()
  const options = await payingOptions()
  const answer = await payingMcpClient(client, options)
    .callTool({ name })
    .catch((error) => error)
  expect(answer).toMatchObject(outcome)
  expect(await paymentsOf(options.account)).toEqual(['voided'])
})

test('behavior: forwards neither payments nor the key to the server', async () => {
  const { client } = await startByHost()
  const result = await payingMcpClient(client, await payingOptions()).callTool({
    name: 'seen',
    _meta: { own: 1 },
  })
  const seen = JSON.parse(textOf(result)) as { meta: string[]; env: string[] }
  expect(seen.meta).toEqual(['own'])
  expect(seen.env).toContain('TOLLKEEPER_PROVIDER_ID')
  expect(seen.env).not.toContain('TOLLKEEPER_API_KEY')
})

test('behavior: forwards progress and cancellation, and charges a cancelled call that has begun', async () => {
  const { client, errors } = await startByHost()
  const options = await payingOptions()
  const controller = new AbortController()
  const progress: number[] = []
  const paying = payingMcpClient(client, options)
  const slow = paying.callTool({ name: 'slow' }, undefined, {
    signal: controller.signal,
    onprogress: (one) => {
      progress.push(one.progress)
      controller.abort()
    },
  })
  await expect(slow).rejects.toMatchObject({ code: 'aborted' })
  await until('the wrapped server has received the cancellation', () =>
    errors().includes('slow was cancelled'),
  )
  expect(progress).toEqual([1])
  expect(await paymentsOf(options.account)).toEqual(['verified'])
  // The cancelled call gets no response, and no other response takes its place.
  await expect(paying.callTool({ name: 'slow' })).rejects.toMatchObject({
    code: 'payment_replayed',
    message: expect.stringContaining('its response was broken off'),
  })
  expect(await paymentsOf(options.account)).toEqual(['verified'])
})

test('behavior: if a payment is presented again in another session, returns the result of the first call without running the tool again', async () => {
  const { args, env } = sellCommand(['--http', '0'])
  const running = runCommand([process.execPath, ...args], env)
  onTestFinished(() => killAll(running))
  const [url = ''] = /http:\S+/.exec(await running.line(/listening on/)) ?? []
  const connect = async () => {
    const client = new Client({ name: 'remote', version: '1.0.0' })
    await client.connect(new StreamableHTTPClientTransport(new URL(url)) as never)
    onTestFinished(() => client.close())
    return client
  }
  const first = await connect()
  let _meta: Parameters<Client['callTool']>[0]['_meta']
  const watched = {
    callTool(...args: Parameters<Client['callTool']>) {
      _meta = args[0]._meta
      return first.callTool(...args)
    },
  }
  const counted = { name: 'counted' }
  const paying = payingMcpClient(watched as never as Client, await payingOptions())
  expect(textOf(await paying.callTool(counted))).toBe('1')
  const again = await (await connect()).callTool({ ...counted, _meta })
  expect([textOf(again), again._meta]).toEqual([
    '1',
    expect.objectContaining({ 'tollkeeper/replayed': true }),
  ])
  expect(textOf(await paying.callTool(counted))).toBe('2')
})

test('behavior: over standard input, keeps running if a call’s tool name is not a string', async () => {
  const { client } = await startByHost()
  const odd = { name: { toString: 1 } } as never
  await expect(client.callTool(odd)).rejects.toMatchObject({ code: -32602 })
  const paying = payingMcpClient(client, await payingOptions())
  expect(textOf(await paying.callTool(forecast))).toBe('Lisbon: 19 °C')
})

test('behavior: `mcp sell` and the server that it sells stop when their host stops', async () => {
  const { client, transport, errors } = await startByHost()
  const { pid } = transport
  await client.close()
  await until('the wrapped server has ended', () => errors().includes('weather server ended'))
  await until('the command has ended', () => {
    try {
      return !process.kill(pid ?? 0, 0)
    } catch {
      return true
    }
  })
})

test('behavior: starts a separate server per HTTP session, rejects browser pages, and stops all servers on a signal', async () => {
  const { args, env } = sellCommand(['--http', '0'])
  const running: RunningCommand = runCommand([process.execPath, ...args], env)
  onTestFinished(() => killAll(running))
  const [url = ''] = /http:\S+/.exec(await running.line(/listening on/)) ?? []
  const connect = async () => {
    const client = new Client({ name: 'remote', version: '1.0.0' })
    await client.connect(new StreamableHTTPClientTransport(new URL(url)) as never)
    return payingMcpClient(client, { ...(await payingOptions()), serverUrl: url })
  }
  const clients = await Promise.all([connect(), connect()])
  const results = await Promise.all(clients.map((client) => client.callTool(forecast)))
  expect(results.map(textOf)).toEqual(['Lisbon: 19 °C', 'Lisbon: 19 °C'])
  await Promise.all(clients.map((client) => client.close()))

  const initialize = { jsonrpc: '2.0', id: 1, method: 'initialize', params: {} }
  const post = async (headers: Record<string, string>, body: object = initialize) => {
    const answer = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...headers,
      },
      body: JSON.stringify(body),
    })
    return answer.status
  }
  expect(await post({ origin: 'https://evil.example' })).toBe(403)
  expect(await post({ 'mcp-session-id': 'none' })).toBe(404)
  expect(await post({}, { jsonrpc: '2.0', id: 1, method: 'tools/call', params: forecast })).toBe(400)

  // A stranger without a payment can fail only its own call.
  const stranger = new Client({ name: 'stranger', version: '1.0.0' })
  await stranger.connect(new StreamableHTTPClientTransport(new URL(url)) as never)
  await expect(stranger.callTool({ name: { toString: 1 } } as never)).rejects.toMatchObject({ code: -32602 })
  await stranger.close()
  const later = await connect()
  expect(textOf(await later.callTool(forecast))).toBe('Lisbon: 19 °C')
  await later.close()
  const { port } = new URL(url)
  const rebound = await new Promise((resolve) => {
    get(url, { headers: { host: `evil.example:${port}` } }, ({ statusCode }) => resolve(statusCode))
  })
  expect(rebound).toBe(403)

  running.child.kill('SIGTERM')
  expect(await running.exited).toBe(0)
  await untilGone(running)
})

test('behavior: limits HTTP sessions by the client address that a trusted proxy reports', async () => {
  // `cat` never responds, so each session stays busy and is not ended for another one.
  const { args, env } = sellCommand(['--http', '0', '--trusted-proxies', '1'], ['cat'])
  const running = runCommand([process.execPath, ...args], env)
  onTestFinished(() => killAll(running))
  const [url = ''] = /http:\S+/.exec(await running.line(/listening on/)) ?? []
  const clientInfo = { name: 'buyer', version: '1.0.0' }
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo }
  const begin = async (address: string) => {
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'x-forwarded-for': address,
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params }),
    })
    await response.body?.cancel()
    return response.status
  }
  for (let n = 0; n < 16; n++) expect(await begin('192.0.2.1')).toBe(200)
  expect([await begin('192.0.2.1'), await begin('192.0.2.2')]).toEqual([503, 200])
})

test.each([
  ['a server that does not exist', [], ['no-such-program'], 'server_not_started'],
  ['a price file that does not exist', ['--prices', '/no/such/file'], undefined, 'unreadable_file'],
])(
  'error: `mcp sell` exits with status 2 and an error code, if started with %s',
  async (_, flags, weather, code) => {
    const { args, env } = sellCommand(flags, weather)
    const running = runCommand([process.execPath, ...args], env)
    expect(await running.exited).toBe(2)
    expect(running.output()).toContain(`(${code})`)
  },
)
