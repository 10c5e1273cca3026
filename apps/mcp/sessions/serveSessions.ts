import { randomUUID } from 'node:crypto'
import { isIPv4 } from 'node:net'
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { isInitializeRequest, type JSONRPCMessage, type RequestId } from '@modelcontextprotocol/sdk/types.js'
import { clientAddress } from '@tollkeeper/runtime/clientAddress'
import { isSameSecret } from '@tollkeeper/runtime/isSameSecret'
import { limitBody } from '@tollkeeper/runtime/limitBody'
import { describeError } from '@tollkeeper/runtime/log'
import { type RunningServer, serve } from '@tollkeeper/runtime/serve'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { Hono } from 'hono'

export type SessionOptions = {
  host: string
  /** 0: any free one. */
  port: number
  warn: (message: string) => void
  /** The bearer token of clients. Null: they need none. */
  token?: string | null
  /** How long a session may be idle, in milliseconds. Default 600,000. */
  idleMs?: number
  /** Number of reverse proxies in front whose X-Forwarded-For is trusted. Default 0. */
  trustedProxies?: number
  now?: () => number
}

/** Most servers at a time. */
const mostSessions = 32
/** Maximum sessions of one address, whether they have paid or not. */
const mostOfAddress = 16
/** How long a session counts as paid after its last payment. */
const paidMs = 600_000
/** How long a new session has to pay before it may give way to another, in milliseconds. */
const graceMs = 30_000
const maxBodyBytes = 4_194_304

type Session = {
  transport: WebStandardStreamableHTTPServerTransport
  /** Requests without an answer yet. */
  waiting: Set<RequestId>
  address: string
  openedAt: number
  usedAt: number
  paidAt: number
}

/**
 * Serves MCP's streamable HTTP at `/mcp` of the host, and connects each session to what `open` gives. `open` calls `onPaid` whenever
 * the session's client was charged.
 *
 * On loopback the Host must be a name of loopback, or a page in this machine's browser could reach it by a name of its own that
 * resolves to here (DNS rebinding). Beyond loopback a machine doesn't know its names, so only a token keeps pages and others out.
 */
