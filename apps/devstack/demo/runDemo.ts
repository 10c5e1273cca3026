import type { AuditReport } from '@tollkeeper/sdk/audit/report'
import { createPublicClient, http } from 'viem'
import type { Stack } from '../stack/stack.ts'
import { auditReceipts, waitForSettlements } from './auditReceipts.ts'
import { type Balances, readBalances } from './conservation.ts'
import { holdMarket, type Market } from './market.ts'
import { planPayments } from './plan.ts'
import type { Progress } from './progress.ts'
import { type Batch, readBatches } from './readBatches.ts'

export type DemoResult = {
  market: Market
  /** Batches of the payments. */
  batches: Batch[]
  /** Batches of the tab. */
  tabBatches: Batch[]
  report: AuditReport
  balances: Balances
}

/** Makes the payments, waits until all are settled, audits their receipts, and reads all balances of USDC. */
export async function runDemo(stack: Stack, micropayments: number, progress: Progress): Promise<DemoResult> {
  const deployment = stack.chain.deployments[stack.chain.network]
  if (!deployment) throw new Error(`nothing is deployed on ${stack.chain.network}`)
  const { usdc, batchSettlement, tabSettlement } = deployment
  const chain = createPublicClient({ transport: http(stack.chain.url, { batch: true }), cacheTime: 0 })

  const market = await holdMarket(stack, planPayments(micropayments), usdc, progress)
  await waitForSettlements(market, progress)
  const report = await auditReceipts(stack, market.receipts, progress)
  const batches = await readBatches(chain, batchSettlement)
  const tabBatches = await readBatches(chain, tabSettlement)
  const balances = await readBalances(chain, usdc, {
    buyers: market.buyers.map(({ address }) => address),
    providers: new Map(
      [...market.sales, ...market.tabSales].map(({ purchase, address }) => [purchase.provider, address]),
    ),
    platform: stack.platformWallet,
    keepers: [...batches, ...tabBatches].map(({ keeper }) => keeper),
    splitters: report.receipts.flatMap(({ payment }) => payment?.splitter ?? []),
  })
  return { market, batches, tabBatches, report, balances }
}
