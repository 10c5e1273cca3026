import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { payingMcpClient, requirePayment } from '@tollkeeper/sdk/mcp/index'
import type { PayingMcpOptions } from '@tollkeeper/sdk/mcp/payingMcpClient'
import { decodeReceipt } from '@tollkeeper/sdk/protocol/receipt'
import { encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { x402Client } from '@x402/core/client'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { evm } from 'mppx/client'
import { McpClient } from 'mppx/mcp/client'
import type { Address, PrivateKeyAccount } from 'viem'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { z } from 'zod'
import { call } from '../support/gateway.ts'
import { connectTo, registerTools, type ServedGateway, serveGateway, textOf } from '../support/mcp.ts'
import { randomHex, signAuthorization, validFor } from '../support/usdc.ts'

let gateway: ServedGateway
let seller: Awaited<ReturnType<typeof registerTools>>

const price = '0.05'
const tools = {
  'mcp://tool/forecast': price,
  'mcp://tool/history': '0.06',
  'mcp://tool/structured': price,
  'mcp://tool/failing': price,
  'mcp://tool/throwing': price,
  'mcp://tool/metered': '0.01',
  'mcp://tool/cheap': '0.01',
  'mcp://tool/east/search': price,
  'mcp://tool/west/search': price,
}

beforeAll(async () => {
  gateway = await serveGateway()
  seller = await registerTools(gateway, tools)
})
afterAll(() => gateway?.close())

/** Opens a server whose tools are sold, and counts how often each ran. */
function openServer(options: Partial<Parameters<typeof requirePayment>[0]> = {}) {
  const { endpointIds: _, ...provider } = seller
  const ran: Record<string, number> = {}
  const server = new McpServer({ name: 'weather', version: '1.0.0' })
  const paidAt = (usdcPerUnit: string) =>
    requirePayment({ ...provider, pricing: { usdcPerUnit }, ...options })(server)
  const paid = paidAt(price)
  const count = (name: string) => {
    ran[name] = (ran[name] ?? 0) + 1
  }
  const say = (text: string): CallToolResult => ({ content: [{ type: 'text', text }] })
  const city = z.string()
  paid.registerTool('forecast', { inputSchema: { city } }, (args, { payment }) => {
    count('forecast')
    return say(`${args.city}: 19 °C, ${payment.paymentId}`)
  })
  paidAt('0.06').registerTool('history', {}, () => {
    count('history')
    return say('18 °C')
  })
  paid.registerTool('structured', { outputSchema: { celsius: z.number() } }, () => {
    count('structured')
    return { ...say('19'), structuredContent: { celsius: 19 } }
  })
  paid.registerTool('failing', {}, () => ({ ...say('no weather'), isError: true }))
  paid.registerTool('throwing', {}, () => {
    throw new Error('out of weather')
  })
  paidAt('0.01').registerTool('metered', { inputSchema: { usdc: z.string() } }, async (args, { payment }) =>
    say(String(await payment.charge(args.usdc))),
  )
  paidAt('0.01').registerTool('cheap', {}, () => say('cheap'))
  server.registerTool('free', {}, () => say('free'))
  return { server, ran }
}

/** Returns the options of a paying client; each buyer is a new account with 1 USDC. */
async function buyerOptions(more: Partial<PayingMcpOptions> = {}): Promise<PayingMcpOptions> {
  const account = await gateway.buyer(1_000_000n)
  return {
    gatewayUrl: gateway.url,
    network: 'localhost',
    account,
    usdcAddress: gateway.served.token,
    limits: { perPayment: '1' },
    tabs: false,
    ...more,
  }
}

const forecast = { name: 'forecast', arguments: { city: 'Lisbon' } }
const meta = (result: unknown) => (result as CallToolResult)._meta as Record<string, never>
const receiptOf = (result: unknown) =>
  meta(result)['tollkeeper/receipt'] as unknown as {
    paymentId: string
    status: string
    receipt?: string
    charged?: string
  }

async function statusOf(paymentId: string): Promise<unknown> {
  const { body } = await call(gateway.app, 'GET', `/payments/${paymentId}`)
  return body.payment_status
}

async function paymentsOf({ address }: { address: Address }): Promise<number> {
  const [row] = await gateway.database<[{ count: number }]>`
    select count(*)::int as count from payment where payer = ${address.toLowerCase()}`
  return row.count
}

describe('payingMcpClient and requirePayment', () => {
  test('default: pays for a call and gets its result', async () => {
    const { server, ran } = openServer()
    const receipts: string[] = []
    const options = await buyerOptions({ onReceipt: ({ paymentId }) => void receipts.push(`${paymentId}`) })
    const client = payingMcpClient(await connectTo(server), options)
    const result = await client.callTool(forecast)
    const { paymentId, status, receipt } = receiptOf(result)
    expect(textOf(result)).toBe(`Lisbon: 19 °C, ${paymentId}`)
    expect(status).toBe('verified')
    expect(decodeReceipt(receipt ?? '')).toMatchObject({ paymentId, resource: 'mcp://tool/forecast' })
    expect(receipts).toEqual([paymentId])
    expect(await statusOf(paymentId)).toBe('verified')
    expect(textOf(await client.callTool({ name: 'free' }))).toBe('free')
    expect(ran).toEqual({ forecast: 1 })
  })
})

/** The payment request in the result of an unpaid call, as a standard client reads it. */
type Asked = { x402Version: number; accepts: Record<string, never>[]; resource: { url: string } }

async function signStandard(account: PrivateKeyAccount, asked: Asked): Promise<object> {
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(account)).setSpendControls(false)
  return client.createPaymentPayload(asked as never)
}

