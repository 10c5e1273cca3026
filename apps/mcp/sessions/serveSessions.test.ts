import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { describe, expect, onTestFinished, test } from 'vitest'
import { serveSessions } from './serveSessions.ts'

const initialize = {
  method: 'initialize',
  params: {
    protocolVersion: '2025-06-18',
    capabilities: {},
    clientInfo: { name: 'buyer', version: '1.0.0' },
  },
}

/** Serves a server with one tool. Each call of it counts as paid. */
async function open({ trustedProxies = 1 } = {}) {
  const clock = { ms: 0 }
  const connect = async (transport: Transport, onPaid: () => void) => {
    const server = new McpServer({ name: 'tides', version: '1.0.0' })
    server.registerTool('buy', {}, () => {
      onPaid()
      return { content: [{ type: 'text', text: 'paid' }] }
    })
    const closed = Promise.withResolvers<void>()
    await server.connect(transport)
    server.server.onclose = closed.resolve
    await closed.promise
  }
  const running = await serveSessions(connect, {
    host: '127.0.0.1',
    port: 0,
    warn: () => {},
    trustedProxies,
    now: () => clock.ms,
  })
  onTestFinished(() => running.close())
  const post = (body: object, session?: string, address = '192.0.2.1') =>
    fetch(running.url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'x-forwarded-for': address,
        ...(session !== undefined && { 'mcp-session-id': session }),
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...body }),
    })
  /** Begins a session. @returns its id; undefined if there is no room. */
  const begin = async (address?: string) => {
    const response = await post(initialize, undefined, address)
    await response.text()
    return response.headers.get('mcp-session-id') ?? undefined
  }
  const call = async (session: string | undefined) => {
    const response = await post({ method: 'tools/call', params: { name: 'buy' } }, session)
    await response.text()
    return response.status
  }
  const beginPaid = async (address?: string) => {
    const session = await begin(address)
    expect(await call(session)).toBe(200)
    return session
  }
  /** Whether a session exists. The request doesn't count as use of the session's tools. */
  const isOpen = async (session: string | undefined) => {
    const response = await post({ method: 'ping' }, session)
    await response.text()
    return response.status === 200
  }
  return { clock, begin, beginPaid, isOpen }
}

test('behavior: keeps a paid session when other clients of its address begin sessions', async () => {
  const { clock, begin, beginPaid, isOpen } = await open()
  const buyer = await beginPaid()
  for (let n = 0; n < 40; n++) {
    clock.ms += 10_000
    expect(await begin()).toBeDefined()
  }
  expect(await isOpen(buyer)).toBe(true)
})

test('behavior: if an address is at its limit, rejects its new session instead of ending a paid session', async () => {
  const { clock, begin, beginPaid, isOpen } = await open()
  const buyer = await beginPaid()
  clock.ms += 30_001
  for (let n = 0; n < 15; n++) expect(await begin()).toBeDefined()
  expect(await begin()).toBeUndefined()
  expect(await isOpen(buyer)).toBe(true)
})

test('behavior: keeps a paid session when clients of other addresses begin sessions', async () => {
  const { clock, beginPaid, begin, isOpen } = await open()
  const buyer = await beginPaid('192.0.2.1')
  for (let n = 0; n < 40; n++) {
    clock.ms += 10_000
    expect(await begin(`198.51.100.${n}`)).toBeDefined()
  }
  expect(await isOpen(buyer)).toBe(true)
})

test.each([
  ['are unpaid', false],
  ['have paid', true],
])(
  'behavior: if all sessions of an address %s, limits their number, and ends the oldest idle session for a new one',
  async (_, pays) => {
    const { clock, begin, beginPaid, isOpen } = await open()
    const sessions: (string | undefined)[] = []
    for (let n = 0; n < 16; n++) {
      sessions.push(await (pays ? beginPaid() : begin()))
      clock.ms += 1
    }
    // All sessions of this address are new, so none of them may be ended. Clients of other addresses still find room.
    expect(await begin()).toBeUndefined()
    expect(await begin('192.0.2.2')).toBeDefined()
    clock.ms += 30_000
    expect(await begin()).toBeDefined()
    const are = await Promise.all(sessions.map(isOpen))
    expect(are).toEqual([false, ...Array.from({ length: 15 }, () => true)])
  },
)

test('behavior: if the server is full, ends an idle session of the same address for a new session', async () => {
  const { clock, begin, isOpen } = await open()
  const others: (string | undefined)[] = []
  for (let n = 0; n < 31; n++) others.push(await begin(`198.51.100.${n}`))
  clock.ms += 1
  const own = await begin('192.0.2.1')
  clock.ms += 30_001
  expect(await begin('192.0.2.1')).toBeDefined()
  expect(await isOpen(own)).toBe(false)
  expect(await Promise.all(others.map(isOpen))).not.toContain(false)
})

test('behavior: rejects a new session from another address while all sessions are in use and each has paid within ten minutes', async () => {
  const { clock, begin, beginPaid, isOpen } = await open()
  const buyers: (string | undefined)[] = []
  for (let n = 0; n < 32; n++) buyers.push(await beginPaid(`192.0.2.${n % 2}`))
  clock.ms += 600_000
  expect(await begin('192.0.2.2')).toBeUndefined()
  clock.ms += 1
  expect(await begin('192.0.2.2')).toBeDefined()
  expect((await Promise.all(buyers.map(isOpen))).filter((one) => !one)).toHaveLength(1)
})

describe('an address in X-Forwarded-For', () => {
  test('behavior: identifies the client behind a trusted proxy', async () => {
    const { begin, isOpen } = await open({ trustedProxies: 1 })
    const sessions: (string | undefined)[] = []
    for (let n = 0; n < 16; n++) sessions.push(await begin('192.0.2.1'))
    sessions.push(await begin('192.0.2.2'))
    expect(await Promise.all(sessions.map(isOpen))).toEqual(Array.from({ length: 17 }, () => true))
  })

  test('behavior: is ignored without a trusted proxy', async () => {
    const { begin } = await open({ trustedProxies: 0 })
    for (let n = 0; n < 16; n++) expect(await begin(`192.0.2.${n}`)).toBeDefined()
    expect(await begin('192.0.2.16')).toBeUndefined()
  })
})
