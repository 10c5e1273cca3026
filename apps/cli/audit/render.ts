import type { AuditedHalf, AuditedReceipt, AuditReport, AuditState } from '@tollkeeper/sdk/audit/report'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { formatCsvLine } from '@tollkeeper/sdk/protocol/csv'
import { isoSeconds } from '@tollkeeper/sdk/protocol/time'
import { formatTable, paint, printable, shorten } from '../terminal/output.ts'

export type Lines = readonly { line: number }[]

const stateColour = (state: AuditState) =>
  state === 'settled' ? 'green' : state === 'pending' ? 'yellow' : 'red'

/** Most receipts that are listed as not reconciling. */
const listed = 50

/** Formats the report for a person. */
export function renderReport(report: AuditReport, lines: Lines): string {
  const { receipts, states, providers, batches, tabs, wallets, heads } = report
  const blocks: string[] = []
  const odd = receipts.filter(({ reconciled }) => !reconciled)
  if (odd.length > 0) {
    const rows = odd
      .slice(0, listed)
      .map(({ position, state, reason = '', payment, detail }) => [
        String(lines[position]?.line ?? position + 1),
        state,
        reason,
        printable(payment?.paymentId ?? '-'),
        printable(detail),
      ])
    const table = formatTable(['line', 'state', 'reason', 'payment', 'what was found'], rows)
    blocks.push(
      odd.length > listed ? `${table}\n… and ${odd.length - listed} more: see --csv or --json` : table,
    )
  }
  if (providers.length > 0) {
    const rows = providers.map((total) => [
      printable(total.providerId),
      total.network,
      ...[total.payments, total.settled, total.pending, total.failing].map(String),
      ...[total.providerAmount, total.platformAmount, total.pendingAmount, total.refundedAmount].map(
        formatUsdc,
      ),
    ])
    const header = ['provider', 'network', 'payments', 'settled', 'pending', 'failing']
    blocks.push(
      formatTable([...header, 'received USDC', 'platform USDC', 'to come USDC', 'refunded USDC'], rows),
    )
  }
  if (batches.length > 0) {
    const rows = batches.map((total) => [
      total.transactionHash,
      String(total.blockNumber),
      isoSeconds(total.blockTime),
      String(total.payments),
      formatUsdc(total.providerAmount),
      formatUsdc(total.platformAmount),
    ])
    blocks.push(formatTable(['batch', 'block', 'mined', 'payments', 'providers USDC', 'platform USDC'], rows))
  }
  if (tabs.length > 0) {
    const rows = tabs.flatMap(({ id, network, lines, transactionHash = '-' }) =>
      lines.map((line) => [
        ...[id, network, shorten(line.provider), String(line.requests), formatUsdc(line.boughtAmount)],
        line.movedAmount === undefined ? '-' : formatUsdc(line.movedAmount),
        ...[formatUsdc(line.gap), transactionHash],
      ]),
    )
    const header = [
      'tab',
      'network',
      'provider',
      'requests',
      'receipts USDC',
      'moved USDC',
      'gap USDC',
      'transaction',
    ]
    blocks.push(formatTable(header, rows))
  }
  for (const { wallet, network, transfers, plainTransfers, unreceipted } of wallets) {
    const summary = `${wallet} on ${network}: ${transfers} transfers by authorization, ${unreceipted.length} without a receipt; ${plainTransfers} plain ones`
    const rows = unreceipted
      .slice(0, listed)
      .map((one) => [
        one.direction,
        formatUsdc(one.value),
        shorten(one.direction === 'in' ? one.from : one.to),
        isoSeconds(one.blockTime),
        one.transactionHash,
      ])
    const table =
      rows.length > 0 ? `\n${formatTable(['', 'USDC', 'other side', 'mined', 'transaction'], rows)}` : ''
    blocks.push(`${summary}${table}`)
  }
  const counts = (Object.keys(states) as AuditState[])
    .filter((state) => states[state] > 0)
    .map((state) => paint(stateColour(state), `${states[state]} ${state}`))
  const upTo = heads.map(({ network, blockNumber }) => `${network} block ${blockNumber}`).join(', ')
  const verdict = report.reconciled ? paint('green', 'All reconcile') : paint('red', 'Not all reconcile')
  blocks.push(`${verdict}: ${counts.join(', ') || 'no receipts'}; read up to ${upTo}`)
  return blocks.join('\n\n')
}

/** Formats the report as JSON; amounts are decimal strings of base units. */
export function renderJson(report: AuditReport, lines: Lines, jwks: string): string {
  const json = {
    ...report,
    jwks,
    receipts: report.receipts.map((receipt) => ({ line: lines[receipt.position]?.line, ...receipt })),
  }
  return JSON.stringify(json, (_, value) => (typeof value === 'bigint' ? value.toString() : value), 2)
}

const columns = [
  ...['line', 'state', 'reason', 'reconciled', 'payment_id', 'provider_id', 'endpoint_id', 'network'],
  ...['payer', 'accepted_at', 'provider_usdc', 'platform_usdc', 'provider_state', 'provider_tx_hash'],
  ...['platform_state', 'platform_tx_hash', 'refunded_usdc', 'tab_id', 'tab_sequence'],
  ...['tab_line_total_usdc', 'detail'],
]

/** Formats one line a receipt, for a spreadsheet. */
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
