import type { HttpBindings } from '@hono/node-server'
import type { Context } from 'hono'

/** The caller who waits for an answer. */
export type Hearer = {
  /** The connection is gone, so nobody hears an answer now. */
  isGone: () => boolean
  /** Resolves when the answer is written (true), or can't be any more (false). */
  heard: Promise<boolean>
}

/** Call it before anything is awaited: a connection says only once that it is gone. */
export function hearerOf(c: Context): Hearer {
  const outgoing = (c.env as Partial<HttpBindings> | undefined)?.outgoing
  const { signal } = c.req.raw
  // Within one process, a caller that doesn't abort hears the answer.
  if (!outgoing) return { isGone: () => signal.aborted, heard: Promise.resolve(true) }
  let isGone = outgoing.destroyed
  const heard = new Promise<boolean>((resolve) => {
    outgoing.once('finish', () => resolve(true))
    outgoing.once('close', () => {
      isGone = true
      resolve(outgoing.writableFinished)
    })
    if (isGone) resolve(false)
  })
  return { isGone: () => isGone || signal.aborted, heard }
}
