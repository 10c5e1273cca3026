export { type AuditOptions, type AuditProgress, audit } from './audit.ts'
export type {
  AuditedHalf,
  AuditedReceipt,
  AuditedRefund,
  AuditedTabLine,
  AuditReason,
  AuditReport,
  AuditState,
  BatchTotal,
  PaymentCounts,
  ProviderTotal,
  TabTotal,
  UnreceiptedTransfer,
  WalletAudit,
} from './report.ts'
export { describeOutcome } from './summary.ts'
export { type ReceiptKeys, type VerifiedReceipt, verifyReceipt } from './verifyReceipt.ts'
export { type VerifiedTabLine, verifyTabLine } from './verifyTabLine.ts'
