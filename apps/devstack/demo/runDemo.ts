import { createPublicClient, http } from 'viem'
import type { Stack } from '../stack/stack.ts'
import { type Conservation, checkBatches, checkConservation, checkViews, tokenAt } from './accounts.ts'
import { holdMarket, type Sale } from './market.ts'
import { planPayments } from './plan.ts'
import type { Progress } from './progress.ts'
import { type Batch, readBatches } from './readBatches.ts'
import { auditPayments, auditTab } from './settlement.ts'

export type DemoResult = Omit<Conservation, 'problems'> & {
  sales: Sale[]
  batches: Batch[]
  payments: number
  settled: number
  receiptsVerified: number
  reconciled: number
  gasUsed: bigint
  /** Purchases on a tab, and the transactions that settled it. */
  tab: { sales: Sale[]; requests: number; settled: number; batches: Batch[]; gasUsed: bigint }
  /** Problems that were found; empty when all is well. */
  problems: string[]
}

/** Makes the payments, waits until all are settled, and compares every account with the chain. */
export async function runDemo(stack: Stack, micropayments: number, progress: Progress): Promise<DemoResult> {
  const deployment = stack.chain.deployments[stack.chain.network]
  if (!deployment) throw new Error(`nothing is deployed on ${stack.chain.network}`)
  const { usdc, batchSettlement, tabSettlement } = deployment
  const chain = createPublicClient({ transport: http(stack.chain.url, { batch: true }), cacheTime: 0 })
  const token = tokenAt(chain, usdc)
  const plan = planPayments(micropayments)

  const market = await holdMarket(stack, plan, usdc, progress)
  const { deployments } = stack.chain
  const audited = await auditPayments(market, stack.api.url, { chain, deployments }, progress)
  const auditedTab = await auditTab(market.tab, stack.api.url, { chain, deployments }, progress)
  const batches = await readBatches(chain, batchSettlement)
  const tabBatches = await readBatches(chain, tabSettlement)
  const all = [...batches, ...tabBatches]
  const conservation = await checkConservation(
    market,
    {
      platformWallet: stack.platformWallet,
      contracts: [batchSettlement, tabSettlement],
      keepers: all.map(({ keeper }) => keeper),
    },
    market.minted,
    token,
  )
  return {
    ...conservation,
    sales: market.sales,
    batches,
    payments: plan.total,
    ...audited,
    gasUsed: gasOf(batches),
    tab: {
      sales: market.tab.sales,
      requests: market.tab.receipts.length,
      settled: auditedTab.settled,
      batches: tabBatches,
      gasUsed: gasOf(tabBatches),
    },
    problems: [
      ...market.problems,
      ...audited.problems,
      ...auditedTab.problems,
      ...checkBatches(plan, batches),
      ...(tabBatches.length === 1
        ? []
        : [`${tabBatches.length} transactions settled the tab instead of one`]),
      ...(await checkViews(stack, market, all, token)),
      ...conservation.problems,
    ],
  }
}

function gasOf(batches: Batch[]): bigint {
  return batches.reduce((sum, { gasUsed }) => sum + gasUsed, 0n)
}
