import type { IncomingMessage, ServerResponse } from 'node:http'
import { concatBytes, encodeUtf8 } from '../protocol/bytes.ts'
import type { Keep, KeptAnswer } from './answerStore.ts'
import { longestAnswerMs, type ReadBody } from './answers.ts'

type ReadRequest = IncomingMessage & { body?: unknown }

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
  if (request.readableEnded) return async () => bytesOf(request.body)
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

function bytesOf(body: unknown): Uint8Array | undefined {
  if (body instanceof Uint8Array) return body
  if (typeof body === 'string') return encodeUtf8(body)
  return typeof body === 'object' && body !== null ? encodeUtf8(JSON.stringify(body)) : undefined
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
    Reflect.apply(end, response, args)
    const body = concatBytes(...chunks)
    stop(() => (isVoided() ? keep.forget() : keep.keep({ ...(head ?? headOf(response, [])), body })))
    return response
  }) as typeof end
  // The buyer has gone, but a handler that is still at work may end the answer.
  response.once('close', () => {
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
