import { formatUsdc } from '../protocol/amount.ts'
import type { AuditReport } from './report.ts'

/** Whether nothing contradicts the chain. Unlike `reconciled`, this allows pending payments. */
export function isSound({
  receipts,
  tabLines,
  wallets,
}: Pick<AuditReport, 'receipts' | 'tabLines' | 'wallets'>): boolean {
  return (
    [...receipts, ...tabLines].every(({ reconciled, state }) => reconciled || state === 'pending') &&
    wallets.every(({ unreceipted }) => unreceipted.length === 0)
  )
}

/**
 * Summarizes an audit in one sentence: the result, the amount that is still pending and, if needed, what to do.
 *
 * @example
 * import { type AuditReport, describeOutcome } from '@tollkeeper/sdk/audit'
 *
 * export const print = (report: AuditReport) => console.log(describeOutcome(report))
 */
export function describeOutcome(report: AuditReport): string {
  const { receipts, tabLines, wallets, counts } = report
  const open =
    counts.outstanding === 0
      ? ''
      : ` ${many(counts.outstanding, 'payment')} (${formatUsdc(counts.outstandingAmount)} USDC) still on their way.`
  if (isSound(report)) {
    if (receipts.length + tabLines.length === 0 && wallets.length === 0)
      return 'There is nothing to reconcile.'
    const voided = counts.voided === 0 ? '' : `, ${counts.voided} voided`
    return `Reconciled: ${counts.settled} settled${voided}.${open}`
  }
  const failing = (list: readonly { reconciled: boolean; state: string }[]) =>
    list.filter(({ reconciled, state }) => !reconciled && state !== 'pending').length
  const [badReceipts, badLines] = [failing(receipts), failing(tabLines)]
  const unreceipted = wallets.reduce((sum, one) => sum + one.unreceipted.length, 0)
  const faults = [
    badReceipts > 0 && `${badReceipts} of ${many(receipts.length, 'receipt')}`,
    badLines > 0 && `${badLines} of ${many(tabLines.length, 'tab line')}`,
  ].filter((fault) => fault !== false)
  const contradictions =
    faults.length === 0 ? [] : [`${faults.join(' and ')} contradict the chain or each other`]
  const strays =
    unreceipted === 0
      ? []
      : [`${many(unreceipted, 'transfer')} of the wallets ${unreceipted === 1 ? 'has' : 'have'} no receipt`]
  return `Not reconciled: ${[...contradictions, ...strays].join(', ')}. See the findings below, and ask the gateway's operator about them.${open}`
}

function many(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
