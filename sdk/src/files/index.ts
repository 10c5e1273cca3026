export { createFileStores, type FileStores } from './fileStores.ts'
export { openReceiptFile, type ReceiptFile } from './receiptFile.ts'
