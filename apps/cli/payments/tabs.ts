import { type GatewayFlags, ownPath, request } from '../provider/gateway.ts'
import { formatTable, printable, printJson, printLines, printNote, shorten } from '../terminal/output.ts'

export type TabsFlags = GatewayFlags & {
  open?: boolean
  state: 'open' | 'closed' | 'all'
  limit: number
  cursor?: string
}

/**
 * The fields of a row of `GET /providers/{id}/tabs` that the command reads. All amounts are for this provider's requests only.
 */
type Tab = {
  tabId: string
  network: string
  payer: string
  state: 'open' | 'closing' | 'closed'
  openedAt: string
  closesAt: string
  requests: number
  /** Includes the fee. */
  amount_usdc: string
  net_usdc: string
  signed_usdc: string
}

/** Columns of the table; `USDC` includes the fee, as in the list of payments. */
const header = [
  'opened',
  'tab',
  'state',
  'network',
  'payer',
  'requests',
  'USDC',
  'net USDC',
  'signed USDC',
  'closes',
]

const notes = {
  all: 'There are no tabs. A tab appears after a buyer’s first request on it',
  open: 'No tab is open. `tollkeeper tabs list` also shows closed tabs',
  closed: 'No tab is closed. `tollkeeper tabs list` also shows open tabs',
}

/** Prints a page of the provider's tabs. */
export async function listTabs({ open, state: given, limit, cursor, ...flags }: TabsFlags): Promise<void> {
  const state = open ? 'open' : given
  const query = { state, limit, cursor }
  const path = ownPath(flags, 'tabs')
  const flagOf = { state: '--state', limit: '--limit', cursor: '--cursor' }
  const answer = await request(flags, { method: 'GET', path, query, flagOf })
  if (flags.json) return printJson(answer)
  const { tabs, cursor: next } = answer as unknown as { tabs: Tab[]; cursor: string | null }
  if (tabs.length === 0 && next === null) return printNote(notes[state])
  const rows = tabs.map((tab) =>
    [
      tab.openedAt,
      tab.tabId,
      tab.state,
      tab.network,
      shorten(tab.payer),
      String(tab.requests),
      tab.amount_usdc,
      tab.net_usdc,
      tab.signed_usdc,
      tab.closesAt,
    ].map(printable),
  )
  printLines(formatTable(header, rows))
  if (next !== null) printNote(`More: the same command with --cursor ${printable(next)}`)
}
