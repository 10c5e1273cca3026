import type {
  AuditedHalf,
  AuditedReceipt,
  AuditReport,
  AuditState,
  BatchTotal,
  PaymentCounts,
  ProviderTotal,
  WalletAudit,
} from '@tollkeeper/sdk/audit/report'
import { describeOutcome, isSound } from '@tollkeeper/sdk/audit/summary'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { formatCsvLine } from '@tollkeeper/sdk/protocol/csv'
import { isoSeconds } from '@tollkeeper/sdk/protocol/time'
import { formatTable, paint, printable, shorten } from '../terminal/output.ts'
import type { ReceiptLines } from './readReceipts.ts'

export type Lines = readonly { line: number }[]

const stateColour = (state: AuditState) =>
  state === 'settled' ? 'green' : state === 'pending' ? 'yellow' : 'red'

/** Maximum number of unreconciled receipts that are listed. */
const listed = 50

/** Formats the report for people: the result in one sentence, then tables. */
export function renderReport(report: AuditReport, lines: ReceiptLines): string {
  const blocks = [renderOutcome(report), renderOdd(report, lines), renderProviders(report)]
  blocks.push(renderBatches(report), renderTabs(report), ...report.wallets.map(renderWallet))
  const upTo = report.heads.map(({ network, blockNumber }) => `${network} block ${blockNumber}`).join(', ')
  const counts = (Object.keys(report.states) as AuditState[])
    .filter((state) => report.states[state] > 0)
    .map((state) => paint(stateColour(state), `${report.states[state]} ${state}`))
  blocks.push(
    `Receipts: ${counts.join(', ') || 'none'}; tab lines: ${report.tabLines.length}; read up to ${upTo}`,
  )
  return blocks.filter((block) => block !== undefined).join('\n\n')
}

function renderOutcome(report: AuditReport): string {
  const isWell = isSound(report)
  const sentence = paint(isWell ? 'green' : 'red', describeOutcome(report))
  const isOpen = isWell && !report.reconciled
  return isOpen
    ? `${sentence}\nThe exit status is 1 until they have settled. To exit with 0, pass --allow-pending.`
    : sentence
}

/** Formats a heading and a table; if there are totals, they are the last row. */
function titled(
  title: string,
  header: readonly string[],
  rows: readonly (readonly string[])[],
  totals?: readonly string[],
): string {
  return `${paint('bold', title)}\n${formatTable(header, totals && rows.length > 0 ? [...rows, totals] : rows)}`
}

function renderOdd({ receipts, tabLines }: AuditReport, lines: ReceiptLines): string | undefined {
  const odd = [
    ...receipts.map((one) => ({
      ...one,
      id: one.payment?.paymentId,
      at: lines.receipts[one.position]?.line,
    })),
    ...tabLines.map((one) => ({ ...one, id: one.line?.tabId, at: lines.tabLines[one.position]?.line })),
  ].filter(({ reconciled }) => !reconciled)
  if (odd.length === 0) return undefined
  const rows = odd
    .slice(0, listed)
    .map(({ position, state, reason = '', id = '-', at = position + 1, detail }) => [
      ...[String(at), state, reason, printable(id), printable(detail)],
    ])
  const table = titled(
    'Not settled as promised',
    ['line', 'state', 'reason', 'payment', 'what was found'],
    rows,
  )
  return odd.length > listed ? `${table}\n… and ${odd.length - listed} more: see --csv or --json` : table
}

function renderProviders({ providers, counts }: AuditReport): string | undefined {
  if (providers.length === 0) return undefined
  const numbers = ({ payments, settled, outstanding, failed, voided }: PaymentCounts) =>
    [payments, settled, outstanding, failed, voided].map(String)
  const amounts = (totals: readonly ProviderTotal[]) =>
    [
      (one: ProviderTotal) => one.providerAmount,
      (one: ProviderTotal) => one.platformAmount,
      (one: ProviderTotal) => one.pendingAmount,
      (one: ProviderTotal) => one.refundedAmount,
    ].map((amount) => formatUsdc(totals.reduce((sum, one) => sum + amount(one), 0n)))
  const header = [
    ...['provider', 'network', 'payments', 'settled', 'on their way', 'failed', 'voided'],
    ...['received USDC', 'platform USDC', 'to come USDC', 'refunded USDC'],
  ]
  const rows = providers.map((one) => [
    ...[printable(one.providerId), one.network],
    ...numbers(one.counts),
    ...amounts([one]),
  ])
  return titled('Payments by provider, counted as in the statement', header, rows, [
    ...['total', ''],
    ...numbers(counts),
    ...amounts(providers),
  ])
}

function renderBatches({ batches }: AuditReport): string | undefined {
  if (batches.length === 0) return undefined
  const sum = (amount: (one: BatchTotal) => bigint) =>
    formatUsdc(batches.reduce((all, one) => all + amount(one), 0n))
  const rows = batches.map((one) => [
    ...[one.transactionHash, String(one.blockNumber), isoSeconds(one.blockTime), String(one.payments)],
    ...[formatUsdc(one.providerAmount), formatUsdc(one.platformAmount)],
  ])
  return titled(
    'Settlement transactions',
    ['batch', 'block', 'mined', 'payments', 'providers USDC', 'platform USDC'],
    rows,
    [
      ...['total', '', '', String(batches.reduce((all, { payments }) => all + payments, 0))],
      ...[sum((one) => one.providerAmount), sum((one) => one.platformAmount)],
    ],
  )
}

