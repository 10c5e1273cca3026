import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { splitAnyPrice } from '@tollkeeper/sdk/protocol/tier'
import type { Address, PublicClient } from 'viem'
import type { Stack } from '../stack/stack.ts'
import type { Market } from './market.ts'
import type { Plan } from './plan.ts'
import type { Batch, TriggerName } from './readBatches.ts'

export type Token = ReturnType<typeof tokenAt>

export function tokenAt(chain: PublicClient, address: Address) {
  const contract = { address, abi: usdcAbi } as const
  return {
    balanceOf: (owner: Address) =>
      chain.readContract({ ...contract, functionName: 'balanceOf', args: [owner] }),
    totalSupply: () => chain.readContract({ ...contract, functionName: 'totalSupply' }),
  }
}

/** The differences between the plan and the batches on chain. */
export function checkBatches(plan: Plan, batches: Batch[]): string[] {
  const problems: string[] = []
  const payments = batches.reduce((sum, batch) => sum + batch.payments, 0)
  if (payments !== plan.total) problems.push(`the batches hold ${payments} payments instead of ${plan.total}`)
  const fired = new Set<TriggerName>(batches.map(({ trigger }) => trigger))
  for (const trigger of plan.expected) {
    if (!fired.has(trigger)) problems.push(`the trigger ${trigger} didn't fire`)
  }
  const highValue = batches.filter(({ trigger }) => trigger === 'high_value').map((batch) => batch.payments)
  if (highValue.join() !== '1') {
    problems.push(`the high-value payment isn't alone in one batch: ${highValue.join(' + ')} payments`)
  }
  return problems
}

/** The differences between the gateway's batch view and the chain's balances. */
export async function checkViews(
  stack: Stack,
  { sales, tab }: Market,
  batches: Batch[],
  token: Token,
): Promise<string[]> {
  const problems: string[] = []
  // A tab is one payment to the platform, and one to each of its providers.
  const total = sales.reduce((sum, { paymentIds }) => sum + paymentIds.length, 1)
  const wallets = [...sales, ...tab.sales].map(({ address, paymentIds }) => ({
    address,
    count: paymentIds.length,
  }))
  for (const { address, count } of [...wallets, { address: stack.platformWallet, count: total }]) {
    const viewed = await viewedBatches(stack.api.url, address)
    const amount = viewed.reduce((sum, batch) => sum + BigInt(batch.total_usdc.replace('.', '')), 0n)
    const payments = viewed.reduce((sum, batch) => sum + batch.payment_count, 0)
    const balance = await token.balanceOf(address)
    if (amount !== balance) problems.push(`the view gives ${address} ${amount}, the chain ${balance}`)
    if (payments !== count)
      problems.push(`the view gives ${address} ${payments} payments instead of ${count}`)
    for (const { tx_hash: hash, trigger_type: trigger } of viewed) {
      const batch = batches.find(({ txHash }) => txHash === hash)
      if (batch?.trigger !== trigger)
        problems.push(`the view's ${trigger} batch ${hash} is ${batch?.trigger} on chain`)
    }
  }
  return problems
}

type ViewedBatch = { tx_hash: string; trigger_type: string; payment_count: number; total_usdc: string }

async function viewedBatches(gatewayUrl: string, wallet: Address): Promise<ViewedBatch[]> {
  const viewed: ViewedBatch[] = []
  for (let cursor: string | null | undefined = ''; typeof cursor === 'string'; ) {
    const query = new URLSearchParams({ wallet, limit: '100', ...(cursor !== '' && { cursor }) })
    const answer = await fetch(new URL(`/settlements/batches?${query}`, gatewayUrl))
    const page = (await answer.json()) as { batches: ViewedBatch[]; cursor: string | null }
    if (!answer.ok) throw new Error(`/settlements/batches answered ${answer.status}: ${JSON.stringify(page)}`)
    viewed.push(...page.batches)
    cursor = page.cursor
  }
  return viewed
}

export type Conservation = {
  /** Amounts by provider name. */
  providerAmounts: Map<string, bigint>
  providerAmount: bigint
  platformAmount: bigint
  /** What keepers earned of the platform's part of the tab. */
  rewardAmount: bigint
  /** Whether the balances of the expected holders add up to what was minted, to the unit. */
  conserved: boolean
  problems: string[]
}

export async function checkConservation(
  { sales, tab, buyers }: Market,
  {
    platformWallet,
    contracts,
    keepers,
  }: { platformWallet: Address; contracts: Address[]; keepers: Address[] },
  supplyBefore: bigint,
  token: Token,
): Promise<Conservation> {
  const problems: string[] = []
  const providerAmounts = new Map<string, bigint>()
  let providerAmount = 0n
  let platformExpected = 0n
  for (const { purchase, provider, address } of [...sales, ...tab.sales]) {
    const balance = await token.balanceOf(address)
    const split = splitAnyPrice(purchase.price)
    const expected = split.providerAmount * BigInt(purchase.count)
    if (balance !== expected) problems.push(`${provider.name} holds ${balance} instead of ${expected}`)
    providerAmounts.set(provider.name, balance)
    providerAmount += balance
    platformExpected += split.feeAmount * BigInt(purchase.count)
  }
  const platformAmount = await token.balanceOf(platformWallet)
  const holdings = async (owners: Iterable<Address>) => {
    const balances = await Promise.all([...owners].map((owner) => token.balanceOf(owner)))
    return balances.reduce((sum, balance) => sum + balance, 0n)
  }
  const rewardAmount = await holdings(new Set(keepers))
  if (platformAmount + rewardAmount !== platformExpected) {
    problems.push(
      `the platform holds ${platformAmount} and keepers ${rewardAmount} instead of ${platformExpected}`,
    )
  }
  const left = await holdings(buyers.map(({ address }) => address))
  const held = left + providerAmount + platformAmount + rewardAmount
  const supply = await token.totalSupply()
  const conserved = supply === supplyBefore && held === supply && (await holdings(contracts)) === 0n
  if (!conserved) problems.push(`of ${supplyBefore} units ${held} are accounted for, and ${supply} exist`)
  return { providerAmounts, providerAmount, platformAmount, rewardAmount, conserved, problems }
}