/** Sign a v1 client's header by hand, because version 1 knows no test chain. */
async function signV1(account: PrivateKeyAccount, { accepts: [entry] }: Asked): Promise<string> {
  const { maxAmountRequired, payTo, network, scheme } = entry as unknown as Record<string, string>
  const { signature, ...authorization } = await signAuthorization(gateway.served, account, {
    from: account.address,
    to: payTo as Address,
    value: BigInt(maxAmountRequired ?? 0),
    ...validFor(93_600),
    nonce: randomHex(32),
  })
  const texts = Object.fromEntries(
    Object.entries(authorization).map(([name, value]) => [name, String(value)]),
  )
  const payload = { signature, authorization: texts }
  return encodePaymentHeader({ x402Version: 1, scheme, network, payload })
}

describe('requirePayment in each dialect', () => {
  test('behavior: an unpaid call asks for payment in four dialects at once', async () => {
    const { server, ran } = openServer()
    const client = await connectTo(server)
    const asked = (await client.callTool(forecast)) as CallToolResult
    const required = JSON.parse(textOf(asked))
    expect(asked.isError).toBe(true)
    expect(required).toMatchObject({
      x402Version: 2,
      resource: { url: 'mcp://tool/forecast' },
      accepts: [{ scheme: 'exact', network: 'eip155:31337', amount: '50000' }, { scheme: 'tab' }],
    })
    expect(asked.structuredContent).toEqual(required)
    expect(meta(asked)['x402/error']).toEqual(required)
    expect(JSON.parse((asked.content[1] as { text: string }).text)).toMatchObject({
      x402Version: 1,
      accepts: [{ maxAmountRequired: '50000', resource: 'mcp://tool/forecast', network: 'localhost' }],
    })
    expect(meta(asked)['org.paymentauth/payment-required']).toMatchObject({
      challenges: [{ method: 'evm', intent: 'charge', request: { amount: '50000' } }],
    })
    expect(asked).not.toHaveProperty('resultType')
    expect(ran).toEqual({})
  })

  test('args: accepts a payment as an object, as the specification defines it', async () => {
    const { server } = openServer()
    const client = await connectTo(server)
    const account = await gateway.buyer(1_000_000n)
    const asked = (await client.callTool(forecast)).structuredContent as Asked
    const payment = await signStandard(account, asked)
    const result = await client.callTool({ ...forecast, _meta: { 'x402/payment': payment } })
    const { paymentId } = receiptOf(result)
    expect(textOf(result)).toBe(`Lisbon: 19 °C, ${paymentId}`)
    expect(meta(result)['x402/payment-response']).toMatchObject({
      success: true,
      network: 'eip155:31337',
      payer: account.address.toLowerCase(),
    })
  })

  test('args: accepts a payment of the `agents` library: base64 under `x402/payment`', async () => {
    const { server } = openServer()
    const client = await connectTo(server)
    const asked = meta(await client.callTool(forecast))['x402/error'] as unknown as Asked
    const payment = await signStandard(await gateway.buyer(1_000_000n), asked)
    const token = btoa(JSON.stringify(payment))
    const result = await client.callTool({ ...forecast, _meta: { 'x402/payment': token } })
    expect(meta(result)['x402/payment-response']).toMatchObject({ success: true })
  })

  test('args: accepts a payment of the `x402-mcp` library: the v1 header under `x402.payment`', async () => {
    const { server } = openServer()
    const client = await connectTo(server)
    const { content } = (await client.callTool(forecast)) as CallToolResult
    const asked = JSON.parse((content[1] as { text: string }).text) as Asked
    const header = await signV1(await gateway.buyer(1_000_000n), asked)
    const result = await client.callTool({ ...forecast, _meta: { 'x402.payment': header } })
    expect(meta(result)['x402.payment-response']).toMatchObject({ success: true, network: 'localhost' })
  })

  test('args: accepts a payment from an unmodified mppx client', async () => {
    const { server } = openServer()
    const account = await gateway.buyer(1_000_000n)
    const authorization = gateway.served.network.eip712
    const client = McpClient.wrap(await connectTo(server), {
      methods: [evm.charge({ account, authorization })],
    })
    const result = await client.callTool(forecast as never)
    const { paymentId } = receiptOf(result)
    expect(textOf(result)).toBe(`Lisbon: 19 °C, ${paymentId}`)
    expect(result.receipt).toMatchObject({ method: 'evm', status: 'success', reference: paymentId })
  })

  test('behavior: a client that announces MPP gets MPP’s JSON-RPC error, and can pay with it', async () => {
    const { server } = openServer()
    const extensions = { 'org.paymentauth/payment': {} }
    const plain = await connectTo(server, { capabilities: { extensions } })
    await expect(plain.callTool(forecast)).rejects.toMatchObject({
      code: -32042,
      data: { httpStatus: 402, challenges: [{ method: 'evm' }] },
    })
    const account = await gateway.buyer(1_000_000n)
    const authorization = gateway.served.network.eip712
    const client = McpClient.wrap(plain, { methods: [evm.charge({ account, authorization })] })
    expect(await client.callTool(forecast as never)).toMatchObject({ receipt: { status: 'success' } })
  })

  test('behavior: uses the experimental extension with a client that announces it', async () => {
    const { server } = openServer()
    const client = await connectTo(server)
    const clientCapabilities = { extensions: { 'org.x402/payment': {} } }
    const shown = { 'io.modelcontextprotocol/clientCapabilities': clientCapabilities }
    const asked = (await client.callTool({ ...forecast, _meta: shown })) as CallToolResult
    expect(asked).toMatchObject({ resultType: 'payment_required', paymentRequired: asked.structuredContent })
  })

  test('behavior: puts the price of a tool with an outputSchema into text and _meta, which hosts don’t check against the schema', async () => {
    const { server } = openServer()
    const client = await connectTo(server)
    // From here on, the client checks structured content against the schema.
    const { tools: listed } = await client.listTools()
    expect(listed.find(({ name }) => name === 'structured')?._meta).toMatchObject({
      'tollkeeper/price': { usdc: price },
    })
    const asked = (await client.callTool({ name: 'structured' })) as CallToolResult
    expect(asked.structuredContent).toBeUndefined()
    expect(JSON.parse(textOf(asked))).toEqual(meta(asked)['x402/error'])
    const paying = payingMcpClient(client, await buyerOptions())
    expect(await paying.callTool({ name: 'structured' })).toMatchObject({
      structuredContent: { celsius: 19 },
    })
  })
})

