import type { IncomingMessage } from 'node:http'

/*
 * If a server responds before it has read a request's body, and then closes the connection, the connection is reset, and the client
 * may never see the response. To prevent this, the server first reads and discards the rest of the body, within limits.
 */

/** Maximum length in bytes of a body that is small enough for network buffers, so that the sender doesn't have to wait for the server to read it. */
const smallBytes = 65_536
/** Limits for discarding one body: a number of bytes, and a time in ms. */
const maxBytes = 16_777_216
const maxMs = 60_000
/** If the sender pauses for this many ms, it is probably waiting for the response. */
const silenceMs = 2_000

type Head = { length: string | null | undefined; isChunked: boolean }

function isLarge({ length, isChunked }: Head): boolean {
  return isChunked || Number(length ?? 0) > smallBytes
}

/** Discards the body of a request whose response doesn't depend on it. Never throws. */
export async function discardBody(request: Request): Promise<void> {
  try {
    await discard(request)
  } catch {
    // Ignore failures, because the response is sent anyway. A stream may be locked, and workerd keeps the lock while a read is pending.
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

/** Discards the rest of a body that Node receives. Then calls `done`. */
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
