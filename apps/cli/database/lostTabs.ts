import { acceptLoss, findLostTabs } from '@tollkeeper/ledger/tabs/storeMark'
import { openTabDatabase } from '@tollkeeper/ledger/tabs/tabDatabase'
import { readVariable } from '@tollkeeper/runtime/env'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { formatTable } from '../terminal/output.ts'
import { withDatabase } from './withDatabase.ts'

export type LostTabsFlags = { acceptLoss?: boolean; json?: boolean }

/** Lists lost tabs, or accepts their loss. @returns the text that the command prints. */
export function runLostTabs({
  acceptLoss: isAccepted = false,
  json = false,
}: LostTabsFlags): Promise<string> {
  const applicationName = 'tollkeeper-tabs'
  return withDatabase('tabs', async (sql) => {
    const url = readVariable(process.env, 'TABS_DATABASE_URL')
    const tabs = await openTabDatabase({ url, ledger: sql, max: 1, applicationName })
    try {
      const lost = await findLostTabs({ sql, tabs })
      if (isAccepted) await acceptLoss({ sql, tabs })
      if (json) {
        const rows = lost.map((tab) => ({ ...tab, reserved: formatUsdc(tab.reserved) }))
        return `${JSON.stringify({ accepted: isAccepted, tabs: rows }, null, 2)}\n`
      }
      if (lost.length === 0) return 'The tab store is as new as the ledger: no tab is lost.\n'
      const rows = lost.map(({ chainId, payer, tabId, reserved }) => [
        networkByChainId(chainId).name,
        payer,
        tabId,
        formatUsdc(reserved),
      ])
      const table = formatTable(['network', 'payer', 'tab', 'USDC reserved'], rows)
      return isAccepted ? `${table}\nAccepted: api and keeper start without these tabs.\n` : `${table}\n`
    } finally {
      await tabs.end({ timeout: 1 })
    }
  })
}
