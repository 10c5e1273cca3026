import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { Refusal } from '../../http/refusal.ts'
import { createBodyBytes } from './bodyBytes.ts'

/** A request's body that has arrived completely. */
export type HeldBody = {
  /** Length in bytes. */
  length: number
  /** SHA-256 in hex. */
  digest: string
  /** Reads the body from the beginning. */
  read: () => Readable
  /** Frees its memory and disk space, once it is no longer being read. It never rejects. */
  release: () => Promise<void>
}

export type BodyLimits = {
  /** Maximum length of one body, in bytes. */
  maxBytes: number
  /** Maximum length in bytes of a body in memory; a longer body is held on disk. */
  inMemoryBytes: number
  /** Maximum total size of all bodies in bytes. */
  totalBytes: number
  /** Maximum total size in bytes of one client's bodies, and of one provider's bodies. */
  ownerBytes: number
}

export type BodyHolderOptions = BodyLimits & {
  /** Called with the error if a body's file can't be closed. The request is not affected. */
  onCloseFailed: (error: unknown) => void
}

export type BodyHolder = ReturnType<typeof createBodyHolder>

/** The owners whose shares of the space a body uses. */
export type BodyOwners = {
  /** All names under which the space counts for the client, such as its address and its challenge. */
  clients: readonly string[]
  /** The provider whose server receives the body. That server may not read it. */
  provider: string
}

/** A body that uses space. */
type Upload = BodyOwners & {
  bytes: number
  /** Cancels the upload for this reason; absent once the body is complete. */
  giveWay?: (reason: Refusal) => void
}

/**
 * Creates the holder of paid requests' bodies. It receives a body before the payment is accepted, so a body that breaks off, is too large or
 * stops arriving is never paid.
 *
 * If the space, or one provider's share of it, is full, the holder cancels an upload that is still arriving from the client that uses the
 * most space. The canceled request fails unpaid. With n clients, each one can therefore use at least 1/n of the space. A complete body is never
 * canceled, because its payment may already be accepted. A provider whose server doesn't read its requests can therefore fill only its own
 * share.
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

  /** Returns how many bytes the upload's client holds. If the client has several names, the one with the most bytes decides. */
  const shareOf = ({ clients }: Upload) => Math.max(...clients.map(heldByOwner))

  /**
   * Returns the arriving upload to cancel next: the longest upload of the client that uses the most space. Considers all clients, or only
   * the clients of one provider.
   */
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
   * Adds bytes to an upload. If there is no space left, cancels uploads of the clients that use the most space.
   *
   * @throws {Refusal} `overloaded` if the upload's own client holds the most bytes, or would exceed the limit of one client.
   */
  function take(upload: Upload, bytes: number): void {
    grow(upload, bytes)
    if (shareOf(upload) > ownerBytes) throw overloaded()
    const { provider } = upload
    while (heldByOwner(provider) > ownerBytes) giveWay(findGreatest(provider), upload)
    while (held > totalBytes) giveWay(findGreatest(), upload)
  }

  /** Cancels the largest upload to free space for another upload. */
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
   * @throws {Refusal} `payload_too_large`; `overloaded` if it is canceled or the disk fails; `request_timeout` if it breaks off.
   */
  async function receive(body: ReadableStream<Uint8Array>, owners: BodyOwners): Promise<HeldBody> {
    const hash = createHash('sha256')
    const bytes = createBodyBytes(inMemoryBytes)
    let length = 0
    let reading: Readable | undefined
    const gaveWay = Promise.withResolvers<never>()
    // The upload may be canceled during a write, when nothing awaits this promise yet. Without a handler, its rejection would end the process.
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
      // The last part may have arrived after the upload was canceled.
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
  return new Refusal('overloaded', 'Too many request bodies are arriving: try again later', {
    details: { retryAfter: 5 },
  })
}

/** Refuses the request if the disk fails. Nothing has been paid yet, so the buyer may send the same payment again. */
function refuseForDisk(cause: unknown): never {
  const details = { retryAfter: 5, dependency: 'disk' }
  throw new Refusal(
    'overloaded',
    "The request body can't be stored, so no payment was accepted: try again later",
    { details, cause },
  )
}

async function readNext(reader: ReadableStreamDefaultReader<Uint8Array>) {
  return reader.read().catch((cause: unknown) => {
    throw new Refusal(
      'request_timeout',
      'The request body ended early, so no payment was accepted: send the request again',
      { cause },
    )
  })
}

/** Waits until a reader has closed, which also happens when it fails. */
async function untilClosed(reading: Readable | undefined): Promise<void> {
  if (!reading || reading.closed) return
  await new Promise((resolve) => reading.once('close', resolve))
}

export function tooLarge(maxBytes: number): Refusal {
  return new Refusal('payload_too_large', `A body can have at most ${maxBytes} bytes`)
}