describe('failed calls are not charged', () => {
  test.each([
    ['failing', 'no weather'],
    ['throwing', 'out of weather'],
  ])('behavior: does not charge a failed call of the tool `%s`', async (name, said) => {
    const client = payingMcpClient(await connectTo(openServer().server), await buyerOptions())
    const result = await client.callTool({ name })
    expect(result.isError).toBe(true)
    expect(textOf(result)).toBe(said)
    const { paymentId, status, receipt } = receiptOf(result)
    expect([status, receipt]).toEqual(['voided', undefined])
    expect(meta(result)).not.toHaveProperty(['x402/payment-response'])
    expect(await statusOf(paymentId)).toBe('voided')
  })

  test('behavior: a paid tool still requires payment after an update', async () => {
    const { endpointIds: _, ...provider } = seller
    const server = new McpServer({ name: 'weather', version: '1.0.0' })
    const paid = requirePayment({ ...provider, pricing: { usdcPerUnit: price } })(server)
    const tool = paid.registerTool('forecast', {}, () => ({ content: [{ type: 'text', text: 'old' }] }))
    tool.update({ callback: () => ({ content: [{ type: 'text', text: 'new' }] }) })
    const client = await connectTo(server)
    expect((await client.callTool({ name: 'forecast' })).isError).toBe(true)
    const paying = payingMcpClient(client, await buyerOptions())
    expect(textOf(await paying.callTool({ name: 'forecast' }))).toBe('new')
  })

  test('error: neither serves nor charges a call while the gateway is down', async () => {
    const { server, ran } = openServer({ gatewayUrl: 'http://127.0.0.1:9', timeout: 500 })
    const client = await connectTo(server)
    const result = (await client.callTool(forecast)) as CallToolResult
    expect(result.isError).toBe(true)
    expect(meta(result)['tollkeeper/problem']).toMatchObject({ status: 503, code: 'dependency_unavailable' })
    const options = await buyerOptions()
    const paying = payingMcpClient(client, options)
    await expect(paying.callTool(forecast)).rejects.toMatchObject({
      code: 'dependency_unavailable',
      status: 503,
      payment: undefined,
    })
    expect(ran).toEqual({})
  })
})

