import type { PaidReceipt } from '../client/receipts.ts'
import { openJsonLinesFile } from './jsonLinesFile.ts'

/** A file that receipts are kept in. */
export type ReceiptFile = {
  /** Keeps a receipt; it is on the disk once the promise resolves. Fits `onReceipt` as it is. */
  keep: (paid: PaidReceipt) => Promise<void>
  close: () => Promise<void>
}

/**
 * Opens a file in which a buyer keeps its receipts, as JSON Lines: `tollkeeper audit --receipts <file>` reads it.
 *
 * It only grows, and a line that a crash cut short is dropped when the file is opened again. One process at a time.
 *
 * @param path of the file, which is made if it doesn't exist.
 * @throws Error if the file holds something else.
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
 *     maxDailyUsdc: '5',
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
