import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { OpenTab } from '@tollkeeper/sdk/client/tabs'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { isoTime } from '@tollkeeper/sdk/protocol/time'
import type { BuyerSettings } from './settings.ts'
import { addTool, type ToolContext } from './tool.ts'

/** Adds the tool `show_budget`. */
export function addBudgetTool(
  server: McpServer,
  context: ToolContext,
  settings: BuyerSettings & { address: string },
  openTabs: () => Promise<OpenTab[]>,
): void {
  addTool(server, context, 'show_budget', {
    title: 'Show spending and remaining budget',
    description:
      "Shows what the owner's wallet spent within the last 24 hours, in total and at each host, what it may still spend, and which tabs are open. Amounts are decimal USDC. Every payment that was sent to a seller counts as spent, regardless of the seller's response.",
    inputSchema: {},
    annotations: { readOnlyHint: true, openWorldHint: false },
    async run() {
      const { address, network, gatewayUrl, maxDaily, maxDailyPerHost, maxPayment, askAbove } = settings
      const hosts = context.folder.spent(Date.now())
      const spent = hosts.reduce((sum, { amount }) => sum + amount, 0n)
      const leftOf = (limit: bigint, used: bigint) => formatUsdc(limit > used ? limit - used : 0n)
      return {
        said: {
          wallet: { address, network, gateway: new URL(gatewayUrl).origin },
          last_24_hours: {
            spent_usdc: formatUsdc(spent),
            left_usdc: leftOf(maxDaily, spent),
            hosts: hosts.map(({ host, amount, payments }) => ({
              host,
              payments: Number(payments),
              spent_usdc: formatUsdc(amount),
              ...(maxDailyPerHost !== null && { left_usdc: leftOf(maxDailyPerHost, amount) }),
            })),
          },
          limits: {
            max_payment_usdc: formatUsdc(maxPayment),
            asks_the_user_above_usdc: formatUsdc(askAbove),
            max_daily_usdc: formatUsdc(maxDaily),
            ...(maxDailyPerHost !== null && { max_daily_usdc_per_host: formatUsdc(maxDailyPerHost) }),
          },
          open_tabs: (await openTabs()).map(({ id, expiry, lines }) => ({
            id,
            until: isoTime(expiry),
            lines: lines.map(({ provider, bought }) => ({ provider, bought_usdc: formatUsdc(bought) })),
          })),
          receipt_file: context.folder.receiptFile,
        },
      }
    },
  })
}
