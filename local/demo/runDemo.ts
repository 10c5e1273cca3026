import { createPublicClient, http } from 'viem'
import type { Stack } from '../stack/stack.ts'
import { type Conservation, checkBatches, checkConservation, checkViews, tokenAt } from './accounts.ts'
import { holdMarket, type Sale } from './market.ts'
import { planPayments } from './plan.ts'
import type { Progress } from './progress.ts'
import { type Batch, readBatches } from './readBatches.ts'
import { auditPayments } from './settlement.ts'

export type DemoResult = Omit<Conservation, 'problems'> & {
  sales: Sale[]
  batches: Batch[]
  payments: number
  settled: number
  receiptsVerified: number
  reconciled: number
  gasUsed: bigint
  /** Problems that were found; empty when all is well. */
  problems: string[]
}

/** Makes the payments, waits until all are settled, and compares every account with the chain. */
export async function runDemo(stack: Stack, micropayments: number, progress: Progress): Promise<DemoResult> {
  const deployment = stack.chain.deployments[stack.chain.network]
  if (!deployment) throw new Error(`nothing is deployed on ${stack.chain.network}`)
  const { usdc, batchSettlement } = deployment
  const chain = createPublicClient({ transport: http(stack.chain.url, { batch: true }), cacheTime: 0 })
  const token = tokenAt(chain, usdc)
  const plan = planPayments(micropayments)

  const market = await holdMarket(stack, plan, usdc, progress)
  const { deployments } = stack.chain
  const audited = await auditPayments(market, stack.api.url, { chain, deployments }, progress)
  const batches = await readBatches(chain, batchSettlement)
  const conservation = await checkConservation(
    market,
    { platformWallet: stack.platformWallet, batchSettlement },
    market.minted,
    token,
  )
  return {
    ...conservation,
    sales: market.sales,
    batches,
    payments: plan.total,
    settled: audited.settled,
    receiptsVerified: audited.receiptsVerified,
    reconciled: audited.reconciled,
    gasUsed: batches.reduce((sum, { gasUsed }) => sum + gasUsed, 0n),
    problems: [
      ...market.problems,
      ...audited.problems,
      ...checkBatches(plan, batches),
      ...(await checkViews(stack, market, batches, token)),
      ...conservation.problems,
    ],
  }
}