describe('a hostile client', () => {
  async function payFor(name: string) {
    const { server, ran } = openServer()
    const client = await connectTo(server)
    const account = await gateway.buyer(1_000_000n)
    const call = { ...forecast, name }
    // If a tool declares an outputSchema, the price isn't in `structuredContent`.
    const asked = meta(await client.callTool(call))['x402/error'] as unknown as Asked
    const payment = (await signStandard(account, asked)) as Record<string, object>
    return { client, ran, payment, account }
  }
  const problemOf = (result: unknown) => meta(result)['tollkeeper/problem'] as unknown as { code: string }

  test('error: refuses a payment for another tool, at the same price or at another price', async () => {
    for (const [paid, taken] of [
      ['structured', 'forecast'],
      ['cheap', 'history'],
    ] as const) {
      const { client, ran, payment, account } = await payFor(paid)
      const result = await client.callTool({ ...forecast, name: taken, _meta: { 'x402/payment': payment } })
      expect(result.isError).toBe(true)
      expect(meta(result)['tollkeeper/challenge']).toMatchObject({ verified: false })
      expect([ran, await paymentsOf(account)]).toEqual([{}, 0])
    }
  })

  test('error: accepts a payment once: simultaneous calls with that payment get the same answer, and a call with other arguments is rejected', async () => {
    const { client, ran, payment, account } = await payFor('forecast')
    const call = { ...forecast, _meta: { 'x402/payment': payment } }
    const twins = await Promise.all(Array.from({ length: 5 }, () => client.callTool(call)))
    const replayed = twins.filter((twin) => meta(twin)['tollkeeper/replayed'])
    expect([twins.filter((twin) => twin.isError).length, replayed.length]).toEqual([0, 4])
    expect(new Set(twins.map(({ content }) => JSON.stringify(content))).size).toBe(1)
    const other = await client.callTool({ ...call, arguments: { city: 'Porto' } })
    expect(problemOf(other)).toMatchObject({ code: 'payment_replayed', status: 409 })
    expect([ran, await paymentsOf(account)]).toEqual([{ forecast: 1 }, 1])
  })

  test('error: refuses a payment of less than the price, and a payment to another wallet', async () => {
    const { client, ran, payment, account } = await payFor('forecast')
    const { accepted } = payment as { accepted: Record<string, string> }
    for (const change of [{ amount: '10000' }, { payTo: account.address }]) {
      const changed = await signStandard(account, {
        x402Version: 2,
        resource: { url: 'mcp://tool/forecast' },
        accepts: [{ ...accepted, ...change } as never],
      })
      const result = await client.callTool({ ...forecast, _meta: { 'x402/payment': changed } })
      expect(result.isError).toBe(true)
    }
    expect([ran, await paymentsOf(account)]).toEqual([{}, 0])
  })

  test('error: rejects two payments in one call, and anything that is not a payment', async () => {
    const { client, ran, payment, account } = await payFor('forecast')
    let deep: object = {}
    for (let i = 0; i < 5_000; i++) deep = { deep }
    const hostile: Record<string, unknown>[] = [
      { 'x402/payment': payment, 'x402.payment': btoa(JSON.stringify(payment)) },
      { 'x402/payment': payment, 'org.paymentauth/credential': {} },
      { 'x402/payment': { ...payment, more: 'x'.repeat(1_000_000) } },
      { 'x402/payment': 'x'.repeat(1_000_000) },
      { 'x402/payment': { ...payment, deep } },
      ...[42, [], null, '', {}, { x402Version: 2 }].map((value) => ({ 'x402/payment': value })),
      { 'x402.payment': payment },
      { 'tollkeeper/authorization': payment },
      { 'tollkeeper/authorization': 'x402 mock:mock' },
      { 'org.paymentauth/credential': { challenge: {}, payload: {} } },
      { 'org.paymentauth/credential': { challenge: { opaque: 'e30' }, payload: {} } },
    ]
    for (const _meta of hostile) {
      // A client that announces MPP gets the price as MPP's error.
      const result = await client.callTool({ ...forecast, _meta }).catch(() => ({ isError: true }))
      expect([Object.keys(_meta), result.isError]).toEqual([Object.keys(_meta), true])
    }
    expect([ran, await paymentsOf(account)]).toEqual([{}, 0])
  })
})

