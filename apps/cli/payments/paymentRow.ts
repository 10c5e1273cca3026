import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import { printable, shorten } from '../terminal/output.ts'

/** The fields of a row of `GET /providers/{id}/payments` that the commands read. Amounts are base units. */
export type PaymentRow = {
  paymentId: string
  payment_status: PaymentStatus
  tab: { tabId: string; sale: number; requests: number } | null
  network: string
  payer: string
  totalUsdc: string
  providerUsdc: string
  resource: string
  acceptedAt: string
  transactionHash: string | null
  failureCode: string | null
}

export type PaymentPage = { payments: PaymentRow[]; cursor: string | null }

export const rowHeader = [
  'accepted',
  'payment',
  'status',
  'USDC',
  'net USDC',
  'network',
  'payer',
  'resource',
  'transaction',
]

/** Returns the cells of a payment in the order of {@link rowHeader}. */
export function toCells(row: PaymentRow): string[] {
  return [
    row.acceptedAt,
    row.paymentId,
    row.payment_status,
    formatUsdc(BigInt(row.totalUsdc)),
    formatUsdc(BigInt(row.providerUsdc)),
    row.network,
    shorten(row.payer),
    row.tab === null ? row.resource : `${row.resource} (${row.tab.requests} on a tab)`,
    row.transactionHash === null ? '' : shorten(row.transactionHash),
  ].map(printable)
}

/** The meaning of each status for a provider. */
const meanings: Record<PaymentStatus, string> = {
  verified: 'accepted; not settled yet',
  settling: 'sent to the chain; it is not mined yet',
  settled: 'settled; all of its USDC arrived on chain',
  partially_settled:
    'partially settled; one of its two transfers arrived, and the other is still to be settled',
  retrying: 'its settlement failed and is retried',
  failed: 'failed; it is no longer retried',
  voided: 'voided; the buyer is not charged',
}

/** Describes a status in words. */
export function describeStatus(status: PaymentStatus): string {
  return meanings[status]
}
