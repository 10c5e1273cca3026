import { type FileHandle, open } from 'node:fs/promises'

const lineBreak = 10
const chunkBytes = 65_536

/**
 * Opens a file of JSON Lines that only grows, or makes it. What a crash left of a line at its end is cut off. One process at a time has
 * it open.
 *
 * @param start the beginning of each of its lines: a file with other lines is left as it is.
 * @throws Error for such a file.
 */
export async function openJsonLinesFile(path: string, start: string) {
  const file = await open(path, 'a+')
  const { size: found } = await file.stat()
  let size = await findLineEnd(file, found)
  const lastLine = size === 0 ? undefined : await readText(file, await findLineEnd(file, size - 1), size - 1)
  const torn = await readText(file, size, Math.min(found, size + start.length))
  if (!(lastLine ?? start).startsWith(start) || !start.startsWith(torn)) {
    await file.close()
    throw new Error(`${path} holds something else: each line of it would begin with ${start}`)
  }
  if (size < found) await file.truncate(size)

  let waiting = ''
  let coming: Promise<void> | null = null
  let underWay: Promise<void> = Promise.resolve()

  /** Lines that were appended during one write go to the disk together with the next. */
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
      // The disk may be full, for example. The next line must not continue half a line.
      await file.truncate(size).catch(() => {})
      throw error
    }
  }

  return {
    /** The last whole line that was in it when it was opened. */
    lastLine,
    /** Appends lines, each without its line break. They are on the disk once the promise resolves. */
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

/** The position after the last line break before `end`; 0 if there is none. */
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
