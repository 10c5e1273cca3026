import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import { type GatewayFlags, ownPath, request } from '../provider/gateway.ts'
import { formatTable, printable, printJson, printLines, printNote } from '../terminal/output.ts'
import { type PaymentPage, rowHeader, toCells } from './paymentRow.ts'
import { printStream } from './printStream.ts'

/** Filters of `list` and `watch`. */
export type FilterFlags = GatewayFlags & {
  status?: PaymentStatus
  endpoint?: string
  network?: string
  payer?: string
}

export type ListFlags = FilterFlags & {
  since?: string
  until?: string
  tx?: string
  min?: string
  max?: string
  limit: number
  cursor?: string
  csv?: boolean
}

/** The flag of each field of the query, for messages. */
export const flagOf = {
  endpointId: '--endpoint',
  status: '--status',
  network: '--network',
  payer: '--payer',
  from: '--since',
  to: '--until',
  tx_hash: '--tx',
  min_usdc: '--min',
  max_usdc: '--max',
  limit: '--limit',
  cursor: '--cursor',
}

/** Prints a page of payments, or all of them as CSV. */
export async function listPayments(flags: ListFlags): Promise<void> {
  const { status, endpoint, network, payer, since, until, tx, min, max, limit, cursor } = flags
  const filters = { status, endpointId: endpoint, network, payer, from: since, to: until }
  const query = { ...filters, tx_hash: tx, min_usdc: min, max_usdc: max, cursor }
  const path = ownPath(flags, 'payments')
  if (flags.csv)
    return printStream(flags, { method: 'GET', path, query: { ...query, format: 'csv' }, flagOf })
  const answer = await request(flags, { method: 'GET', path, query: { ...query, limit }, flagOf })
  if (flags.json) return printJson(answer)
  const page = answer as unknown as PaymentPage
  if (page.payments.length === 0 && page.cursor === null)
    return printNote('No payment matches these filters. Remove a filter to see more payments')
  printLines(formatTable(rowHeader, page.payments.map(toCells)))
  if (page.cursor !== null) printNote(`More: the same command with --cursor ${printable(page.cursor)}`)
}