describe('payingMcpClient', () => {
  test('behavior: parallel calls never exceed a limit', async () => {
    const { server, ran } = openServer()
    const options = await buyerOptions({ limits: { perDay: '0.15' } })
    const client = payingMcpClient(await connectTo(server), options)
    const calls = Array.from({ length: 10 }, () => client.callTool(forecast))
    const ended = await Promise.allSettled(calls)
    const refused = ended.filter(({ status }) => status === 'rejected')
    expect(refused).toHaveLength(7)
    for (const one of refused)
      expect(one).toMatchObject({ reason: { code: 'spending_limit_exceeded', payment: undefined } })
    expect(ran).toEqual({ forecast: 3 })
  })

  test('args: limits.hosts and limits.onPayment use serverUrl; without it, no host is allowed', async () => {
    const { server } = openServer()
    const mcp = await connectTo(server)
    const asked: string[] = []
    const options = await buyerOptions({
      limits: { hosts: ['mcp.example'], onPayment: ({ url, host }) => void asked.push(url, host) },
      serverUrl: 'https://mcp.example/mcp',
    })
    await payingMcpClient(mcp, options).callTool(forecast)
    expect(asked).toEqual(['https://mcp.example/mcp#forecast', 'mcp.example'])
    const { serverUrl: _, ...unnamed } = options
    const refused = { code: 'host_not_allowed' }
    await expect(payingMcpClient(mcp, unnamed).callTool(forecast)).rejects.toMatchObject(refused)
    const elsewhere = { ...options, serverUrl: 'https://other.example' }
    await expect(payingMcpClient(mcp, elsewhere).callTool(forecast)).rejects.toMatchObject(refused)
    expect(() => payingMcpClient(mcp, { ...options, serverUrl: 'nowhere' })).toThrow(TypeError)
  })

  test('behavior: a tab charges many calls, except failed calls, and charges less if charge() lowers a call’s price', async () => {
    const { server } = openServer()
    const options = await buyerOptions({ tabs: true })
    const client = payingMcpClient(await connectTo(server), options)
    const bought = async () => (await client.tabs()).flatMap(({ lines }) => lines.map((line) => line.bought))
    await client.callTool(forecast)
    await client.callTool({ name: 'failing' })
    const second = await client.callTool(forecast)
    expect(await bought()).toEqual([100_000n])
    expect(meta(second)['x402/payment-response']).toMatchObject({ extra: { tab: { sequence: 3 } } })
    const metered = await client.callTool({ name: 'metered', arguments: { usdc: '0.004' } })
    expect([textOf(metered), receiptOf(metered).charged]).toEqual(['true', '0.004000'])
    expect((await bought()).reduce((sum, one) => sum + one)).toBe(104_000n)
    await client.closeTabs()
    expect(await client.tabs()).toEqual([])
  })

  test('behavior: presents the same payment again if the answer to a call is lost', async () => {
    const { server, ran } = openServer()
    const options = await buyerOptions()
    const account = options.account as PrivateKeyAccount
    const mcp = await connectTo(server)
    const lossy = {
      calls: 0,
      payments: new Set<string>(),
      async callTool(...args: Parameters<Client['callTool']>) {
        const result = await mcp.callTool(...args)
        const payment = args[0]._meta?.['tollkeeper/authorization']
        if (typeof payment === 'string') lossy.payments.add(payment)
        if (payment !== undefined && ++lossy.calls === 1)
          throw Object.assign(new Error('Request timed out'), { code: -32001 })
        return result
      },
    }
    const client = payingMcpClient(lossy as never as Client, options)
    await expect(client.callTool(forecast)).rejects.toMatchObject({ code: 'timeout', payment: {} })
    // The seller repeats its response.
    expect(meta(await client.callTool(forecast))['tollkeeper/replayed']).toBe(true)
    expect([ran, lossy.payments.size, await paymentsOf(account)]).toEqual([{ forecast: 1 }, 1, 1])
    // The same call after that response is a new purchase.
    await client.callTool(forecast)
    expect(await paymentsOf(account)).toBe(2)
  })

  test('error: does not pay a challenge for another tool or for an HTTP resource', async () => {
    const { server: real } = openServer()
    const mcp = await connectTo(real)
    for (const relayed of ['history', 'http']) {
      const asked = (await mcp.callTool({ ...forecast, name: 'history' })) as CallToolResult
      const challenge = structuredClone(meta(asked)['tollkeeper/challenge']) as unknown as {
        accepts: { resource: string }[]
      }
      if (relayed === 'http') for (const entry of challenge.accepts) entry.resource = 'https://api.example/x'
      const relay = { callTool: async () => ({ ...asked, _meta: { 'tollkeeper/challenge': challenge } }) }
      const client = payingMcpClient(relay as never as Client, await buyerOptions())
      await expect(client.callTool(forecast)).rejects.toMatchObject({ code: 'challenge_refused' })
    }
  })
})

