export { openReceiptFile, type ReceiptFile } from './receiptFile.ts'
export { openSpendingFile, type SpendingFile } from './spendingFile.ts'
