export { type AuditOptions, type AuditProgress, audit } from './audit.ts'
export type {
  AuditedHalf,
  AuditedReceipt,
  AuditedRefund,
  AuditReason,
  AuditReport,
  AuditState,
  BatchTotal,
  ProviderTotal,
  TabTotal,
  UnreceiptedTransfer,
  WalletAudit,
} from './report.ts'
export { type ReceiptKeys, type VerifiedReceipt, verifyReceipt } from './verifyReceipt.ts'
