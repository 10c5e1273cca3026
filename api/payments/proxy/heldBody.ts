import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { Refusal } from '../../http/refusal.ts'
import { createBodyBytes } from './bodyBytes.ts'

/** A request's body that has arrived whole. */
export type HeldBody = {
  /** Bytes. */
  length: number
  /** SHA-256 in hex. */
  digest: string
  /** Reads it from its beginning. */
  read: () => Readable
  /** Frees its memory and disk, once no one reads it any more. It never rejects. */
  release: () => Promise<void>
}

export type BodyLimits = {
  /** Maximum length of one body, in bytes. */
  maxBytes: number
  /** Up to this length a body is held in memory, and beyond it on disk. */
  inMemoryBytes: number
  /** Maximum bytes of all bodies together, and of one owner's: a client's or a provider's. */
  totalBytes: number
  ownerBytes: number
}

export type BodyHolderOptions = BodyLimits & {
  /** Is called with the error if a body's file can't be closed, which changes nothing for the request. */
  onCloseFailed: (error: unknown) => void
}

export type BodyHolder = ReturnType<typeof createBodyHolder>

/** Whose shares of the space a body takes. */
export type BodyOwners = {
  /** All names of the client who sends it. */
  clients: readonly string[]
  /** The provider whose server it is for, which may not read it. */
  provider: string
}

/** A body that takes space. */
type Upload = BodyOwners & {
  bytes: number
  /** Ends it with this reason; absent: it has arrived whole. */
  giveWay?: (reason: Refusal) => void
}

/**
 * Takes the bodies of paid requests before their payments are accepted: what breaks off, is too large or stops arriving is never paid.
 *
 * If the space is full, or a provider's share of it, an upload of the client who takes the most of it gives way, so space is shared and not
 * given to those who come first: with n clients, each one has at least its n-th part. An upload that gives way is unpaid. A body that has
 * arrived whole keeps its space, because its payment may be accepted already. So a provider whose server doesn't read what it is sent fills
 * its own share, and no more.
 */
export function createBodyHolder(options: BodyHolderOptions) {
  const { maxBytes, inMemoryBytes, totalBytes, ownerBytes, onCloseFailed } = options
  let held = 0
  const heldBy = new Map<string, number>()
  const arriving = new Set<Upload>()

  function grow(upload: Upload, bytes: number): void {
    held += bytes
    upload.bytes += bytes
    for (const owner of [...upload.clients, upload.provider]) {
      const ofOwner = (heldBy.get(owner) ?? 0) + bytes
      if (ofOwner > 0) heldBy.set(owner, ofOwner)
      else heldBy.delete(owner)
    }
  }

  const heldByOwner = (owner: string) => heldBy.get(owner) ?? 0

  /** Returns the bytes of this upload's client, by the name of it that holds the most. */
  const shareOf = ({ clients }: Upload) => Math.max(...clients.map(heldByOwner))

  /** Returns the arriving upload of the greatest client, of all or of one provider's; of one client's uploads the longest. */
  function findGreatest(provider?: string): Upload | undefined {
    let greatest: Upload | undefined
    for (const upload of arriving) {
      if (provider !== undefined && upload.provider !== provider) continue
      const difference = greatest === undefined ? 1 : shareOf(upload) - shareOf(greatest)
      if (difference > 0 || (difference === 0 && upload.bytes > (greatest?.bytes ?? 0))) greatest = upload
    }
    return greatest
  }

  /**
   * Adds bytes to an upload, for which the greatest clients give way if necessary.
   *
   * @throws {Refusal} `overloaded` if its own client holds the most, or more than one client may.
   */
  function take(upload: Upload, bytes: number): void {
    grow(upload, bytes)
    if (shareOf(upload) > ownerBytes) throw overloaded()
    const { provider } = upload
    while (heldByOwner(provider) > ownerBytes) giveWay(findGreatest(provider), upload)
    while (held > totalBytes) giveWay(findGreatest(), upload)
  }

  /** Ends the greatest upload to make room for another one. */
  function giveWay(greatest: Upload | undefined, forUpload: Upload): void {
    if (greatest === undefined || greatest === forUpload) throw overloaded()
    drop(greatest)
    greatest.giveWay?.(overloaded())
  }

  /** Frees an upload's space. */
  function drop(upload: Upload): void {
    arriving.delete(upload)
    grow(upload, -upload.bytes)
  }

  /**
   * Receives a body.
   *
   * @throws {Refusal} `payload_too_large`; `overloaded` if it must give way or the disk fails; `request_timeout` if it breaks off.
   */
  async function receive(body: ReadableStream<Uint8Array>, owners: BodyOwners): Promise<HeldBody> {
    const hash = createHash('sha256')
    const bytes = createBodyBytes(inMemoryBytes)
    let length = 0
    let reading: Readable | undefined
    const gaveWay = Promise.withResolvers<never>()
    // It may give way while a part is written, when no one waits for it.
    gaveWay.promise.catch(() => {})
    const upload: Upload = { ...owners, bytes: 0, giveWay: gaveWay.reject }
    arriving.add(upload)
    const release = async () => {
      await untilClosed(reading)
      drop(upload)
      await bytes.close().catch(onCloseFailed)
    }
    const read = () => {
      reading = bytes.read()
      return reading
    }
    const reader = body.getReader()
    const next = () => Promise.race([gaveWay.promise, readNext(reader)])
    try {
      for (let part = await next(); !part.done; part = await next()) {
        const { value } = part
        if (length + value.length > maxBytes) throw tooLarge(maxBytes)
        take(upload, value.length)
        length += value.length
        hash.update(value)
        await bytes.add(value).catch(refuseForDisk)
      }
      await bytes.finish().catch(refuseForDisk)
      // Its last part may have arrived after it gave way.
      if (!arriving.delete(upload)) throw overloaded()
    } catch (error) {
      reader.releaseLock()
      await release()
      throw error
    }
    return { length, digest: hash.digest('hex'), read, release }
  }

  return { take: receive, heldBytes: () => held }
}

function overloaded(): Refusal {
  return new Refusal('overloaded', 'Too many request bodies are arriving', { details: { retryAfter: 5 } })
}

/** Nothing has been paid yet, so the buyer may send the same payment again. */
function refuseForDisk(cause: unknown): never {
  const details = { retryAfter: 5, dependency: 'disk' }
  throw new Refusal('overloaded', "The body can't be stored, so nothing was accepted", { details, cause })
}

async function readNext(reader: ReadableStreamDefaultReader<Uint8Array>) {
  return reader.read().catch((cause: unknown) => {
    throw new Refusal('request_timeout', 'The body broke off, so nothing was accepted', { cause })
  })
}

/** A reader that fails closes, too. */
async function untilClosed(reading: Readable | undefined): Promise<void> {
  if (!reading || reading.closed) return
  await new Promise((resolve) => reading.once('close', resolve))
}

export function tooLarge(maxBytes: number): Refusal {
  return new Refusal('payload_too_large', `A body has at most ${maxBytes} bytes`)
}
