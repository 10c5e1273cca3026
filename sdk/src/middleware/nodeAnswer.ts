import type { IncomingMessage, ServerResponse } from 'node:http'
import { concatBytes, encodeUtf8 } from '../protocol/bytes.ts'
import { hasItsLength } from './answerBody.ts'
import type { Keep, KeptAnswer } from './answerStore.ts'
import { longestAnswerMs, type ReadBody } from './answers.ts'

/** multer adds the fields `file` and `files`. */
type ReadRequest = IncomingMessage & { body?: unknown; file?: unknown; files?: unknown }

/** Headers that belong to one connection. They aren't kept, because Node sets them again for each response. */
const ofConnection = new Set(['connection', 'keep-alive', 'transfer-encoding', 'date'])

/**
 * Records a request's body while other code reads it.
 *
 * Call this before the first `await`, so that no data is missed.
 *
 * @returns null if the request has no body.
 */
export function watchBody(request: ReadRequest, maxBytes: number): ReadBody | null {
  const { headers } = request
  if (headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) === 0) return null
  // Earlier middleware has read the body, and left its parsed form in `request.body`.
  if (request.readableEnded) return async () => bytesOf(request)
  if (request.readableDidRead) return async () => undefined
  const chunks: Uint8Array[] = []
  let length = 0
  let finish: (body: Uint8Array | undefined) => void = () => {}
  const whole = new Promise<Uint8Array | undefined>((resolve) => {
    finish = resolve
  })
  const note = (chunk: Uint8Array) => {
    length += chunk.length
    if (length <= maxBytes) chunks.push(chunk)
    else {
      chunks.length = 0
      finish(undefined)
    }
  }
  const arrived = request.read() as Uint8Array | null
  if (arrived !== null) {
    note(arrived)
    request.unshift(arrived)
  }
  const { push } = request
  request.push = (chunk: unknown, encoding?: BufferEncoding) => {
    if (chunk === null) finish(concatBytes(...chunks))
    else if (chunk instanceof Uint8Array) note(chunk)
    return push.call(request, chunk, encoding)
  }
  request.once('close', () => finish(request.complete ? concatBytes(...chunks) : undefined))
  return () => whole
}

/** Returns the body of a request as bytes, if a framework has already parsed it. The bytes are the same as from {@link watchBody}. */
export function readParsedBody(headers: IncomingMessage['headers'], body: unknown): Uint8Array | undefined {
  return bytesOf({ headers, body })
}

