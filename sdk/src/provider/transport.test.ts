import type { IncomingMessage, ServerResponse } from 'node:http'
import { expect, onTestFinished, test, vi } from 'vitest'
import { collect } from '../../test/collect.ts'
import { closedPort, readBody, serve } from '../../test/serve.ts'
import { GatewayError, type GatewayErrorCode } from './errors.ts'
import { type Call, createTransport, type TransportOptions } from './transport.ts'

type Answer = (request: IncomingMessage, response: ServerResponse) => unknown

/** Starts a server that sends these responses in order, and then repeats the last one. */
async function setUp(answers: readonly Answer[], options: Partial<TransportOptions> = {}) {
  const seen: string[] = []
  const gatewayUrl = await serve(async (request, response) => {
    const body = await readBody(request)
    const answer = answers[Math.min(seen.length, answers.length - 1)]
    seen.push(`${request.method} ${request.url} ${body}`.trim())
    await answer?.(request, response)
  })
  return { seen, gatewayUrl, transport: createTransport({ gatewayUrl, apiKey: 'tk_1', ...options }) }
}

const ok: Answer = (_, response) => response.end('{"ok":true}')
const problem =
  (status: number, code: string, headers: Record<string, string> = { 'retry-after': '0' }): Answer =>
  (_, response) =>
    response.writeHead(status, { 'content-type': 'application/problem+json', ...headers }).end(
      JSON.stringify({
        type: `urn:tollkeeper:problem:${code}`,
        title: 'No',
        status,
        detail: 'Not now',
        code,
        field: 'a',
      }),
    )

const read: Call = { method: 'GET', path: '/things' }
const write: Call = { method: 'POST', path: '/things', body: { a: 1 } }

/** Makes the wait between attempts as short as possible. */
function hurry(): void {
  const random = vi.spyOn(Math, 'random').mockReturnValue(1)
  onTestFinished(() => random.mockRestore())
}

async function refusalOf(call: Promise<unknown>): Promise<GatewayError> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(GatewayError)
  return error as GatewayError
}

test('sends the API key, JSON, the query and the version', async () => {
  const headers: IncomingMessage['headers'][] = []
  const { seen, transport } = await setUp([
    (request, response) => {
      headers.push(request.headers)
      response.end('{}')
    },
  ])
  await transport.json({
    method: 'PATCH',
    path: '/things/1',
    query: { from: new Date('2026-11-01T00:00:00Z'), to: undefined, testnet: false, name: 'a b&c' },
    body: { price: '0.05', note: undefined },
    options: { ifMatch: 3 },
  })
  expect(seen).toEqual([
    'PATCH /things/1?from=2026-11-01T00%3A00%3A00.000Z&testnet=false&name=a+b%26c {"price":"0.05"}',
  ])
  expect(headers[0]).toMatchObject({
    authorization: 'Bearer tk_1',
    'content-type': 'application/json',
    'if-match': '"3"',
  })
})

test('keeps the path of a gatewayUrl that has one', async () => {
  const { seen, gatewayUrl } = await setUp([ok])
  await createTransport({ gatewayUrl: `${gatewayUrl}/pay/` }).json(read)
  expect(seen).toEqual(['GET /pay/things'])
})

test.each(['gateway.example', 'ftp://gateway.example', 'https://me@gateway.example', ''])(
  'rejects the gateway URL %j',
  (gatewayUrl) => {
    expect(() => createTransport({ gatewayUrl })).toThrow(/gatewayUrl/)
  },
)

test('throws the gateway’s error, with its code and details', async () => {
  const { transport } = await setUp([
    (_, response) =>
      response.writeHead(422).end(
        JSON.stringify({
          title: 'Price is below the minimum',
          detail: 'Expected at least 0.005 USDC',
          code: 'price_below_minimum',
          errors: [{ field: 'pricing.usdcPerUnit', message: 'too low' }, 'junk'],
        }),
      ),
  ])
  const error = await refusalOf(transport.json(write))
  expect(error).toMatchObject({
    code: 'price_below_minimum',
    status: 422,
    message: 'POST /things answered 422 price_below_minimum: Expected at least 0.005 USDC',
    retryable: false,
    fields: [{ field: 'pricing.usdcPerUnit', message: 'too low' }],
  })
})

