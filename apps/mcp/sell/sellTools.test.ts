import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js'
import type { CallToolResult, JSONRPCMessage, Result } from '@modelcontextprotocol/sdk/types.js'
import { describe, expect, onTestFinished, test } from 'vitest'
import { withHostileParts } from '../../../test/support/hostileJson.ts'
import { parsePrices } from './prices.ts'
import { sellTools } from './sellTools.ts'

const result = { content: [{ type: 'text' as const, text: 'sunny' }] }
const tool = { name: 'forecast', inputSchema: { type: 'object' as const } }

type Request = { id: number | string; method: string; params?: Record<string, unknown> }

/**
 * Sells the tool `forecast` of a server that responds immediately.
 *
 * @param pay is called in place of the gateway, and decides whether to run the tool.
 */
async function sell(
  pay: (run: () => Promise<unknown>, cancel: () => Promise<void>) => Promise<unknown> = (run) => run(),
  {
    listed = { tools: [tool] },
    isSilent = false,
    answered: toAnswer = result,
  }: { listed?: unknown; isSilent?: boolean; answered?: CallToolResult } = {},
) {
  const [client, clientSide] = InMemoryTransport.createLinkedPair()
  const [serverSide, server] = InMemoryTransport.createLinkedPair()
  const served: Request[] = []
  server.onmessage = (message) => {
    const request = message as Request
    if (request.method !== 'tools/list') served.push(request)
    const answer = (request.method === 'tools/list' ? listed : toAnswer) as Result
    if (request.id !== undefined && !isSilent)
      void server.send({ jsonrpc: '2.0', id: request.id, result: answer })
  }
  const answers: JSONRPCMessage[] = []
  const answered = new Map<number, PromiseWithResolvers<JSONRPCMessage>>()
  client.onmessage = (message) => {
    answers.push(message)
    if ('id' in message) answered.get(Number(message.id))?.resolve(message)
  }
  const cancel = async () => {
    await client.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } })
  }
  const sold: string[] = []
  const payments = { count: 0 }
  const selling = sellTools(clientSide, serverSide, {
    priceOf: parsePrices({ forecast: '0.05', help: 'free' }),
    async answerCall(price, call, run) {
      sold.push(`${call.name} ${price}`)
      await pay(run, cancel)
      return { kind: 'result', result: toAnswer }
    },
    register: async () => {},
    onPaid: () => {
      payments.count += 1
    },
    warn: () => {},
  })
  await Promise.all([client.start(), server.start()])
  onTestFinished(async () => {
    await client.close()
    await selling
  })
  const ask = (id: number, method: string, params: Record<string, unknown>) => {
    const answer = Promise.withResolvers<JSONRPCMessage>()
    answered.set(id, answer)
    void client.send({ jsonrpc: '2.0', id, method, params })
    return answer.promise
  }
  const notify = (method: string, params: unknown) =>
    client.send({ jsonrpc: '2.0', method, params } as JSONRPCMessage)
  return { ask, notify, answers, served, sold, payments }
}

describe('a call of a priced tool', () => {
  test('default: is paid, and is forwarded to the server without the payment', async () => {
    const { ask, served, sold } = await sell()
    const _meta = { 'tollkeeper/authorization': 'x402 a', 'x402/payment': 'b', progressToken: 7 }
    const answer = await ask(1, 'tools/call', { name: 'forecast', arguments: { city: 'Lisbon' }, _meta })
    expect(answer).toMatchObject({ id: 1, result })
    expect(sold).toEqual(['forecast 0.05'])
    expect(served.map(({ params }) => params)).toEqual([
      { name: 'forecast', arguments: { city: 'Lisbon' }, _meta: { progressToken: 7 } },
    ])
  })

  test('error: is rejected without a charge if it asks for a task', async () => {
    const { ask, served, sold } = await sell()
    const answer = await ask(1, 'tools/call', { name: 'forecast', task: { ttl: 1_000 } })
    expect(answer).toMatchObject({ error: { code: -32602 } })
    expect([sold, served]).toEqual([[], []])
  })

  test('behavior: does not run the tool if the client cancels the call before it is paid', async () => {
    const failed = Promise.withResolvers<unknown>()
    const { ask, served, answers } = await sell(async (run, cancel) => {
      await cancel()
      failed.resolve(await run().catch((error: unknown) => error))
    })
    void ask(1, 'tools/call', { name: 'forecast' })
    expect(await failed.promise).toBeInstanceOf(Error)
    expect(served.filter(({ method }) => method === 'tools/call')).toEqual([])
    // The server has answered a later request, so a response to the cancelled call would already have arrived.
    await ask(2, 'tools/call', { name: 'help' })
    expect(answers.map((message) => 'id' in message && message.id)).toEqual([2])
  })
})