export async function serveSessions(
  open: (transport: Transport, onPaid: () => void) => Promise<unknown>,
  { host, port, warn, token = null, idleMs = 600_000, trustedProxies = 0, now = Date.now }: SessionOptions,
): Promise<RunningServer & { url: string }> {
  const sessions = new Map<string, Session>()
  const running = new Set<Session>()
  const isLocal = isLoopback(host)

  /** Closes a session that no one waits for. */
  function close({ transport }: Session): void {
    transport.close().catch((error: unknown) => warn(`a session was not closed: ${describeError(error)}`))
  }

  const hasPaid = ({ paidAt }: Session) => paidAt + paidMs >= now()

  /** Returns the idle session that was unused for longest. A new one isn't idle yet, because its client may be about to pay. */
  function oldestIdle(some: Session[]): Session | undefined {
    const idle = some.filter(({ waiting, openedAt }) => waiting.size === 0 && openedAt + graceMs < now())
    return idle.sort((a, b) => a.usedAt - b.usedAt)[0]
  }

  /**
   * Makes room for a new session, if necessary by ending an idle one: preferably an unpaid one of the same address, then an unpaid one
   * of another address. Opening a session costs nothing, so one that has paid lately gives way only to its own address, and only if all
   * sessions of that address have paid: else strangers behind the same address could end it.
   *
   * @returns false if there is none.
   */
  function makeRoom(address: string): boolean {
    const all = [...running]
    const own = all.filter((one) => one.address === address)
    const isShareUsed = own.length >= mostOfAddress
    if (all.length < mostSessions && !isShareUsed) return true
    const isUnpaid = (one: Session) => !hasPaid(one)
    const ending =
      oldestIdle(own.filter(isUnpaid)) ??
      (isShareUsed ? undefined : oldestIdle(all.filter(isUnpaid))) ??
      (own.every(hasPaid) ? oldestIdle(own) : undefined)
    if (!ending) return false
    running.delete(ending)
    close(ending)
    return true
  }

  /** @returns undefined if there is no room. */
  async function begin(address: string): Promise<Session | undefined> {
    if (!makeRoom(address)) return undefined
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, session),
    })
    const session: Session = {
      transport,
      waiting: new Set(),
      address,
      openedAt: now(),
      usedAt: now(),
      paidAt: Number.NEGATIVE_INFINITY,
    }
    running.add(session)
    const onPaid = () => {
      session.paidAt = now()
    }
    open(transport, onPaid)
      .catch((error: unknown) => warn(`a session ended: ${describeError(error)}`))
      .finally(() => {
        running.delete(session)
        sessions.delete(transport.sessionId ?? '')
        close(session)
      })
    countRequests(session, now)
    return session
  }

  const sweep = setInterval(() => {
    for (const session of running)
      if (session.waiting.size === 0 && session.usedAt + idleMs < now()) close(session)
  }, idleMs / 10)
  sweep.unref()

  const app = new Hono()
  app.onError((error, c) => c.json({ error: error.message }, error instanceof BaseError ? 413 : 500))
  app.use(limitBody(maxBodyBytes))
  app.use(async (c, next) => {
    const asked = `http://${c.req.header('host') ?? ''}`
    const isKnown = URL.canParse(asked) && isLoopback(new URL(asked).hostname)
    if (isLocal && !isKnown) return c.json({ error: 'The Host is no name of loopback' }, 403)
    if (isLocal && c.req.header('origin') !== undefined)
      return c.json({ error: 'Pages of a browser may not call this' }, 403)
    if (token !== null && !isSameSecret(c.req.header('authorization') ?? '', `Bearer ${token}`))
      return c.json({ error: 'This needs the token, as a bearer token' }, 401)
    return next()
  })
  app.all('/mcp', async (c) => {
    const id = c.req.header('mcp-session-id')
    if (id !== undefined) {
      const known = sessions.get(id)
      if (!known) return c.json({ error: 'There is no such session; begin another' }, 404)
      known.usedAt = now()
      return known.transport.handleRequest(c.req.raw)
    }
    // Nothing less than this starts a server.
    const parsedBody =
      c.req.method === 'POST'
        ? await c.req.raw
            .clone()
            .json()
            .catch(() => undefined)
        : undefined
    if (!isInitializeRequest(parsedBody)) return c.json({ error: 'A session begins with initialize' }, 400)
    const session = await begin(clientAddress(c, trustedProxies))
    if (!session) return c.json({ error: 'Too many sessions are busy; try again later' }, 503)
    const answer = await session.transport.handleRequest(c.req.raw, { parsedBody })
    if (session.transport.sessionId === undefined) await session.transport.close()
    return answer
  })

  const listening = await serve(app, { host, port, portVariable: '--http' })
  return {
    ...listening,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${listening.port}/mcp`,
    async close() {
      clearInterval(sweep)
      await Promise.all([...running].map(({ transport }) => transport.close()))
      await listening.close()
    },
  }
}

/** Counts the messages that pass a connected transport. */
function countRequests(session: Session, now: () => number): void {
  const { transport, waiting } = session
  const { onmessage } = transport
  const send = transport.send.bind(transport)
  transport.onmessage = (message: JSONRPCMessage, extra) => {
    if ('method' in message && 'id' in message) waiting.add(message.id)
    if ('method' in message && message.method === 'notifications/cancelled')
      waiting.delete((message.params as { requestId?: RequestId } | undefined)?.requestId ?? '')
    onmessage?.(message, extra)
  }
  transport.send = (message, options) => {
    if (!('method' in message) && message.id !== undefined) waiting.delete(message.id)
    session.usedAt = now()
    return send(message, options)
  }
}

/** @param name of a host, as in `--host` or a URL. */
export function isLoopback(name: string): boolean {
  return ['localhost', '::1', '[::1]'].includes(name) || (isIPv4(name) && name.startsWith('127.'))
}