function renderTabs({ tabs }: AuditReport): string | undefined {
  if (tabs.length === 0) return undefined
  const all = tabs.flatMap(({ lines }) => lines)
  const header = [
    ...['tab', 'network', 'provider', 'requests', 'receipts USDC', 'tab line USDC', 'moved USDC', 'gap USDC'],
    'transaction',
  ]
  type Row = (typeof all)[number]
  const amounts = ({
    boughtAmount,
    booked,
    movedAmount,
    gap,
  }: Pick<Row, 'boughtAmount' | 'booked' | 'movedAmount' | 'gap'>) =>
    [boughtAmount, booked?.totalAmount, movedAmount, gap].map((amount) =>
      amount === undefined ? '' : formatUsdc(amount),
    )
  const requestsOf = ({ requests, booked }: Row) => Math.max(requests, booked?.requests ?? 0)
  const rows = tabs.flatMap(({ id, network, lines, transactionHash = '-' }) =>
    lines.map((line) => [
      ...[id, network, shorten(line.provider), String(requestsOf(line))],
      ...amounts(line),
      transactionHash,
    ]),
  )
  const sum = (amount: (line: Row) => bigint | undefined) =>
    all.reduce((total, line) => total + (amount(line) ?? 0n), 0n)
  return titled('Tab lines: what each tab pays to a provider', header, rows, [
    ...['total', '', '', String(all.reduce((total, line) => total + requestsOf(line), 0))],
    ...amounts({
      boughtAmount: sum((line) => line.boughtAmount),
      booked: { requests: 0, totalAmount: sum((line) => line.booked?.totalAmount) },
      movedAmount: sum((line) => line.movedAmount),
      gap: sum((line) => line.gap),
    }),
    '',
  ])
}

function renderWallet({ wallet, network, transfers, plainTransfers, unreceipted }: WalletAudit): string {
  const summary = `${wallet} on ${network}: ${transfers} transfers by authorization, ${unreceipted.length} without a receipt; ${plainTransfers} plain transfers`
  if (unreceipted.length === 0) return summary
  const rows = unreceipted
    .slice(0, listed)
    .map((one) => [
      ...[one.direction, formatUsdc(one.value), shorten(one.direction === 'in' ? one.from : one.to)],
      ...[isoSeconds(one.blockTime), one.transactionHash],
    ])
  const total = formatUsdc(unreceipted.reduce((sum, { value }) => sum + value, 0n))
  return titled(summary, ['', 'USDC', 'other side', 'mined', 'transaction'], rows, ['all', total, '', '', ''])
}

/** Formats the report as JSON; amounts are decimal strings of base units. */
export function renderJson(report: AuditReport, lines: ReceiptLines, jwks: string): string {
  const json = {
    ...report,
    summary: describeOutcome(report),
    jwks,
    receipts: report.receipts.map((one) => ({ line: lines.receipts[one.position]?.line, ...one })),
    tabLines: report.tabLines.map(({ line, ...one }) => ({
      line: lines.tabLines[one.position]?.line,
      ...one,
      ...(line && { tabLine: line }),
    })),
  }
  return JSON.stringify(json, (_, value) => (typeof value === 'bigint' ? value.toString() : value), 2)
}

const columns = [
  ...['line', 'state', 'reason', 'reconciled', 'payment_id', 'provider_id', 'endpoint_id', 'network'],
  ...['payer', 'accepted_at', 'provider_usdc', 'platform_usdc', 'provider_state', 'provider_tx_hash'],
  ...['platform_state', 'platform_tx_hash', 'refunded_usdc', 'tab_id', 'tab_sequence'],
  ...['tab_line_total_usdc', 'detail'],
]

/** Yields one line per receipt, for a spreadsheet. */
export function* renderCsv(report: AuditReport, lines: Lines): Generator<string> {
  yield formatCsvLine(columns)
  for (const receipt of report.receipts) yield formatCsvLine(toRow(receipt, lines))
}

function toRow(receipt: AuditedReceipt, lines: Lines): (string | number | undefined)[] {
  const { position, state, reason, reconciled, payment, halves, detail } = receipt
  const describeHalf = (half?: AuditedHalf) => [half?.state, half?.onChain?.transactionHash]
  return [
    ...[lines[position]?.line, state, reason, reconciled ? 'yes' : 'no'],
    ...[payment?.paymentId, payment?.providerId, payment?.endpointId, payment?.network, payment?.payer],
    ...[
      payment?.timestamp,
      payment && formatUsdc(payment.providerAmount),
      payment && formatUsdc(payment.platformAmount),
    ],
    ...describeHalf(halves?.[0]),
    ...describeHalf(halves?.[1]),
    payment && formatUsdc(sumRefunds(receipt)),
    ...[payment?.tab?.id, payment?.tab?.sequence, payment?.tab && formatUsdc(payment.tab.lineTotal)],
    detail,
  ]
}

function sumRefunds({ refunds = [] }: AuditedReceipt): bigint {
  return refunds.reduce((sum, { state, value }) => (state === 'settled' ? sum + value : sum), 0n)
}