test.each([
  ['a charged call', 1, { status: 'verified' }, {}],
  ['a call charged less than its price', 1, { status: 'verified', charged: '0.000001' }, {}],
  ['a call charged zero', 0, { status: 'verified', charged: '0.000000' }, {}],
  ['a voided call', 0, { status: 'voided' }, {}],
  ['a failed call whose void is still pending', 0, { status: 'verified' }, { isError: true }],
  ['a replayed result', 0, { status: 'verified' }, { _meta: { 'tollkeeper/replayed': true } }],
  ['a call without a receipt', 0, undefined, {}],
])(
  'behavior: for %s, calls onPaid %i times',
  async (_, times, receipt, { _meta, ...more }: Partial<CallToolResult>) => {
    const answered = { ...result, ...more, _meta: { ..._meta, 'tollkeeper/receipt': receipt } }
    const { ask, payments } = await sell(undefined, { answered })
    await ask(1, 'tools/call', { name: 'forecast' })
    expect(payments.count).toBe(times)
  },
)

test("behavior: does not report a free tool's result as paid, even if its server adds a receipt", async () => {
  const answered = { ...result, _meta: { 'tollkeeper/receipt': { status: 'verified' } } }
  const { ask, payments } = await sell(undefined, { answered })
  await ask(1, 'tools/call', { name: 'help' })
  expect(payments.count).toBe(0)
})

test('default: calls a free tool without payment', async () => {
  const { ask, sold } = await sell()
  expect(await ask(1, 'tools/call', { name: 'help' })).toMatchObject({ result })
  expect(sold).toEqual([])
})

test('error: does not sell a tool without a price', async () => {
  const { ask, served } = await sell()
  expect(await ask(1, 'tools/call', { name: 'secret' })).toMatchObject({ error: { code: -32602 } })
  expect(served).toEqual([])
})

test('default: shows prices in the list of tools', async () => {
  const { ask } = await sell()
  expect(await ask(1, 'tools/list', {})).toMatchObject({
    result: { tools: [{ name: 'forecast', _meta: { 'tollkeeper/price': { usdc: '0.05' } } }] },
  })
})

describe('an untrusted message', () => {
  const _meta = { progressToken: 7, 'tollkeeper/authorization': 'x402 a', 'x402/payment': 'b' }
  const params = { name: 'forecast', arguments: { city: 'Lisbon' }, _meta, task: { ttl: 1 } }
  const methods = ['initialize', 'tools/list', 'tools/call', 'resources/read']

  test('error: is rejected if the name of its tool is not text', async () => {
    const { ask, sold, served } = await sell()
    for (const name of [{ toString: 1 }, 7, null, ['forecast'], undefined])
      expect(await ask(1, 'tools/call', { name })).toMatchObject({ error: { code: -32602 } })
    expect([sold, served]).toEqual([[], []])
  })

  test('behavior: gets a response, whatever it contains, and the next buyer is still served', async () => {
    const { ask, sold } = await sell()
    let id = 0
    for (const hostile of withHostileParts(params)) {
      for (const method of methods) {
        const answer = await ask(++id, method, hostile as never)
        expect(answer).toMatchObject({ id })
      }
    }
    expect(id).toBeGreaterThan(200)
    sold.length = 0
    expect(await ask(++id, 'tools/call', { name: 'forecast' })).toMatchObject({ result })
    expect(sold).toEqual(['forecast 0.05'])
  })

  test('behavior: does not end the process if it is a notification, whatever it contains', async () => {
    const { ask, notify } = await sell()
    for (const hostile of withHostileParts({ requestId: 1, progressToken: 7 })) {
      await notify('notifications/cancelled', hostile)
      await notify('notifications/progress', hostile)
    }
    expect(await ask(1, 'tools/call', { name: 'forecast' })).toMatchObject({ result })
  })

  test('error: is rejected if its client has a thousand open requests', async () => {
    const { ask } = await sell(undefined, { isSilent: true })
    for (let id = 1; id <= 1_000; id++) void ask(id, 'resources/read', { _meta: { progressToken: id } })
    expect(await ask(1_001, 'resources/read', {})).toMatchObject({ error: { code: -32602 } })
  })

  test('error: is rejected if it has the id of an open request', async () => {
    const { ask } = await sell(undefined, { isSilent: true })
    void ask(1, 'resources/read', {})
    expect(await ask(1, 'tools/call', { name: 'forecast' })).toMatchObject({ error: { code: -32602 } })
  })
})

test.each([
  ['invalid tools', { tools: [null, { name: 7 }, tool, { name: { toString: 1 } }] }],
  ['something that is not a list', { tools: 'forecast' }],
  ['no result', null],
])('behavior: keeps running if the server lists %s', async (_, listed) => {
  const { ask, answers } = await sell(undefined, { listed })
  void ask(1, 'tools/list', {})
  await ask(2, 'tools/call', { name: 'help' })
  expect(answers).toContainEqual(expect.objectContaining({ id: 2, result }))
})
