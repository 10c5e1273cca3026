import { sha256 as sha256Here } from 'viem'
import { bytesToHex, concatBytes, encodeUtf8 } from '../protocol/bytes.ts'

/** A request's body with the same bytes each time it is sent. */
export type SentBody = {
  /** Options for `fetch`. Empty if the caller's `Request` has the body. */
  init: Pick<RequestInit, 'body'>
  /** The media type of a form, including its boundary. */
  contentType?: string
  /** Returns the body, also if it comes from a `Request`. */
  read: () => Promise<BodyInit | undefined>
  /** Returns the SHA-256 of the body's bytes, or an empty text if there is no body. Returns undefined if the body can't be read twice. */
  digest: () => Promise<string | undefined>
}

type Bytes = Uint8Array<ArrayBuffer>

/**
 * Fixes the bytes of a body, so that each attempt of a payment sends the same request: sellers bind their response to these bytes. `fetch` would
 * write a form with another boundary each time.
 *
 * @param body from the options of `fetch`. Undefined: use the request's body, if there is one.
 * @param request a copy that no other code reads.
 */
export async function fixBody(body: BodyInit | null | undefined, request?: Request): Promise<SentBody> {
  if (body === undefined && request) return bodyOf(request)
  if (body === undefined || body === null) {
    return { init: body === null ? { body } : {}, read: async () => undefined, digest: async () => '' }
  }
  if (typeof FormData === 'function' && body instanceof FormData) {
    // React Native can't read a form, and some of its `Response` classes throw when they are asked to. Send such forms unchanged.
    const fixed = await fixForm(body).catch(() => undefined)
    if (fixed) return fixed
  }
  return { init: { body }, read: async () => body, digest: () => digestOf(body) }
}

/** Returns whether a body can be sent a second time. A stream can't. */
export function isReplayable(body: BodyInit | null | undefined): boolean {
  const isStream = typeof ReadableStream === 'function' && body instanceof ReadableStream
  return !isStream && !(typeof body === 'object' && body !== null && Symbol.asyncIterator in body)
}

function bodyOf(request: Request): SentBody {
  let reading: Promise<Bytes> | undefined
  const read = () => {
    reading ??= request
      .clone()
      .arrayBuffer()
      .then((buffer) => new Uint8Array(buffer))
    return reading
  }
  return {
    init: {},
    read: async () => {
      const bytes = await read()
      return bytes.length === 0 ? undefined : bytes
    },
    digest: async () => {
      const bytes = await read()
      return bytes.length === 0 ? '' : sha256(bytes)
    },
  }
}

/**
 * Writes a form like `fetch`, but derives the boundary from the contents, so that equal forms have equal bytes.
 *
 * @returns undefined in a runtime whose `Response` sets no boundary for a form, such as React Native.
 * @throws if the form can't be read.
 */
async function fixForm(form: FormData): Promise<SentBody | undefined> {
  const written = new Response(form)
  const [, random] = /boundary="?([^";]+)/.exec(written.headers.get('content-type') ?? '') ?? []
  if (random === undefined) return undefined
  const parts = split(new Uint8Array(await written.arrayBuffer()), encodeUtf8(random))
  // Also hash the lengths. Otherwise, two forms whose parts differ, but join to the same bytes, would get the same boundary.
  const lengths = encodeUtf8(parts.map(({ length }) => length).join())
  const boundary = `form-${await sha256(concatBytes(lengths, ...parts))}`
  const mark = encodeUtf8(boundary)
  const bytes = concatBytes(...parts.flatMap((part, index) => (index === 0 ? [part] : [mark, part])))
  return {
    init: { body: bytes },
    contentType: `multipart/form-data; boundary=${boundary}`,
    read: async () => bytes,
    digest: () => sha256(bytes),
  }
}

function split(bytes: Bytes, by: Uint8Array): Bytes[] {
  const [first = 0] = by
  const parts: Bytes[] = []
  let begin = 0
  for (let at = bytes.indexOf(first); at !== -1; at = bytes.indexOf(first, at)) {
    const start = at
    if (!by.every((byte, index) => bytes[start + index] === byte)) {
      at += 1
      continue
    }
    parts.push(bytes.subarray(begin, start))
    begin = start + by.length
    at = begin
  }
  return [...parts, bytes.subarray(begin)]
}

/** Returns the SHA-256 of a body's bytes, or an empty text if there are no bytes. Returns undefined if the body can't be read twice. */
export async function digestOf(body: BodyInit): Promise<string | undefined> {
  if (!isReplayable(body)) return undefined
  const bytes = new Uint8Array(await new Response(body).arrayBuffer())
  return bytes.length === 0 ? '' : sha256(bytes)
}

/** Returns the SHA-256 of bytes, in hex without `0x`. */
export async function sha256(bytes: Uint8Array): Promise<string> {
  // React Native has no crypto, and pages without TLS have no crypto.subtle.
  const { subtle } = (globalThis.crypto ?? {}) as Partial<Crypto>
  const hex = subtle
    ? bytesToHex(new Uint8Array(await subtle.digest('SHA-256', bytes as Bytes)))
    : sha256Here(bytes)
  return hex.slice(2)
}
