import type { JSONWebKeySet } from 'jose'
import { type Address, createPublicClient, http, parseAbi } from 'viem'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { formatUsdc } from '#protocol/amount'
import type { ReceiptClaims } from '#protocol/receipt'
import { splitPrice } from '#protocol/tier'
import { verifyReceipt } from '#sdk/audit/verifyReceipt'
import { createClient } from '#sdk/client/createClient'
import type { Stack } from '../stack/stack.ts'
import { type Buyer, createBuyer, forEachLimited } from './buyers.ts'
import { type Plan, type Purchase, planPayments } from './plan.ts'
import type { Progress } from './progress.ts'
import { type DemoProvider, openMockProvider, openProvider } from './providers.ts'
import { type Batch, readBatches, type TriggerName } from './readBatches.ts'
import { createReconciler } from './reconcile.ts'

export type Sale = { purchase: Purchase; provider: DemoProvider; paymentIds: string[] }

export type DemoResult = {
  plan: Plan
  sales: Sale[]
  batches: Batch[]
  payments: number
  settled: number
  receiptsVerified: number
  reconciled: number
  /** What each provider's wallet holds, by the provider's name. */
  providerAmounts: Map<string, bigint>
  providerAmount: bigint
  platformAmount: bigint
  gasUsed: bigint
  conserved: boolean
  /** What doesn't hold; empty when all is well. */
  problems: string[]
}

const tokenAbi = parseAbi([
  'function balanceOf(address) view returns (uint256)',
  'function totalSupply() view returns (uint256)',
])
const buyerCount = 10
const buyersAtOnce = 8
const lookUpsAtOnce = 8

