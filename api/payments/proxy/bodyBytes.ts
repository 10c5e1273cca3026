import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'

/** The bytes of one body. */
export type BodyBytes = {
  /** Appends a copy of a part. It rejects if the disk fails. */
  add: (part: Uint8Array) => Promise<void>
  /** Must be called after the last part. It rejects if the disk fails. */
  finish: () => Promise<void>
  /** Reads the bytes from the beginning. */
  read: () => Readable
  /** Frees memory and disk. */
  close: () => Promise<void>
}

/** Length in bytes of a body's first buffer. */
const firstBytes = 1_024
/** Number of bytes read from disk at once. */
const partBytes = 65_536

/**
 * Holds the bytes of a body: in memory up to `inMemoryBytes`, and beyond that on disk.
 *
 * Parts are copied into one buffer of at most `inMemoryBytes`, so memory and writes depend on the body's length, not on the number of its
 * parts: a client may send each byte as a separate part.
 */
export function createBodyBytes(inMemoryBytes: number): BodyBytes {
  let buffer = new Uint8Array(Math.min(firstBytes, inMemoryBytes))
  let used = 0
  let file: FileHandle | undefined
  let written = 0

  function enlarge(): void {
    const larger = new Uint8Array(Math.min(2 * buffer.length, inMemoryBytes))
    larger.set(buffer.subarray(0, used))
    buffer = larger
  }

  async function writeOut(): Promise<void> {
    file ??= await openUnnamed()
    await writeAll(file, buffer.subarray(0, used), written)
    written += used
    used = 0
  }

  return {
    async add(part) {
      for (let left = part; left.length > 0; ) {
        while (used + left.length > buffer.length && buffer.length < inMemoryBytes) enlarge()
        if (used === buffer.length) await writeOut()
        const fitting = left.subarray(0, buffer.length - used)
        buffer.set(fitting, used)
        used += fitting.length
        left = left.subarray(fitting.length)
      }
    },
    async finish() {
      if (file) await writeOut()
      // Shrinks the buffer, so that the memory in use equals the length that is counted.
      buffer = buffer.slice(0, used)
    },
    read: () => Readable.from(file ? readParts(file) : [buffer]),
    async close() {
      buffer = new Uint8Array()
      const open = file
      file = undefined
      await open?.close()
    },
  }
}

/** Writes all bytes. One write may take fewer bytes than it is given, for example when the disk is almost full. */
async function writeAll(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done)
    if (bytesWritten === 0) throw new Error('The disk took no bytes')
    done += bytesWritten
  }
}

async function* readParts(file: FileHandle): AsyncGenerator<Uint8Array> {
  for (let position = 0; ; ) {
    const { buffer, bytesRead } = await file.read({ buffer: Buffer.allocUnsafe(partBytes), position })
    if (bytesRead === 0) return
    position += bytesRead
    yield buffer.subarray(0, bytesRead)
  }
}

/** Opens a file that disappears when its handle is closed, even if the process is killed. */
async function openUnnamed(): Promise<FileHandle> {
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-body-'))
  try {
    return await open(join(folder, 'body'), 'w+', 0o600)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
