import { stat } from 'node:fs/promises'
import type { Logger } from '@tollkeeper/runtime/log'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
import { type ReceiptKeys, readReceiptKeys } from './keys.ts'

/** Watches the key file for changes, so that a rotation needs no restart. */
export function watchReceiptKeys(path: string, keys: ReceiptKeys, log: Logger): Loop {
  let seen: number | undefined

  async function look(): Promise<void> {
    const { mtimeMs } = await stat(path)
    if (mtimeMs === seen) return
    const file = await readReceiptKeys(path)
    if (file !== undefined) keys.replace(file)
    if (seen !== undefined)
      log.info({ kids: keys.jwks.keys.map(({ kid }) => kid) }, 'receipt keys were reloaded')
    seen = mtimeMs
  }

  return repeat({
    name: 'receipt keys',
    everyMs: 5_000,
    step: look,
    // If the file is missing or broken, the keys that were read before stay in use.
    onError: (error) => log.error({ err: error }, 'receipt keys could not be read'),
  })
}
