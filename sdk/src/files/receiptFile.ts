import type { PaidReceipt } from '../client/receipts.ts'
import { openJsonLinesFile } from './jsonLinesFile.ts'

/** A file that keeps receipts. */
export type ReceiptFile = {
  /** Writes a receipt to disk, and then resolves. You can pass it as `onReceipt` directly. */
  keep: (paid: PaidReceipt) => Promise<void>
  close: () => Promise<void>
}

/**
 * Opens a file in which a buyer keeps its receipts, as JSON Lines. `tollkeeper audit --receipts <file>` reads it.
 *
 * Receipts are only appended. If a crash left an incomplete line, it is removed when the file is opened again. Only one process at a time may open
 * the file.
 *
 * @param path path of the file, which is created if it doesn't exist.
 * @throws {TollkeeperError} `store_unreadable` if the file has other contents.
 * @example
 * import { createClient } from '@tollkeeper/sdk'
 * import { openReceiptFile } from '@tollkeeper/sdk/files'
 *
 * export async function createAuditableClient() {
 *   const file = await openReceiptFile('receipts.jsonl')
 *   return createClient({
 *     gatewayUrl: 'https://gateway.example',
 *     walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
 *     network: 'base',
 *     limits: { perDay: '5' },
 *     onReceipt: file.keep,
 *   })
 * }
 */
export async function openReceiptFile(path: string): Promise<ReceiptFile> {
  const file = await openJsonLinesFile(path, '{"receipt":"')
  return {
    keep: ({ receipt, paymentId, url }) => file.append(JSON.stringify({ receipt, paymentId, url })),
    close: () => file.close(),
  }
}
