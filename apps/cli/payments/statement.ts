import { type GatewayFlags, ownPath, request } from '../provider/gateway.ts'
import { formatTable, printable, printJson, printLines, printNote } from '../terminal/output.ts'
import { printStream } from './printStream.ts'

export type StatementFlags = GatewayFlags & { month?: string; csv?: boolean }

type Row = { network: string; testnet: boolean; payments: number; refunds: number } & Record<
  'gross_usdc' | 'fee_usdc' | 'net_usdc' | 'settled_usdc' | 'outstanding_usdc' | 'refunded_usdc',
  string
>

/** Prints the statement of a month. */
export async function printStatement(flags: StatementFlags): Promise<void> {
  const { month = new Date().toISOString().slice(0, 7) } = flags
  const path = ownPath(flags, 'statement')
  const flagOf = { month: '--month' }
  if (flags.csv) return printStream(flags, { method: 'GET', path, query: { month, format: 'csv' }, flagOf })
  const answer = await request(flags, { method: 'GET', path, query: { month }, flagOf })
  if (flags.json) return printJson(answer)
  const rows = answer.networks as Row[]
  if (rows.length === 0)
    return printNote(`No payment was accepted in ${month}. Choose another month with --month`)
  const header = [
    'network',
    'payments',
    'gross USDC',
    'fee USDC',
    'net USDC',
    'settled USDC',
    'outstanding USDC',
    'refunds',
    'refunded USDC',
  ]
  const cells = rows.map((row) => [
    row.testnet ? `${row.network} (test)` : row.network,
    String(row.payments),
    row.gross_usdc,
    row.fee_usdc,
    row.net_usdc,
    row.settled_usdc,
    row.outstanding_usdc,
    String(row.refunds),
    row.refunded_usdc,
  ])
  printLines(
    formatTable(
      header,
      cells.map((row) => row.map(printable)),
    ),
  )
  printNote(
    `Payments accepted in ${month} (UTC). For a line per payment: \`tollkeeper statement --month ${month} --csv\``,
  )
}
