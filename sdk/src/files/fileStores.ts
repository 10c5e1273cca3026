import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { type Closable, disposable } from '../client/dispose.ts'
import type { SavedPass } from '../client/passStore.ts'
import type { ClientStores } from '../client/paymentFlow.ts'
import type { SavedPayment } from '../client/paymentStore.ts'
import type { SavedTab } from '../client/tabStore.ts'
import { unfinishedSuffix } from './atomicFile.ts'
import { lockFolder } from './folderLock.ts'
import { openRecordFolder } from './recordFolder.ts'
import { openSpendingFile } from './spendingFile.ts'

/** The stores of a folder. Pass them as the option `stores` of one client. */
export type FileStores = Required<ClientStores> &
  Closable & {
    /** Releases the folder. Call it after the client's own `close()`. The folder is also released when the process ends. */
    close: () => Promise<void>
  }

/**
 * Creates stores that keep all of a client's state in a folder: the daily sums, open tabs, signed payments until their response is complete, and
 * passes while they are valid. If the client restarts, even after a crash at any point, it stays within the same limits, continues its tabs and
 * passes, and repeats an unfinished request with the payment that it had already signed.
 *
 * All state is on disk before a signature is sent. Files are replaced as a whole, and only their owner can read them (0600). They contain no key, but
 * anyone who reads a signed payment can settle it, and anyone who reads a bearer pass can use it. Only one process at a time can open the folder, and
 * only one client at a time may use the stores.
 *
 * @param folder the folder, which is created if it doesn't exist.
 * @throws {TollkeeperError} `store_in_use` if another process has opened the folder; `store_unreadable` if it contains a file that no store wrote.
 * @example
 * import { createClient } from '@tollkeeper/sdk'
 * import { createFileStores } from '@tollkeeper/sdk/files'
 *
 * export async function readWeather() {
 *   await using stores = await createFileStores('wallet')
 *   await using client = createClient({
 *     gatewayUrl: 'https://gateway.example',
 *     walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
 *     network: 'base',
 *     limits: { perPayment: '0.10', perDay: '5' },
 *     stores,
 *   })
 *   return (await client.request('https://api.example/weather')).data
 * }
 */
export async function createFileStores(folder: string): Promise<FileStores> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const { check, release } = await lockFolder(folder)
  try {
    for (const name of await readdir(folder))
      if (name.endsWith(unfinishedSuffix)) await rm(join(folder, name), { force: true })
    const spending = await openSpendingFile(join(folder, 'spending.jsonl'), check)
    const close = async () => {
      await spending.close()
      await release()
    }
    return {
      spending,
      tabs: openRecordFolder<SavedTab>(folder, 'tab', check),
      payments: openRecordFolder<SavedPayment>(folder, 'payment', check),
      // Skip an unreadable pass, so that the client can use its other passes. At worst, the client buys the skipped pass again, within its limits.
      passes: openRecordFolder<SavedPass>(folder, 'pass', check, ({ message }) =>
        console.warn(`[tollkeeper] ${message}. The other passes are still used`),
      ),
      close,
      ...disposable(close),
    }
  } catch (error) {
    await release()
    throw error
  }
}
