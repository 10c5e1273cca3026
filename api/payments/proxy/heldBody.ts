import { createHash } from 'node:crypto'
import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { Refusal } from '../../http/refusal.ts'

/** A request's body that has arrived whole. */
export type HeldBody = {
  /** Bytes. */
  length: number
  /** SHA-256 in hex. */
  digest: string
  /** Reads it from its beginning. */
  read: () => Readable
  /** Frees its memory and disk, once no one reads it any more. */
  release: () => Promise<void>
}

export type BodyLimits = {
  /** Maximum length of one body, in bytes. */
  maxBytes: number
  /** Up to this length a body is held in memory, and beyond it on disk. */
  inMemoryBytes: number
  /** Maximum bytes of all bodies together, and of one client's. */
  totalBytes: number
  clientBytes: number
}

/** How much is read from disk at a time. */
const partBytes = 65_536

export type BodyHolder = ReturnType<typeof createBodyHolder>

/**
 * Takes the bodies of paid requests before their payments are accepted: what breaks off, is too large or stops arriving is never paid.
 */
export function createBodyHolder({ maxBytes, inMemoryBytes, totalBytes, clientBytes }: BodyLimits) {
  let held = 0
  const heldFor = new Map<string, number>()

  /** @throws {Refusal} `overloaded` */
  function count(client: string, bytes: number): void {
    const ofClient = (heldFor.get(client) ?? 0) + bytes
    if (bytes > 0 && (held + bytes > totalBytes || ofClient > clientBytes)) {
      throw new Refusal('overloaded', 'Too many request bodies are arriving', { details: { retryAfter: 5 } })
    }
    held += bytes
    if (ofClient > 0) heldFor.set(client, ofClient)
    else heldFor.delete(client)
  }

  /**
   * Receives a body.
   *
   * @param client whose share of the space it takes.
   * @throws {Refusal} `payload_too_large`, `overloaded`; `request_timeout` if it breaks off.
   */
  async function take(body: ReadableStream<Uint8Array>, client: string): Promise<HeldBody> {
    const hash = createHash('sha256')
    const chunks: Uint8Array[] = []
    let file: FileHandle | undefined
    let length = 0
    let reading: Readable | undefined
    const release = async () => {
      await untilClosed(reading)
      count(client, -length)
      length = 0
      chunks.length = 0
      await file?.close()
      file = undefined
    }
    const read = () => {
      // A body in memory comes in the parts in which it arrived.
      reading = Readable.from(file ? readParts(file) : chunks)
      return reading
    }
    const reader = body.getReader()
    try {
      for (let part = await next(reader); !part.done; part = await next(reader)) {
        const { value } = part
        if (length + value.length > maxBytes) throw tooLarge(maxBytes)
        count(client, value.length)
        length += value.length
        hash.update(value)
        if (file) await file.write(value)
        else chunks.push(value)
        if (!file && length > inMemoryBytes) {
          file = await openUnnamed()
          for (const chunk of chunks.splice(0)) await file.write(chunk)
        }
      }
    } catch (error) {
      reader.releaseLock()
      await release()
      throw error
    }
    return { length, digest: hash.digest('hex'), read, release }
  }

  return { take, heldBytes: () => held }
}

async function next(reader: ReadableStreamDefaultReader<Uint8Array>) {
  return reader.read().catch((cause: unknown) => {
    throw new Refusal('request_timeout', 'The body broke off, so nothing was accepted', { cause })
  })
}

/** A reader that fails closes, too. */
async function untilClosed(reading: Readable | undefined): Promise<void> {
  if (!reading || reading.closed) return
  await new Promise((resolve) => reading.once('close', resolve))
}

async function* readParts(file: FileHandle): AsyncGenerator<Uint8Array> {
  for (let position = 0; ; ) {
    const { buffer, bytesRead } = await file.read({ buffer: Buffer.allocUnsafe(partBytes), position })
    if (bytesRead === 0) return
    position += bytesRead
    yield buffer.subarray(0, bytesRead)
  }
}

/** A file that disappears with its handle, however the process ends. */
async function openUnnamed(): Promise<FileHandle> {
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-body-'))
  try {
    return await open(join(folder, 'body'), 'w+', 0o600)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

export function tooLarge(maxBytes: number): Refusal {
  return new Refusal('payload_too_large', `A body has at most ${maxBytes} bytes`)
}