/** @returns undefined if the data that earlier middleware left may be incomplete. */
function bytesOf({
  body,
  headers,
  file,
  files,
}: Pick<ReadRequest, 'headers' | 'body' | 'file' | 'files'>): Uint8Array | undefined {
  if (body instanceof Uint8Array) return body
  if (typeof body === 'string') return encodeUtf8(body)
  if (typeof body !== 'object' || body === null) return undefined
  const fields = encodeUtf8(JSON.stringify(body))
  if (!/^multipart\//i.test(headers['content-type'] ?? '')) return fields
  const parts = [file ?? [], files ?? []].flatMap(listOf)
  // If there are no multer files in memory, other middleware may have put the files elsewhere, so the body is unknown.
  return parts.length > 0 && parts.every(isFileInMemory) ? joinParts(fields, parts) : undefined
}

type FileInMemory = { fieldname: string; originalname: string; mimetype: string; buffer: Uint8Array }

/** Returns multer's `files`, which is a list or an object with a list for each field. */
function listOf(files: unknown): unknown[] {
  if (Array.isArray(files)) return files
  return isFileInMemory(files) ? [files] : Object.values(files as object).flat()
}

function isFileInMemory(file: unknown): file is FileInMemory {
  return (file as Partial<FileInMemory> | null)?.buffer instanceof Uint8Array
}

/** Joins parts. The names and lengths come first, so that the contents of a part can't imitate another part. */
function joinParts(fields: Uint8Array, files: readonly FileInMemory[]): Uint8Array {
  const heads = files.map(({ fieldname, originalname, mimetype, buffer }) => [
    fieldname,
    originalname,
    mimetype,
    buffer.length,
  ])
  const head = encodeUtf8(JSON.stringify([fields.length, heads]))
  return concatBytes(head, fields, ...files.map(({ buffer }) => buffer))
}

/**
 * Records a handler's response, even after the buyer has disconnected, and keeps it when it is complete.
 *
 * When the response is replayed, earlier middleware such as compression processes it again.
 *
 * @param isVoided called when the response is complete. Returns whether the payment is voided.
 */
export function followAnswer(response: ServerResponse, keep: Keep, isVoided: () => boolean): void {
  const { writeHead, write, end } = response
  const chunks: Uint8Array[] = []
  let length = 0
  let isOver = false
  let hasLeft = false
  let head: Omit<KeptAnswer, 'body'> | undefined

  const stop = (tell: () => void) => {
    if (isOver) return
    isOver = true
    chunks.length = 0
    tell()
  }
  const note = (chunk: unknown, encoding: unknown) => {
    if (isOver || (typeof chunk !== 'string' && !(chunk instanceof Uint8Array))) return
    const bytes = typeof chunk === 'string' ? encode(chunk, encoding) : chunk
    if (!bytes) return stop(() => keep.drop('in an unsupported text encoding'))
    length += bytes.length
    if (length > keep.maxBytes) stop(() => keep.drop('too long'))
    else chunks.push(bytes)
  }

  response.writeHead = ((...args: Parameters<typeof writeHead>) => {
    head = headOf(response, args)
    return Reflect.apply(writeHead, response, args)
  }) as typeof writeHead
  response.write = ((...args: Parameters<typeof write>) => {
    note(args[0], args[1])
    return Reflect.apply(write, response, args)
  }) as typeof write
  response.end = ((...args: Parameters<typeof end>) => {
    note(args[0], args[1])
    // A handler that detects that the buyer has disconnected may end its response early, and such an end looks like a complete response.
    const mayBeShort = hasLeft || response.socket?.destroyed === true
    Reflect.apply(end, response, args)
    const answer = { ...(head ?? headOf(response, [])), body: concatBytes(...chunks) }
    stop(() => {
      if (isVoided()) keep.forget()
      else if (mayBeShort && !hasItsLength(answer)) keep.drop('broken off')
      else keep.keep(answer)
    })
    return response
  }) as typeof end
  // The buyer has disconnected, but a handler that is still working may complete the response.
  response.once('close', () => {
    hasLeft = true
    if (!isOver) setTimeout(() => stop(() => keep.drop('broken off')), longestAnswerMs).unref()
  })
}

/**
 * Returns the bytes that Node sends for a text.
 *
 * @param encoding an argument of `write` and `end`, which may be a callback instead.
 * @returns undefined for encodings that responses rarely use.
 */
function encode(text: string, encoding: unknown): Uint8Array | undefined {
  if (typeof encoding !== 'string' || /^utf-?8$/i.test(encoding)) return encodeUtf8(text)
  if (!/^(?:latin1|binary|ascii)$/i.test(encoding)) return undefined
  return Uint8Array.from({ length: text.length }, (_, index) => text.charCodeAt(index))
}

/** Returns the status and headers that the handler passed, in any of the forms of `writeHead`. */
function headOf(response: ServerResponse, args: readonly unknown[]): Omit<KeptAnswer, 'body'> {
  const status = typeof args[0] === 'number' ? args[0] : response.statusCode
  const given = args.at(-1)
  const headers = new Map(Object.entries(response.getHeaders()))
  for (const [name, value] of pairsOf(given)) headers.set(String(name).toLowerCase(), value as string)
  const pairs = [...headers].flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one): [string, string] => [name, String(one)]),
  )
  return { status, headers: pairs.filter(([name]) => !ofConnection.has(name)) }
}

/** Returns headers as pairs. `writeHead` accepts an object, pairs, or a list of alternating names and values. */
export function pairsOf(headers: unknown): (readonly unknown[])[] {
  if (typeof headers !== 'object' || headers === null) return []
  if (!Array.isArray(headers)) return Object.entries(headers)
  if (Array.isArray(headers[0])) return headers as unknown[][]
  return headers.flatMap((name, index) => (index % 2 === 0 ? [[name, headers[index + 1]]] : []))
}

export function answerAgain(response: ServerResponse, { status, headers, body }: KeptAnswer): void {
  response.statusCode = status
  const names = new Set(headers.map(([name]) => name))
  for (const name of names) {
    const values = headers.filter(([other]) => other === name).map(([, value]) => value)
    response.setHeader(name, values.length === 1 ? (values[0] as string) : values)
  }
  response.end(body)
}