describe('payingMcpClient at sellers of other gateways', () => {
  const payTo = '0x00000000000000000000000000000000000000aa'
  const entry = (more: object = {}) => ({
    scheme: 'exact',
    network: 'eip155:31337',
    amount: '20000',
    asset: gateway.served.token,
    payTo,
    maxTimeoutSeconds: 60,
    extra: gateway.served.network.eip712,
    ...more,
  })

  /** Calls a server that requests payment with `ask` and accepts any payment. @returns the `_meta` of the paid call. */
  async function buyFrom(ask: object, more: Partial<PayingMcpOptions> = {}) {
    const paid: Record<string, unknown>[] = []
    const other = {
      async callTool({ _meta }: { _meta?: Record<string, unknown> }) {
        if (!_meta) {
          if ('code' in ask) throw Object.assign(new Error('Payment Required'), ask)
          return { isError: true, content: [], ...ask }
        }
        paid.push(_meta)
        return { content: [{ type: 'text', text: 'served' }] }
      },
    }
    const options = await buyerOptions({ otherSellers: true, ...more })
    const client = payingMcpClient(other as never as Client, options)
    const result = await client.callTool(forecast)
    expect(textOf(result)).toBe('served')
    return paid[0] ?? {}
  }

  const authorized = { to: payTo, value: '20000' }

  test('args: pays a server that follows the specification', async () => {
    // This payment is longer than any header.
    const extensions = { bazaar: { schema: 'x'.repeat(20_000) } }
    const resource = { url: 'mcp://tool/forecast' }
    const required = { x402Version: 2, accepts: [entry()], resource, extensions }
    const { 'x402/payment': payment } = await buyFrom({ structuredContent: required })
    expect(payment).toMatchObject({
      x402Version: 2,
      accepted: entry(),
      resource,
      extensions,
      payload: { authorization: authorized },
    })
  })

  test('args: pays an agents server, which reads only base64', async () => {
    const required = { x402Version: 2, accepts: [entry()] }
    const text = [{ type: 'text', text: JSON.stringify(required) }]
    const { 'x402/payment': payment } = await buyFrom({ content: text, _meta: { 'x402/error': required } })
    expect(JSON.parse(atob(String(payment)))).toMatchObject({ payload: { authorization: authorized } })
  })

  test('args: pays an x402-mcp server', async () => {
    const { amount: maxAmountRequired, ...rest } = entry({ network: 'localhost' })
    const required = { x402Version: 1, accepts: [{ ...rest, maxAmountRequired }] }
    const { 'x402.payment': header } = await buyFrom({ structuredContent: required })
    expect(JSON.parse(atob(String(header)))).toMatchObject({
      x402Version: 1,
      scheme: 'exact',
      network: 'localhost',
      payload: { authorization: authorized },
    })
  })

  test.each([
    ['an error', (data: object) => ({ code: -32042, data })],
    ['a result', (data: object) => ({ _meta: { 'org.paymentauth/payment-required': data } })],
  ])('args: pays an MPP server that requests payment by %s', async (_, form) => {
    const expires = new Date(Date.now() + 60_000).toISOString()
    const { token, network } = gateway.served
    const methodDetails = { chainId: network.chainId, credentialTypes: ['authorization'], decimals: 6 }
    const request = { amount: '20000', currency: token, recipient: payTo, methodDetails }
    const challenge = { id: 'abc', realm: 'api.example', method: 'evm', intent: 'charge', request, expires }
    const other = { ...challenge, method: 'tempo' }
    const paid = await buyFrom(form({ challenges: [other, challenge] }))
    expect(paid['org.paymentauth/credential']).toMatchObject({
      challenge,
      payload: {
        type: 'authorization',
        ...authorized,
        validBefore: String(Math.floor(Date.parse(expires) / 1000)),
      },
    })
  })

  test('error: signs nothing beyond the limits, on another chain, in another token or with another scheme', async () => {
    const offered = (more: object) => ({ structuredContent: { x402Version: 2, accepts: [entry(more)] } })
    const refusals: [object, string][] = [
      [offered({ amount: '2000000' }), 'spending_limit_exceeded'],
      [offered({ network: 'eip155:8453' }), 'challenge_refused'],
      [offered({ asset: payTo }), 'challenge_refused'],
      [offered({ scheme: 'upto' }), 'challenge_refused'],
      [offered({ extra: { assetTransferMethod: 'permit2' } }), 'challenge_refused'],
      [offered({ amount: '-1' }), 'challenge_refused'],
    ]
    for (const [ask, code] of refusals) await expect(buyFrom(ask)).rejects.toMatchObject({ code })
  })

  /**
   * Opens a server that returns `answers` to paid calls in turn, and repeats the last one. `shown` are the payments that the
   * server received.
   */
  async function openPaidServer(...answers: (() => object)[]) {
    const asks = { isError: true, content: [], structuredContent: { x402Version: 2, accepts: [entry()] } }
    const shown: string[] = []
    const server = {
      async callTool({ _meta }: { _meta?: Record<string, unknown> }) {
        if (!_meta) return asks
        const answer = answers[Math.min(shown.length, answers.length - 1)]
        shown.push(JSON.stringify(_meta['x402/payment']))
        return answer?.() ?? asks
      },
    }
    const options = await buyerOptions({ otherSellers: true })
    return { client: payingMcpClient(server as never as Client, options), shown }
  }
  const served = () => ({ content: [{ type: 'text', text: 'served' }] })

  test('error: if the server demands payment again, presents the same payment until it expires, and only then presents a new payment', async () => {
    const { client, shown } = await openPaidServer()
    const refused = { status: 402, outcome: 'unknown', isAccepted: undefined, payment: { amount: 20_000n } }
    for (let i = 0; i < 3; i++) await expect(client.callTool(forecast)).rejects.toMatchObject(refused)
    expect([shown.length, new Set(shown).size]).toEqual([3, 1])
    const { advice } = await client.callTool(forecast).catch((error) => error)
    expect(advice).toMatch(/the same payment is presented again/)
    expect(advice).not.toMatch(/gateway/)
    // A call with other arguments is another purchase.
    await expect(client.callTool({ ...forecast, arguments: {} })).rejects.toMatchObject(refused)
    expect(new Set(shown).size).toBe(2)
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 })
    onTestFinished(() => void vi.useRealTimers())
    await expect(client.callTool(forecast)).rejects.toMatchObject(refused)
    expect(new Set(shown).size).toBe(3)
  })

  test('behavior: signs exactly two payments for two simultaneous calls that are rejected', async () => {
    const { client, shown } = await openPaidServer()
    for (let i = 0; i < 3; i++)
      await Promise.allSettled([client.callTool(forecast), client.callTool(forecast)])
    expect([shown.length, new Set(shown).size]).toEqual([6, 2])
  })

  const failing = (code: number) => () => {
    throw Object.assign(new Error('failed'), { code })
  }

  test.each([
    ['a proxy error', 502],
    ['a page instead of an answer', -1],
  ])('behavior: presents the same payment again after %s', async (_, code) => {
    const fail = failing(code)
    const { client, shown } = await openPaidServer(fail, served, fail, fail, fail, served)
    expect(textOf(await client.callTool(forecast))).toBe('served')
    expect([shown.length, new Set(shown).size]).toEqual([2, 1])
    // The previous call got a response, so the next call is a new purchase. While that call keeps failing, each retry presents the same
    // payment again.
    const failed = { code: 'network_error', outcome: 'unknown', payment: {} }
    await expect(client.callTool(forecast)).rejects.toMatchObject(failed)
    expect(textOf(await client.callTool(forecast))).toBe('served')
    expect([shown.length, new Set(shown).size]).toEqual([6, 2])
  })

  test('behavior: presents the same payment in the next call if the server itself failed', async () => {
    const { client, shown } = await openPaidServer(failing(-32603), served)
    await expect(client.callTool(forecast)).rejects.toMatchObject({ code: -32603 })
    expect(textOf(await client.callTool(forecast))).toBe('served')
    expect([shown.length, new Set(shown).size]).toEqual([2, 1])
  })

  test('behavior: presents the same payment in the next call if the tool failed, unless the seller has settled the payment', async () => {
    const failed = { content: [{ type: 'text', text: 'failed' }], isError: true }
    const settled = { ...failed, _meta: { 'x402/payment-response': { success: true, transaction: '0x' } } }
    const { client, shown } = await openPaidServer(
      () => failed,
      () => settled,
      served,
    )
    for (const text of ['failed', 'failed', 'served'])
      expect(textOf(await client.callTool(forecast))).toBe(text)
    expect(shown.map((one) => shown.indexOf(one))).toEqual([0, 0, 2])
  })

  test('default: does not pay sellers of other gateways unless otherSellers is set', async () => {
    const ask = { structuredContent: { x402Version: 2, accepts: [entry()] } }
    await expect(buyFrom(ask, { otherSellers: undefined as never })).rejects.toMatchObject({
      code: 'challenge_refused',
      outcome: 'not_charged',
    })
  })
})