test('throws an error of a newer gateway with its code, even if this version does not know the code', async () => {
  const { transport } = await setUp([problem(409, 'a_new_code')])
  expect((await refusalOf(transport.json(read))).code).toBe('a_new_code' satisfies GatewayErrorCode)
})

test.each([
  ['HTML', 502, '<h1>Bad gateway</h1>'],
  ['HTML without an error status', 200, '<h1>Welcome</h1>'],
  ['a list', 200, '[]'],
  ['JSON that is cut off', 200, '{"a":'],
])('throws http_error if the response is %s', async (_, status, body) => {
  const { transport } = await setUp([(_, response) => response.writeHead(status).end(body)], {
    maxRetries: 0,
  })
  expect(await refusalOf(transport.json(read))).toMatchObject({ code: 'http_error', status })
})

test('repeats any call that the gateway rate-limited', async () => {
  const { seen, transport } = await setUp([problem(429, 'rate_limited'), ok])
  expect(await transport.json(write)).toEqual({ ok: true })
  expect(seen).toHaveLength(2)
})

test.each([503, 500])('repeats a read after %i, but not a POST', async (status) => {
  const code = status === 503 ? 'dependency_unavailable' : 'internal_error'
  const one = await setUp([problem(status, code), problem(status, code), ok])
  expect(await one.transport.json(read)).toEqual({ ok: true })
  const other = await setUp([problem(status, code), ok])
  expect(await refusalOf(other.transport.json(write))).toMatchObject({ code, status, retryable: true })
  expect([one.seen.length, other.seen.length]).toEqual([3, 1])
})

test('repeats an idempotent POST', async () => {
  const { seen, transport } = await setUp([
    (request) => request.socket.destroy(),
    problem(503, 'overloaded'),
    ok,
  ])
  hurry()
  await transport.json({ ...write, isRepeatable: true })
  expect(seen).toHaveLength(3)
})

test('repeats a call maxRetries times, and a call’s own maxRetries replaces the client’s', async () => {
  const { seen, transport } = await setUp([problem(429, 'rate_limited')], { maxRetries: 1 })
  await refusalOf(transport.json(read))
  expect(seen).toHaveLength(2)
  await refusalOf(transport.json({ ...read, options: { maxRetries: 0 } }))
  expect(seen).toHaveLength(3)
})

test('throws immediately if the gateway requests a wait beyond the timeout', async () => {
  const { seen, transport } = await setUp([problem(429, 'rate_limited', { 'retry-after': '60' })])
  expect(await refusalOf(transport.json(read))).toMatchObject({ code: 'rate_limited', retryAfterSeconds: 60 })
  expect(seen).toHaveLength(1)
})

test('throws network_error if no server listens', async () => {
  const transport = createTransport({ gatewayUrl: await closedPort(), maxRetries: 0 })
  expect(await refusalOf(transport.json(read))).toMatchObject({
    code: 'network_error',
    status: undefined,
    message: expect.stringMatching(/^GET \/things: .*ECONNREFUSED/),
    retryable: true,
  })
})

test('throws timeout if no response arrives', async () => {
  const { transport } = await setUp([() => {}])
  const call = transport.json({ ...read, options: { timeout: 20 } })
  expect(await refusalOf(call)).toMatchObject({
    code: 'timeout',
    message: 'GET /things: no response within 20 ms',
  })
})

test("throws the reason of the caller's signal if it fires before or during a call", async () => {
  const controller = new AbortController()
  const { seen, transport } = await setUp([() => controller.abort('enough')])
  await expect(transport.json({ ...read, options: { signal: controller.signal } })).rejects.toBe('enough')
  await expect(transport.json({ ...read, options: { signal: controller.signal } })).rejects.toBe('enough')
  expect(seen).toHaveLength(1)
})

