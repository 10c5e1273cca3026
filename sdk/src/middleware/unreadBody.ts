import type { IncomingMessage } from 'node:http'

/*
 * A server that answers before it has read a request's body, and then closes the connection, resets it: the client may never see the
 * answer. So the rest of the body is read and discarded first, within limits.
 */

/** A body up to this length fits into the buffers on its way, so its sender doesn't wait for a reader. */
const smallBytes = 65_536
/** The most that is discarded of one body, and for how long at most. */
const maxBytes = 16_777_216
const maxMs = 60_000
/** A sender that pauses for longer waits for the answer. */
const silenceMs = 2_000

type Head = { length: string | null | undefined; isChunked: boolean }

function isLarge({ length, isChunked }: Head): boolean {
  return isChunked || Number(length ?? 0) > smallBytes
}

/** Discards the body of a request that is answered without it. Never throws. */
export async function discardBody(request: Request): Promise<void> {
  try {
    await discard(request)
  } catch {
    // The answer is sent anyway. A stream may be locked, and workerd keeps the lock of one with a pending read.
  }
}

async function discard(request: Request): Promise<void> {
  const { headers } = request
  const head = { length: headers.get('content-length'), isChunked: headers.has('transfer-encoding') }
  if (!isLarge(head) || request.bodyUsed || !request.body) return
  const reader = request.body.getReader()
  const until = Date.now() + maxMs
  for (let bytes = 0; bytes <= maxBytes && Date.now() < until; ) {
    const read = await soon(reader.read())
    if (read === undefined || read.done) break
    bytes += read.value.length
  }
  reader.releaseLock()
}

/** @returns undefined if the read fails, or takes too long. */
async function soon<Result>(reading: Promise<Result>): Promise<Result | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const silence = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, silenceMs, undefined)
  })
  try {
    return await Promise.race([reading, silence])
  } catch {
    return undefined
  } finally {
    clearTimeout(timer)
  }
}

/** Discards the rest of a body that Node receives, and then calls back. */
export function discardIncoming(request: IncomingMessage, done: () => void): void {
  const { headers } = request
  const head = {
    length: headers['content-length'],
    isChunked: headers['transfer-encoding'] !== undefined,
  }
  if (request.complete || request.destroyed || !isLarge(head)) {
    done()
    return
  }
  let bytes = 0
  const finish = () => {
    clearTimeout(silence)
    clearTimeout(limit)
    request.off('data', note).off('end', finish).off('close', finish)
    done()
  }
  const limit = setTimeout(finish, maxMs)
  const silence = setTimeout(finish, silenceMs)
  const note = (chunk: Uint8Array) => {
    silence.refresh()
    bytes += chunk.length
    if (bytes > maxBytes) finish()
  }
  request.on('data', note).once('end', finish).once('close', finish).resume()
}
