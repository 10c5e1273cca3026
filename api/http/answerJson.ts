import { hash } from 'node:crypto'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { Context, TypedResponse } from 'hono'
import type { JSONParsed } from 'hono/utils/types'

const compress = promisify(gzip)

/** Minimum length in bytes of an answer that is compressed. Compressing a shorter answer saves no packet. */
const leastBytes = 1_024
/**
 * Compression level. Lists of records consist mostly of repeated names, so a low level already reduces them to an eighth, and a higher level saves
 * little more.
 */
const level = 3

/**
 * Answers a read with JSON. Compresses it for clients that accept gzip, and answers 304 if the client's copy is current (`If-None-Match`).
 *
 * Requests that change something don't use this function, so their answers aren't compressed. Some of these answers contain a new secret: the length
 * of a compressed answer would reveal parts of the secret if an attacker could also choose a part of the text (BREACH). Files and streams aren't
 * compressed either, because a compressor would delay what they flush.
 */
export async function answerJson(c: Context, text: string | Uint8Array<ArrayBuffer>): Promise<Response> {
  const etag = `W/"${hash('sha1', text, 'base64url')}"`
  c.header('ETag', etag)
  c.header('Vary', 'Accept-Encoding', { append: true })
  if (namesTag(c.req.header('if-none-match'), etag)) return c.body(null, 304)
  c.header('Content-Type', 'application/json')
  const isLong = Buffer.byteLength(text) >= leastBytes
  if (!isLong || !acceptsGzip(c.req.header('accept-encoding'))) return c.body(text)
  c.header('Content-Encoding', 'gzip')
  return c.body((await compress(text, { level })) as Uint8Array<ArrayBuffer>)
}

/** Answers a read with `value` as JSON: like {@link answerJson}, but with the types of `c.json`. */
export async function answerRead<T>(
  c: Context,
  value: T,
): Promise<Response & TypedResponse<JSONParsed<T>, 200, 'json'>> {
  const answer = await answerJson(c, JSON.stringify(value))
  return answer as Response & TypedResponse<JSONParsed<T>, 200, 'json'>
}

/** Compares weakly, as RFC 9110 13.1.2 requires. */
function namesTag(header: string | undefined, etag: string): boolean {
  const strong = (tag: string) => tag.trim().replace(/^W\//, '')
  return header?.split(',').some((tag) => strong(tag) === strong(etag)) ?? false
}

/** Returns whether an `Accept-Encoding` accepts gzip: it names `gzip`, or else `*`, with a weight above 0 (RFC 9110 12.5.3). */
function acceptsGzip(header = ''): boolean {
  const weights = new Map(
    header.split(',').map((one): [string, number] => {
      const [name = '', ...parameters] = one.split(';').map((part) => part.trim().toLowerCase())
      const weight = parameters.find((parameter) => parameter.startsWith('q='))
      return [name, weight === undefined ? 1 : Number(weight.slice(2))]
    }),
  )
  return (weights.get('gzip') ?? weights.get('*') ?? 0) > 0
}
