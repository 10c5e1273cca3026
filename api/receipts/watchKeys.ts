import { stat } from 'node:fs/promises'
import type { Logger } from '../log.ts'
import { type ReceiptKeys, readReceiptKeys } from './keys.ts'

const intervalMs = 5_000

/**
 * Follows changes of the key file, so that a rotation needs no restart.
 *
 * @returns a function that ends it
 */
export function watchReceiptKeys(path: string, keys: ReceiptKeys, log: Logger): () => void {
  let seen: number | undefined

  async function look(): Promise<void> {
    const { mtimeMs } = await stat(path)
    if (mtimeMs === seen) return
    const file = await readReceiptKeys(path)
    if (file !== undefined) keys.replace(file)
    if (seen !== undefined)
      log.info({ kids: keys.jwks.keys.map(({ kid }) => kid) }, 'receipt keys were read anew')
    seen = mtimeMs
  }

  // A file that is gone or broken for now: what was read before goes on.
  const timer = setInterval(() => {
    look().catch((error: unknown) => log.error({ err: error }, 'receipt keys could not be read'))
  }, intervalMs)
  timer.unref()
  return () => clearInterval(timer)
}
