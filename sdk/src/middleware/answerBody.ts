import { concatBytes } from '../protocol/bytes.ts'
import type { Keep, KeptAnswer } from './answerStore.ts'
import { longestAnswerMs } from './answers.ts'

type Body = ReadableStream<Uint8Array<ArrayBuffer>>
type Reader = ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>
type Chunk = Uint8Array<ArrayBuffer>

/** Reads a body to its end. @returns undefined if the body exceeds `maxBytes`, or isn't complete when the signal fires. */
export async function readUpTo(
  body: Body,
  maxBytes: number,
  signal?: AbortSignal,
): Promise<Chunk | undefined> {
  const reader = body.getReader()
  signal?.addEventListener('abort', () => void reader.cancel().catch(() => {}))
  const chunks: Chunk[] = []
  let length = 0
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    chunks.push(read.value)
    length += read.value.length
    if (length <= maxBytes) continue
    // Don't await `cancel`: if `body` is a copy of another stream, `cancel` resolves only after the other stream is cancelled as well.
    reader.cancel().catch(() => {})
    return undefined
  }
  return signal?.aborted ? undefined : concatBytes(...chunks)
}

/**
 * Copies a response's body while the buyer reads it. Reads the body to its end, even if the buyer disconnects.
 *
 * Chunks that are available immediately, as in most responses, are sent as one piece.
 *
 * @param whole called with the body when the body has ended. `hasLeft`: the buyer had disconnected by then. If so, the body may be incomplete,
 * because a handler that detects a disconnected buyer may end its response early.
 * @returns the body for the buyer.
 */
export async function followBody(
  body: Body,
  { maxBytes, drop }: Pick<Keep, 'maxBytes' | 'drop'>,
  whole: (bytes: Chunk, hasLeft: boolean) => void,
): Promise<Chunk | Body> {
  const reader = body.getReader()
  const { chunks, isLong, next } = await readAtOnce(reader, maxBytes)
  if (next === undefined) {
    const bytes = concatBytes(...chunks)
    whole(bytes, false)
    return bytes
  }
  const source = goOn(reader, chunks, next)
  if (isLong) {
    drop('too long')
    return source
  }
  const [toBuyer, toKeep] = source.tee()
  let hasLeft = false
  void keepSlowly(toKeep, { maxBytes, drop }, (bytes) => whole(bytes, hasLeft))
  return noteCancel(toBuyer, () => {
    hasLeft = true
  })
}

/** Returns a stream with the same content, and calls `onCancel` if its reader cancels before the end. */
function noteCancel(body: Body, onCancel: () => void): Body {
  const reader = body.getReader()
  return new ReadableStream({
    async pull(controller) {
      const read = await reader.read()
      if (read.done) controller.close()
      else controller.enqueue(read.value)
    },
    cancel(reason) {
      onCancel()
      return reader.cancel(reason)
    },
  })
}

/**
 * Reads the chunks that are available immediately.
 *
 * @returns `next`: the first read that isn't available immediately, or undefined if the stream has ended. `isLong`: more than `maxBytes` were read.
 */
async function readAtOnce(
  reader: Reader,
  maxBytes: number,
): Promise<{ chunks: Chunk[]; isLong: boolean; next: ReturnType<Reader['read']> | undefined }> {
  const chunks: Chunk[] = []
  let length = 0
  for (;;) {
    const next = reader.read()
    if (length > maxBytes) return { chunks, isLong: true, next }
    const read = await nowOf(next)
    if (read === undefined) return { chunks, isLong: false, next }
    if (read.done) return { chunks, isLong: false, next: undefined }
    chunks.push(read.value)
    length += read.value.length
  }
}

/** Number of microtasks to wait for a read. If data is already available, every runtime delivers it within fewer microtasks. */
const turns = 8

/**
 * Returns the result of a read if its data is already available. Returns undefined if the read is still pending or fails. The caller awaits the read
 * later, and then gets the data or the failure.
 */
async function nowOf(next: ReturnType<Reader['read']>): Promise<Awaited<typeof next> | undefined> {
  let read: Awaited<typeof next> | undefined
  next.then(
    (given) => {
      read = given
    },
    () => {},
  )
  for (let turn = 0; turn < turns && read === undefined; turn++) await undefined
  return read
}

/** Returns a stream of the chunks that were already read, followed by the rest. */
function goOn(reader: Reader, chunks: Chunk[], next: ReturnType<Reader['read']>): Body {
  let pending: ReturnType<Reader['read']> | undefined = next
  return new ReadableStream({
    async pull(controller) {
      const chunk = chunks.shift()
      if (chunk) return controller.enqueue(chunk)
      const read = await (pending ?? reader.read())
      pending = undefined
      if (read.done) controller.close()
      else controller.enqueue(read.value)
    },
    cancel: (reason) => reader.cancel(reason),
  })
}

async function keepSlowly(
  body: Body,
  { maxBytes, drop }: Pick<Keep, 'maxBytes' | 'drop'>,
  whole: (bytes: Chunk) => void,
): Promise<void> {
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), longestAnswerMs)
  try {
    const read = await readUpTo(body, maxBytes, late.signal)
    if (read) whole(read)
    else drop(late.signal.aborted ? 'too slow' : 'too long')
  } catch {
    drop('broken off')
  } finally {
    clearTimeout(timer)
  }
}

/** Returns whether the `Content-Length` of a response proves that the body is complete. */
export function hasItsLength({ headers, body }: Pick<KeptAnswer, 'headers' | 'body'>): boolean {
  const found = headers.find(([name]) => name.toLowerCase() === 'content-length')
  return found !== undefined && Number(found[1]) === body.length
}
