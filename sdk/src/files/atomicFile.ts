import { randomUUID } from 'node:crypto'
import { open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'

/** The suffix of a file while it is being written. A crash may leave such a file behind. */
export const unfinishedSuffix = '.tmp'

/**
 * Replaces or creates a file that only its owner can read. A reader finds either the whole old text or the whole new text, even after a crash. When
 * the promise resolves, the new text is on disk.
 */
export async function writeAtomically(path: string, text: string): Promise<void> {
  const unfinished = `${path}.${randomUUID()}${unfinishedSuffix}`
  try {
    const file = await open(unfinished, 'wx', 0o600)
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(unfinished, path)
  } catch (error) {
    await rm(unfinished, { force: true })
    throw error
  }
  await syncFolder(dirname(path))
}

/** Flushes a folder's list of file names to disk. Does nothing on Windows, which can't open a folder but flushes file names by itself. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r').catch(() => undefined)
  await handle?.sync().catch(() => {})
  await handle?.close()
}
