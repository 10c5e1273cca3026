import { sha256 as sha256Here } from 'viem'
import { bytesToHex, concatBytes, encodeUtf8 } from '../protocol/bytes.ts'

/** A request's body in a form that is sent byte by byte the same each time. */
export type SentBody = {
  /** For `fetch`. Empty: the caller's `Request` has the body. */
  init: Pick<RequestInit, 'body'>
  /** The media type of a form, with its boundary. */
  contentType?: string
  /** The body by itself, also that of a `Request`. */
  read: () => Promise<BodyInit | undefined>
  /** SHA-256 of its bytes, or an empty text without a body; undefined if the body can't be read twice. */
  digest: () => Promise<string | undefined>
}

type Bytes = Uint8Array<ArrayBuffer>

/**
 * Fixes the bytes of a body, so that a payment is presented with the same request each time: sellers bind an answer to them. `fetch`
 * writes a form with another boundary each time.
 *
 * @param body of the options of `fetch`; undefined: that of the request, if there is one.
 * @param request a copy that no one else reads.
 */
export async function fixBody(body: BodyInit | null | undefined, request?: Request): Promise<SentBody> {
  if (body === undefined && request) return bodyOf(request)
  if (body === undefined || body === null) {
    return { init: body === null ? { body } : {}, read: async () => undefined, digest: async () => '' }
  }
  if (typeof FormData === 'function' && body instanceof FormData) {
    // React Native's forms can't be read: some of its responses throw at once. They are sent as they came.
    const fixed = await fixForm(body).catch(() => undefined)
    if (fixed) return fixed
  }
  return { init: { body }, read: async () => body, digest: () => digestOf(body) }
}

/** Whether a body can be sent a second time: a stream can't. */
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
 * Writes a form as `fetch` does, with a boundary that follows from its contents, so that equal forms have equal bytes.
 *
 * @returns undefined in a runtime whose responses have no boundary, such as React Native's.
 * @throws if the form can't be read.
 */
async function fixForm(form: FormData): Promise<SentBody | undefined> {
  const written = new Response(form)
  const [, random] = /boundary="?([^";]+)/.exec(written.headers.get('content-type') ?? '') ?? []
  if (random === undefined) return undefined
  const parts = split(new Uint8Array(await written.arrayBuffer()), encodeUtf8(random))
  // With their lengths, so that contents can't pass for a boundary.
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

async function digestOf(body: BodyInit): Promise<string | undefined> {
  if (!isReplayable(body)) return undefined
  const bytes = new Uint8Array(await new Response(body).arrayBuffer())
  return bytes.length === 0 ? '' : sha256(bytes)
}

async function sha256(bytes: Bytes): Promise<string> {
  // React Native has no crypto of its own, and pages have no subtle one without TLS.
  const { subtle } = (globalThis.crypto ?? {}) as Partial<Crypto>
  const hex = subtle ? bytesToHex(new Uint8Array(await subtle.digest('SHA-256', bytes))) : sha256Here(bytes)
  return hex.slice(2)
}