describe('the registry', () => {
  test('behavior: accepts tools of the same name on several servers of one provider, and never treats an HTTP path as a tool', async () => {
    for (const server of ['east', 'west']) {
      const { endpointIds, ...provider } = seller
      const mcp = new McpServer({ name: server, version: '1.0.0' })
      const paid = requirePayment({ ...provider, server, pricing: { usdcPerUnit: price } })(mcp)
      paid.registerTool('search', {}, () => ({ content: [{ type: 'text', text: server }] }))
      const client = payingMcpClient(await connectTo(mcp), await buyerOptions())
      const result = await client.callTool({ name: 'search' })
      const { endpointId } = decodeReceipt(receiptOf(result).receipt ?? '') ?? {}
      expect([textOf(result), endpointId]).toEqual([server, endpointIds[`mcp://tool/${server}/search`]])
    }
    const { providerId } = seller
    const json = { providerId, method: 'POST', resource: '/forecast' }
    expect((await call(gateway.app, 'POST', '/challenge', { json })).body.code).toBe('unknown_endpoint')
  })

  test('error: rejects names that no tool can have', async () => {
    const { providerId, apiKey } = seller
    for (const url of [
      'mcp://tool',
      'mcp://other/x',
      'mcp://tool/a/../b',
      'mcp://tool/x?y',
      'mcp://u@tool/x',
    ]) {
      const json = { url, pricing: { usdcPerUnit: price }, network: 'localhost' }
      const { status, body } = await call(gateway.app, 'POST', `/providers/${providerId}/endpoints`, {
        json,
        key: apiKey,
      })
      expect([url, status, body.code]).toEqual([url, 422, 'invalid_field'])
    }
    const { server } = openServer()
    const { endpointIds: _, ...provider } = seller
    const paid = requirePayment({ ...provider, pricing: { usdcPerUnit: price } })(server)
    expect(() => paid.registerTool('..', {}, () => ({ content: [] }))).toThrow(TypeError)
  })
})
