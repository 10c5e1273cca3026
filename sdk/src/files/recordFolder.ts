import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { TollkeeperError } from '../protocol/errors.ts'
import { writeAtomically } from './atomicFile.ts'

/** Keeps records in a folder. Each record is a JSON file that is replaced as a whole. */
export type RecordFolder<Row> = {
  load: () => Promise<Row[]>
  save: (row: Row) => Promise<void>
  remove: (id: string) => Promise<void>
}

/**
 * Opens the records of one kind in a folder.
 *
 * @param kind the prefix of the files' names.
 * @param check called before each write. It throws if this process must not write.
 * @param onUnreadable called with the error for an unreadable file, which is then skipped. Default: `load` throws the error.
 */
export function openRecordFolder<Row extends { id: string }>(
  folder: string,
  kind: string,
  check: () => Promise<void>,
  onUnreadable?: (error: TollkeeperError) => void,
): RecordFolder<Row> {
  const pathOf = (id: string) => join(folder, `${kind}-${requireName(id)}.json`)
  const last = new Map<string, Promise<unknown>>()

  /** Runs the writes of one file in sequence, so that the file ends up with the contents of the last write. */
  async function inLine(id: string, write: () => Promise<void>): Promise<void> {
    const before = last.get(id) ?? Promise.resolve()
    const writing = before.then(write, write)
    last.set(id, writing)
    try {
      await writing
    } finally {
      if (last.get(id) === writing) last.delete(id)
    }
  }

  return {
    async load() {
      const names = (await readdir(folder)).filter(
        (name) => name.startsWith(`${kind}-`) && name.endsWith('.json'),
      )
      const rows = await Promise.all(
        names.map((name) =>
          readRow<Row>(join(folder, name)).catch((error) => {
            if (!onUnreadable || !(error instanceof TollkeeperError)) throw error
            onUnreadable(error)
            return undefined
          }),
        ),
      )
      return rows.filter((row) => row !== undefined)
    },
    save: (row) =>
      inLine(row.id, async () => {
        await check()
        await writeAtomically(pathOf(row.id), JSON.stringify(row))
      }),
    remove: (id) =>
      inLine(id, async () => {
        await check()
        await rm(pathOf(id), { force: true })
      }),
  }
}

/** @throws {TollkeeperError} `store_unreadable` if another program has damaged the file. This module writes only complete files. */
async function readRow<Row>(path: string): Promise<Row> {
  const text = await readFile(path, 'utf8')
  try {
    return JSON.parse(text) as Row
  } catch (cause) {
    throw new TollkeeperError('store_unreadable', `${path} is not JSON: move it away, or restore it`, {
      cause,
    })
  }
}

/** Returns an id that can be used unchanged as a file name. */
function requireName(id: string): string {
  if (/^[a-z0-9_-]{1,200}$/.test(id)) return id
  throw new TypeError(
    `The id of a stored record may contain only lower-case letters, digits, _ and -, got ${id}`,
  )
}
