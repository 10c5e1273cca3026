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

/** Serves a server with one tool, whose calls count as paid. */
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
  /** @returns the session's id; undefined if there is no room. */
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
  /** Whether a session is there, without using what it sells. */
  const isOpen = async (session: string | undefined) => {
    const response = await post({ method: 'ping' }, session)
    await response.text()
    return response.status === 200
  }
  return { clock, begin, call, isOpen }
}

test('behavior: strangers who open sessions for nothing end none that has paid', async () => {
  const { clock, begin, call, isOpen } = await open()
  const buyer = await begin()
  expect(await call(buyer)).toBe(200)
  for (let n = 0; n < 40; n++) {
    clock.ms += 10_000
    expect(await begin()).toBeDefined()
  }
  expect(await isOpen(buyer)).toBe(true)
})

test('behavior: an address that opens more than its part ends its own oldest', async () => {
  const { begin, isOpen } = await open()
  const sessions: (string | undefined)[] = []
  for (let n = 0; n < 18; n++) sessions.push(await begin())
  const are = await Promise.all(sessions.map(isOpen))
  expect(are).toEqual([false, false, ...Array.from({ length: 16 }, () => true)])
})

test('behavior: while all have paid a new one finds no room, until the payments are old', async () => {
  const { clock, begin, call, isOpen } = await open()
  const buyers: (string | undefined)[] = []
  for (let n = 0; n < 32; n++) {
    const buyer = await begin()
    expect(await call(buyer)).toBe(200)
    buyers.push(buyer)
  }
  expect(await begin()).toBeUndefined()
  clock.ms += 600_001
  expect(await begin()).toBeDefined()
  expect((await Promise.all(buyers.map(isOpen))).filter((one) => !one)).toHaveLength(1)
})

describe('an address in X-Forwarded-For', () => {
  test('behavior: is the client that counts, behind a trusted proxy', async () => {
    const { begin, isOpen } = await open({ trustedProxies: 1 })
    const sessions: (string | undefined)[] = []
    for (let n = 0; n < 16; n++) sessions.push(await begin('192.0.2.1'))
    sessions.push(await begin('192.0.2.2'))
    expect(await Promise.all(sessions.map(isOpen))).toEqual(Array.from({ length: 17 }, () => true))
  })

  test('behavior: is ignored without a trusted proxy', async () => {
    const { begin, isOpen } = await open({ trustedProxies: 0 })
    const sessions: (string | undefined)[] = []
    for (let n = 0; n < 17; n++) sessions.push(await begin(`192.0.2.${n}`))
    expect((await Promise.all(sessions.map(isOpen))).filter((one) => !one)).toHaveLength(1)
  })
})
