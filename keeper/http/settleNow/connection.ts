import type { HttpBindings } from '@hono/node-server'
import type { Context } from 'hono'

/** The connection of a caller that waits for an answer. */
export type Connection = {
  /** Whether the connection is closed, so that no answer can be delivered. */
  isClosed: () => boolean
  /** Resolves with true when the answer is written, or with false if the connection closes before that. */
  delivered: Promise<boolean>
}

/** Watches the connection of a request. Call it before the first await, because a connection emits `close` only once. */
export function watchConnection(c: Context): Connection {
  const outgoing = (c.env as Partial<HttpBindings> | undefined)?.outgoing
  const { signal } = c.req.raw
  // Without a socket, as in tests, a caller receives the answer unless it aborts.
  if (!outgoing) return { isClosed: () => signal.aborted, delivered: Promise.resolve(true) }
  let isClosed = outgoing.destroyed
  const delivered = new Promise<boolean>((resolve) => {
    outgoing.once('finish', () => resolve(true))
    outgoing.once('close', () => {
      isClosed = true
      resolve(outgoing.writableFinished)
    })
    if (isClosed) resolve(false)
  })
  return { isClosed: () => isClosed || signal.aborted, delivered }
}
