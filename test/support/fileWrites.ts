import { type FileHandle, open } from 'node:fs/promises'
import { onTestFinished, vi } from 'vitest'

type Write = (this: FileHandle, bytes: Uint8Array, ...place: number[]) => ReturnType<FileHandle['write']>

/**
 * Spies on the writes of all open files until the test ends.
 *
 * @returns the spy, and the function that writes.
 */
export async function spyOnWrites() {
  const file = await open('/dev/null')
  await file.close()
  const shared = Object.getPrototypeOf(file) as FileHandle
  const write = shared.write as unknown as Write
  const spy = vi.spyOn(shared as unknown as { write: Write }, 'write')
  onTestFinished(() => void spy.mockRestore())
  return { spy, write }
}

/** Makes every file that is written to from now on fail when it is closed, until the test ends. */
export async function failCloses(error: Error): Promise<void> {
  const { spy, write } = await spyOnWrites()
  spy.mockImplementation(function (this: FileHandle, ...args) {
    const { close } = this
    this.close = async () => {
      await close.call(this)
      throw error
    }
    return write.apply(this, args)
  })
}
