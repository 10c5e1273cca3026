import type { IncomingMessage, ServerResponse } from 'node:http'
import { concatBytes, encodeUtf8 } from '../protocol/bytes.ts'
import { hasItsLength } from './answerBody.ts'
import type { Keep, KeptAnswer } from './answerStore.ts'
import { longestAnswerMs, type ReadBody } from './answers.ts'

/** `file` and `files` are multer's. */
type ReadRequest = IncomingMessage & { body?: unknown; file?: unknown; files?: unknown }

/** Headers of one connection, which the next answer gets anew. */
const ofConnection = new Set(['connection', 'keep-alive', 'transfer-encoding', 'date'])

/**
 * Watches a request's body as it arrives, whoever reads it.
 *
 * Call it before anybody waits, so that it misses nothing.
 *
 * @returns null if there is none.
 */
export function watchBody(request: ReadRequest, maxBytes: number): ReadBody | null {
  const { headers } = request
  if (headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) === 0) return null
  // Earlier middleware has read it, and left its own form of it.
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

/** @returns undefined if what earlier middleware has left may not be all of it. */
function bytesOf({ body, headers, file, files }: ReadRequest): Uint8Array | undefined {
  if (body instanceof Uint8Array) return body
  if (typeof body === 'string') return encodeUtf8(body)
  if (typeof body !== 'object' || body === null) return undefined
  const fields = encodeUtf8(JSON.stringify(body))
  if (!/^multipart\//i.test(headers['content-type'] ?? '')) return fields
  const parts = [file ?? [], files ?? []].flatMap(listOf)
  // Without any, the files may be where we don't look.
  return parts.length > 0 && parts.every(isFileInMemory) ? joinParts(fields, parts) : undefined
}

type FileInMemory = { fieldname: string; originalname: string; mimetype: string; buffer: Uint8Array }

/** multer's `files` is a list, or a list by field. */
function listOf(files: unknown): unknown[] {
  if (Array.isArray(files)) return files
  return isFileInMemory(files) ? [files] : Object.values(files as object).flat()
}

function isFileInMemory(file: unknown): file is FileInMemory {
  return (file as Partial<FileInMemory> | null)?.buffer instanceof Uint8Array
}

/** Names and lengths come first, so that no part can pass for another. */
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
 * Watches a handler's answer, even after its buyer has gone, and keeps it once it is whole.
 *
 * What earlier middleware does to it, such as compression, it does again when the answer is given again.
 *
 * @param isVoided called when the answer is whole.
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
    if (!bytes) return stop(() => keep.drop('of another encoding'))
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
    // A handler that hears of its buyer's leaving may end its answer early, which looks like the end of a whole one.
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
  // The buyer has gone, but a handler that is still at work may end the answer.
  response.once('close', () => {
    hasLeft = true
    if (!isOver) setTimeout(() => stop(() => keep.drop('broken off')), longestAnswerMs).unref()
  })
}

/**
 * The bytes that Node sends for a text.
 *
 * @param encoding an argument of `write` and `end`, which may be a callback instead.
 * @returns undefined for encodings that hardly any answer has.
 */
function encode(text: string, encoding: unknown): Uint8Array | undefined {
  if (typeof encoding !== 'string' || /^utf-?8$/i.test(encoding)) return encodeUtf8(text)
  if (!/^(?:latin1|binary|ascii)$/i.test(encoding)) return undefined
  return Uint8Array.from({ length: text.length }, (_, index) => text.charCodeAt(index))
}

/** The status and headers from the handler, in any of the forms of `writeHead`. */
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

/** Headers in the forms of `writeHead`: an object, pairs, or names and values in turn. */
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
