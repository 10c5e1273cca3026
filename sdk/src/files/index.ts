export { openReceiptFile, type ReceiptFile } from './receiptFile.ts'
