import { type FileHandle, open } from 'node:fs/promises'
import { TollkeeperError } from '../protocol/errors.ts'

const lineBreak = 10
const chunkBytes = 65_536

/**
 * Opens or creates a file of JSON Lines to which lines are only appended. If a crash left an incomplete line at the end, it is removed. Only one
 * process at a time may open the file.
 *
 * @param start the text with which each line must start. A file with other lines stays unchanged.
 * @param mode permissions of a new file.
 * @throws {TollkeeperError} `store_unreadable` for a file with other lines.
 */
export async function openJsonLinesFile(path: string, start: string, mode = 0o666) {
  const file = await open(path, 'a+', mode)
  const { size: found } = await file.stat()
  let size = await findLineEnd(file, found)
  const lastLine = size === 0 ? undefined : await readText(file, await findLineEnd(file, size - 1), size - 1)
  const torn = await readText(file, size, Math.min(found, size + start.length))
  if (!(lastLine ?? start).startsWith(start) || !start.startsWith(torn)) {
    await file.close()
    throw new TollkeeperError(
      'store_unreadable',
      `${path} has other contents: each line must start with ${start}`,
    )
  }
  if (size < found) await file.truncate(size)

  let waiting = ''
  let coming: Promise<void> | null = null
  let underWay: Promise<void> = Promise.resolve()

  /** Writes all waiting lines. Lines that are appended during a write wait for the next write. */
  async function write(): Promise<void> {
    const bytes = Buffer.from(waiting)
    waiting = ''
    underWay = coming ?? underWay
    coming = null
    try {
      await file.appendFile(bytes)
      await file.datasync()
      size += bytes.length
    } catch (error) {
      // A write failed, for example because the disk is full. Cut off the partial line: otherwise the next line would be appended to it.
      await file.truncate(size).catch(() => {})
      throw error
    }
  }

  return {
    /** The last complete line that the file contained when it was opened. */
    lastLine,
    /** Appends lines, which must not contain line breaks. When the promise resolves, the lines are on disk. */
    append(...lines: string[]): Promise<void> {
      waiting += lines.map((line) => `${line}\n`).join('')
      coming ??= underWay.catch(() => {}).then(write)
      return coming
    },
    async close(): Promise<void> {
      await (coming ?? underWay).catch(() => {})
      await file.close()
    },
  }
}

/** Returns the position after the last line break before `end`, or 0 if there is none. */
async function findLineEnd(file: FileHandle, end: number): Promise<number> {
  for (let to = end; to > 0; to -= chunkBytes) {
    const from = Math.max(to - chunkBytes, 0)
    const at = (await read(file, from, to)).lastIndexOf(lineBreak)
    if (at >= 0) return from + at + 1
  }
  return 0
}

async function readText(file: FileHandle, from: number, to: number): Promise<string> {
  return (await read(file, from, to)).toString('utf8')
}

async function read(file: FileHandle, from: number, to: number): Promise<Buffer> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(to - from), 0, to - from, from)
  return buffer.subarray(0, bytesRead)
}
