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
  /** Port to listen on. 0: any free port. */
  port: number
  warn: (message: string) => void
  /** The bearer token that clients must present. Null: none is needed. */
  token?: string | null
  /** Maximum idle time of a session in ms. Default 600,000. */
  idleMs?: number
  /** Number of trusted reverse proxies in front, whose X-Forwarded-For entries are read. Default 0. */
  trustedProxies?: number
  now?: () => number
}

/** Maximum number of servers, that is, of sessions. */
const mostSessions = 32
/** Maximum number of sessions per address, whether they have paid or not. */
const mostOfAddress = 16
/** Time in ms for which a session counts as paid after its last payment. */
const paidMs = 600_000
/** Time in ms for which a new session can't be ended to make room, so that it can pay. */
const graceMs = 30_000
const maxBodyBytes = 4_194_304

type Session = {
  transport: WebStandardStreamableHTTPServerTransport
  /** Requests without a response. */
  waiting: Set<RequestId>
  address: string
  openedAt: number
  usedAt: number
  paidAt: number
}

/**
 * Serves MCP's streamable HTTP at `/mcp`, and connects each session to the server that `open` opens for it. That server calls `onPaid` each time the
 * session's client was charged.
 *
 * On loopback, the Host header must be a name of loopback. Otherwise a page in this machine's browser could reach the server
 * under another name that resolves to this machine (DNS rebinding). Beyond loopback, a machine doesn't know its own names, so
 * only a token keeps out pages and strangers.
 */
export async function serveSessions(
  open: (transport: Transport, onPaid: () => void) => Promise<unknown>,
  { host, port, warn, token = null, idleMs = 600_000, trustedProxies = 0, now = Date.now }: SessionOptions,
): Promise<RunningServer & { url: string }> {
  const sessions = new Map<string, Session>()
  const running = new Set<Session>()
  const isLocal = isLoopback(host)

  /** Closes a session that has no open request. */
  function close({ transport }: Session): void {
    transport.close().catch((error: unknown) => warn(`a session was not closed: ${describeError(error)}`))
  }

  const hasPaid = ({ paidAt }: Session) => paidAt + paidMs >= now()

  /**
   * Returns the session that has been idle for longest. A new session doesn't count as idle, because its client may be about to
   * pay.
   */
  function oldestIdle(some: Session[]): Session | undefined {
    const idle = some.filter(({ waiting, openedAt }) => waiting.size === 0 && openedAt + graceMs < now())
    return idle.sort((a, b) => a.usedAt - b.usedAt)[0]
  }

  /**
   * Makes room for a new session, if necessary by ending an idle one: preferably an unpaid session of the same address, else an unpaid session of
   * another address. Opening a session costs nothing. So a session that has paid recently is ended only for a new
   * session of the same address, and only if all sessions of that address have paid. Otherwise other clients behind the address could end paid
   * sessions for free.
   *
   * @returns false if there is no room.
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
    if (isLocal && !isKnown) return c.json({ error: 'The Host header must be a name of loopback' }, 403)
    if (isLocal && c.req.header('origin') !== undefined)
      return c.json({ error: 'Browser pages can’t call this server' }, 403)
    if (token !== null && !isSameSecret(c.req.header('authorization') ?? '', `Bearer ${token}`))
      return c.json({ error: 'A bearer token is required; send the server’s MCP_TOKEN' }, 401)
    return next()
  })
  app.all('/mcp', async (c) => {
    const id = c.req.header('mcp-session-id')
    if (id !== undefined) {
      const known = sessions.get(id)
      if (!known) return c.json({ error: 'Unknown session; begin another one' }, 404)
      known.usedAt = now()
      return known.transport.handleRequest(c.req.raw)
    }
    // A POST that isn't a complete `initialize` request doesn't start a server.
    const parsedBody =
      c.req.method === 'POST'
        ? await c.req.raw
            .clone()
            .json()
            .catch(() => undefined)
        : undefined
    if (!isInitializeRequest(parsedBody))
      return c.json({ error: 'A session begins with initialize; send that request first' }, 400)
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

/** Counts the open requests of a connected transport. */
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

/** @param name of a host, as in `--host` or in a URL. */
export function isLoopback(name: string): boolean {
  return ['localhost', '::1', '[::1]'].includes(name) || (isIPv4(name) && name.startsWith('127.'))
}