/** Pays, waits until everything is settled, and holds every account of it against the chain's. */
export async function runDemo(stack: Stack, micropayments: number, progress: Progress): Promise<DemoResult> {
  const { network } = stack.chain
  const deployment = stack.chain.deployments[network]
  if (!deployment) throw new Error(`nothing is deployed on ${network}`)
  const { usdc, batchSettlement } = deployment
  const gatewayUrl = stack.api.url
  const chain = createPublicClient({ transport: http(stack.chain.url, { batch: true }) })
  const plan = planPayments(micropayments)
  const problems: string[] = []

  // Buyers, and the money they start with.
  const newBuyer = () => createBuyer({ gatewayUrl, network, usdcAddress: usdc, maxPaymentUsdc: '12' })
  const buyers = Array.from({ length: buyerCount }, newBuyer)
  const wealthy = newBuyer()
  const budget = budgetOf(plan)
  await stack.chain.mintUsdc(
    buyers.map(({ address }) => address),
    budget,
  )
  await stack.chain.mintUsdc([wealthy.address], plan.highValue.price)
  const supplyBefore = await totalSupply()
  progress.say(`${buyerCount + 1} buyers hold ${formatUsdc(supplyBefore)} USDC`)

  // Payments, one provider after the other: what queues for one would ride along with another's batch.
  const sales: Sale[] = []
  const [many, some] = plan.micropayments
  for (const purchase of [many, some, plan.highValue]) {
    if (purchase.count === 0) continue
    const address = privateKeyToAddress(generatePrivateKey())
    const { provider: name, price } = purchase
    const provider = await openProvider({ gatewayUrl, name, network, address, price })
    const sale = { purchase, provider, paymentIds: [] as string[] }
    sales.push(sale)
    await sell(sale, purchase === plan.highValue ? [wealthy] : buyers)
  }
  await payInMockMode()

  const settlements = await waitForAll()
  const claims = await verifyAll(settlements)
  const reconciled = await reconcileAll(claims)
  const batches = await readBatches(chain, batchSettlement)
  checkBatches(batches)
  await checkViews(batches)
  const { providerAmounts, providerAmount, platformAmount, conserved } = await checkConservation()
  for (const { provider } of sales) await provider.close()

  return {
    plan,
    sales,
    batches,
    payments: plan.total,
    settled: settlements.size,
    receiptsVerified: claims.length,
    reconciled,
    providerAmounts,
    providerAmount,
    platformAmount,
    gasUsed: batches.reduce((sum, { gasUsed }) => sum + gasUsed, 0n),
    conserved,
    problems,
  }

  async function sell(sale: Sale, from: Buyer[]): Promise<void> {
    const { purchase, provider, paymentIds } = sale
    const report = progress.count(`${provider.name}: paid`, purchase.count)
    report(0)
    await forEachLimited(Array.from({ length: purchase.count }), buyersAtOnce, async (_, index) => {
      const { client } = from[index % from.length] as Buyer
      const { paymentId, receipt } = await client.request(provider.url)
      if (!paymentId || !receipt) throw new Error(`${provider.url} served without a receipt`)
      paymentIds.push(paymentId)
      report(paymentIds.length)
    })
    check(provider.served() === purchase.count, `${provider.name} served ${provider.served()} requests`)
    if (purchase === many && plan.expected.includes('count')) await leaveQueue(paymentIds.at(-1) as string)
  }

  /** Until the keeper has taken it into a batch. */
  async function leaveQueue(paymentId: string): Promise<void> {
    while ((await paymentStatus(paymentId)) === 'verified')
      await new Promise((resolve) => setTimeout(resolve, 100))
  }

  async function payInMockMode(): Promise<void> {
    const provider = await openMockProvider()
    const client = createClient({
      gatewayUrl: provider.gatewayUrl,
      network,
      mockPayments: true,
      walletPrivateKey: generatePrivateKey(),
    })
    const { receipt, paymentTxHash } = await client.request(provider.url)
    check(receipt !== undefined && paymentTxHash === undefined, 'mock mode gave no mock receipt')
    check(provider.served() === 1, `mock mode served ${provider.served()} requests`)
    await provider.close()
    progress.say('  Mock mode: 1 request served, no gateway asked, nothing to settle')
  }

  async function waitForAll(): Promise<Map<string, string>> {
    const ids = sales.flatMap(({ paymentIds }) => paymentIds)
    const receipts = new Map<string, string>()
    const report = progress.count('Settled', ids.length)
    report(0)
    await forEachLimited(ids, lookUpsAtOnce, async (id) => {
      const settlement = await wealthy.client
        .waitForSettlement(id, { pollMs: 500, timeoutMs: 150_000 })
        .catch((error: Error) => problems.push(`${id} isn't settled: ${error.message}`) && undefined)
      if (settlement) receipts.set(id, settlement.receipt)
      report(receipts.size)
    })
    return receipts
  }

  async function verifyAll(receipts: Map<string, string>): Promise<ReceiptClaims[]> {
    const jwks = (await (await fetch(new URL('/.well-known/jwks.json', gatewayUrl))).json()) as JSONWebKeySet
    const verified: ReceiptClaims[] = []
    const report = progress.count('Receipts verified', receipts.size)
    for (const [paymentId, receipt] of receipts) {
      try {
        const claims = await verifyReceipt(receipt, jwks)
        if (claims.paymentId !== paymentId) throw new Error(`it is ${claims.paymentId}'s`)
        verified.push(claims)
      } catch (error) {
        problems.push(`receipt of ${paymentId}: ${(error as Error).message}`)
      }
      report(verified.length)
    }
    return verified
  }

  async function reconcileAll(claims: ReceiptClaims[]): Promise<number> {
    const reconcile = createReconciler(chain, usdc)
    const report = progress.count('Reconciled with the chain', claims.length)
    let count = 0
    for (const each of claims) {
      const found = await reconcile(each)
      problems.push(...found.map((problem) => `${each.paymentId}: ${problem}`))
      if (found.length === 0) report(++count)
    }
    return count
  }

  function checkBatches(batches: Batch[]): void {
    const settled = batches.reduce((sum, { payments }) => sum + payments, 0)
    check(settled === plan.total, `the batches hold ${settled} payments instead of ${plan.total}`)
    const fired = new Set<TriggerName>(batches.map(({ trigger }) => trigger))
    for (const trigger of plan.expected) check(fired.has(trigger), `the trigger ${trigger} didn't fire`)
    const highValue = batches.filter(({ trigger }) => trigger === 'high_value')
    check(
      highValue.length === 1 && highValue[0]?.payments === 1,
      `the high-value payment isn't alone in one batch: ${highValue.map(({ payments }) => payments).join(' + ')} payments`,
    )
  }

  /** The gateway's batch view must tell of each wallet what the chain's balances say. */
  async function checkViews(batches: Batch[]): Promise<void> {
    const wallets = sales.map(({ provider, paymentIds }) => ({
      address: provider.address as Address,
      count: paymentIds.length,
    }))
    for (const { address, count } of [...wallets, { address: stack.platformWallet, count: plan.total }]) {
      const url = new URL(`/settlements/batches?wallet=${address}&limit=100`, gatewayUrl)
      const view = (await (await fetch(url)).json()) as { batches: ViewedBatch[] }
      const total = view.batches.reduce((sum, batch) => sum + BigInt(batch.total_usdc.replace('.', '')), 0n)
      const payments = view.batches.reduce((sum, batch) => sum + batch.payment_count, 0)
      const balance = await balanceOf(address)
      check(total === balance, `the view gives ${address} ${total}, the chain ${balance}`)
      check(payments === count, `the view gives ${address} ${payments} payments instead of ${count}`)
      for (const { tx_hash: hash, trigger_type: trigger } of view.batches) {
        const batch = batches.find(({ txHash }) => txHash === hash)
        check(
          batch?.trigger === trigger,
          `the view's batch ${hash} (${trigger}) isn't the chain's (${batch?.trigger})`,
        )
      }
    }
  }

  async function checkConservation() {
    const providerAmounts = new Map<string, bigint>()
    let providerAmount = 0n
    let platformExpected = 0n
    for (const { purchase, provider } of sales) {
      const balance = await balanceOf(provider.address as Address)
      const split = splitPrice(purchase.price)
      const expected = split.providerAmount * BigInt(purchase.count)
      check(balance === expected, `${provider.name} holds ${balance} instead of ${expected}`)
      providerAmounts.set(provider.name, balance)
      providerAmount += balance
      platformExpected += split.feeAmount * BigInt(purchase.count)
    }
    const platformAmount = await balanceOf(stack.platformWallet)
    check(
      platformAmount === platformExpected,
      `the platform holds ${platformAmount} instead of ${platformExpected}`,
    )
    const left = await Promise.all([...buyers, wealthy].map(({ address }) => balanceOf(address)))
    const held = left.reduce((sum, balance) => sum + balance, 0n) + providerAmount + platformAmount
    const supply = await totalSupply()
    const conserved = supply === supplyBefore && held === supply && (await balanceOf(batchSettlement)) === 0n
    check(conserved, `of ${supplyBefore} USDC units ${held} are accounted for, ${supply} exist`)
    return { providerAmounts, providerAmount, platformAmount, conserved }
  }

  async function paymentStatus(paymentId: string): Promise<string> {
    const answer = await fetch(new URL(`/payments/${paymentId}`, gatewayUrl))
    return ((await answer.json()) as { payment_status: string }).payment_status
  }

  function balanceOf(address: Address): Promise<bigint> {
    return chain.readContract({ address: usdc, abi: tokenAbi, functionName: 'balanceOf', args: [address] })
  }

  function totalSupply(): Promise<bigint> {
    return chain.readContract({ address: usdc, abi: tokenAbi, functionName: 'totalSupply' })
  }

  function check(holds: boolean, problem: string): void {
    if (!holds) problems.push(problem)
  }
}

type ViewedBatch = { tx_hash: string; trigger_type: string; payment_count: number; total_usdc: string }

/** Each buyer can pay for everything but the high-value payment, with something left. */
function budgetOf({ micropayments }: Plan): bigint {
  return micropayments.reduce((sum, { price, count }) => sum + price * BigInt(count), 1_000_000n)
}