test('does not send the API key to another origin', async () => {
  const keys: unknown[] = []
  const elsewhere = await serve((request, response) => {
    keys.push(request.headers.authorization)
    response.end('{}')
  })
  const { seen, transport } = await setUp([
    (_, response) => response.writeHead(307, { location: `${elsewhere}/things` }).end(),
  ])
  expect(await refusalOf(transport.json(read))).toMatchObject({ code: 'gateway_redirects' })
  expect([keys, seen.length]).toEqual([[], 1])
})

test('follows a redirect within the gateway’s origin', async () => {
  const { seen, transport } = await setUp([
    (_, response) => response.writeHead(308, { location: '/v1/things' }).end(),
    ok,
  ])
  expect(await transport.json(read)).toEqual({ ok: true })
  expect(seen).toEqual(['GET /things', 'GET /v1/things'])
})

test('reads a response without a body', async () => {
  const { transport } = await setUp([(_, response) => response.writeHead(204).end()])
  expect(await transport.nothing({ method: 'DELETE', path: '/things/1' })).toBeUndefined()
})

test('streams a file for longer than the timeout', async () => {
  let write = (_: string) => {}
  const { transport } = await setUp([
    (_, response) => {
      response.write('a;b\n')
      write = (text) => response.end(text)
    },
  ])
  const response = await transport.file({ ...read, options: { timeout: 50 } })
  const expired = AbortSignal.timeout(60)
  await new Promise((resolve) => expired.addEventListener('abort', resolve))
  write('c;d\n')
  expect(await response.text()).toBe('a;b\nc;d\n')
})

test('stops a download when the caller’s signal fires', async () => {
  const controller = new AbortController()
  const { transport } = await setUp([(_, response) => response.write('a')])
  const response = await transport.file({ ...read, options: { signal: controller.signal } })
  controller.abort()
  await expect(response.text()).rejects.toThrow()
})

test('requests pages by cursor, with the query of the first page', async () => {
  const { seen, transport } = await setUp([
    (_, response) => response.end('{"things":[1,2],"cursor":"next"}'),
    (_, response) => response.end('{"things":[3],"cursor":null}'),
  ])
  type Page = { things: number[]; cursor: string | null }
  const list = transport.list<number, Page>(
    { ...read, query: { limit: 2 } },
    { items: (page) => page.things, next: ({ cursor }) => cursor, position: 'cursor' },
  )
  expect(await collect(list)).toEqual([1, 2, 3])
  expect(seen).toEqual(['GET /things?limit=2', 'GET /things?limit=2&cursor=next'])
})

const line = (number: number) => `${JSON.stringify({ number, cursor: `c${number}` })}\n`
type Line = { number: number; cursor: string }

test('continues after the last complete line if the connection breaks', async () => {
  const { seen, transport } = await setUp([
    (_, response) => {
      response.write(`${line(1)}${line(2)}{"number":3`)
      response.socket?.end()
    },
    (_, response) => response.end(`${line(3)}${line(4)}`),
  ])
  hurry()
  const lines = await collect(transport.lines<Line>(read))
  expect(lines.map(({ number }) => number)).toEqual([1, 2, 3, 4])
  expect(seen).toEqual(['GET /things', 'GET /things?cursor=c2'])
})

test('throws if the connection breaks repeatedly and no further line arrives', async () => {
  const { seen, transport } = await setUp(
    [
      (_, response) => {
        response.write(line(1))
        response.socket?.end()
      },
      (_, response) => {
        response.write('{')
        response.socket?.end()
      },
    ],
    { maxRetries: 1 },
  )
  hurry()
  const numbers: number[] = []
  const all = async () => {
    for await (const { number } of transport.lines<Line>(read)) numbers.push(number)
  }
  expect(await refusalOf(all())).toMatchObject({ code: 'network_error' })
  expect([numbers, seen.length]).toEqual([[1], 2])
})

test('closes the connection when the reader of lines stops', async () => {
  const closed = Promise.withResolvers<void>()
  const { transport } = await setUp([
    (_, response) => {
      response.on('close', () => closed.resolve())
      response.write(line(1))
    },
  ])
  for await (const { number } of transport.lines<Line>(read)) {
    expect(number).toBe(1)
    break
  }
  await closed.promise
})
