import type { Address } from 'viem'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { formatUsdc } from '#protocol/amount'
import { createClient } from '#sdk/client/createClient'
import type { Stack } from '../stack/stack.ts'
import { type Buyer, createBuyer, forEachLimited } from './buyers.ts'
import type { Plan, Purchase } from './plan.ts'
import type { Progress } from './progress.ts'
import { type DemoProvider, openMockProvider, openProvider } from './providers.ts'

export type Sale = { purchase: Purchase; provider: DemoProvider; address: Address; paymentIds: string[] }

export type Market = {
  sales: Sale[]
  buyers: Buyer[]
  /** USDC base units minted for the demo. */
  minted: bigint
  /** Problems that were found. */
  problems: string[]
}

const buyerCount = 10
const buyersAtOnce = 8

/** Makes every payment of the plan, and one request in mock mode. */
export async function holdMarket(
  stack: Stack,
  plan: Plan,
  usdcAddress: Address,
  progress: Progress,
): Promise<Market> {
  const { network } = stack.chain
  const gatewayUrl = stack.api.url
  const newBuyer = () => createBuyer({ gatewayUrl, network, usdcAddress, maxPaymentUsdc: '12' })
  const buyers = Array.from({ length: buyerCount }, newBuyer)
  const wealthy = newBuyer()
  const budget = budgetOf(plan)
  await stack.chain.mintUsdc(
    buyers.map(({ address }) => address),
    budget,
  )
  await stack.chain.mintUsdc([wealthy.address], plan.highValue.price)

  const minted = budget * BigInt(buyerCount) + plan.highValue.price
  progress.say(`${buyerCount + 1} buyers hold ${formatUsdc(minted)} USDC`)

  const market: Market = { sales: [], buyers: [...buyers, wealthy], minted, problems: [] }
  const [many] = plan.micropayments
  // One provider after the other: payments that wait would join another provider's batch.
  for (const purchase of [...plan.micropayments, plan.highValue]) {
    if (purchase.count === 0) continue
    const address = privateKeyToAddress(generatePrivateKey())
    const { provider: name, price } = purchase
    const provider = await openProvider({ gatewayUrl, name, network, address, price })
    const sale: Sale = { purchase, provider, address, paymentIds: [] }
    market.sales.push(sale)
    await sell(sale, purchase === plan.highValue ? [wealthy] : buyers, progress)
    if (provider.served() !== purchase.count)
      market.problems.push(`${name} served ${provider.served()} requests`)
    if (purchase === many && plan.expected.includes('count')) {
      await untilClaimed(gatewayUrl, sale.paymentIds.at(-1) as string)
    }
    await provider.close()
  }
  market.problems.push(...(await payInMockMode(network)))
  progress.say('  Mock mode: 1 request served, no gateway asked, nothing to settle')
  return market
}

async function sell(
  { purchase, provider, paymentIds }: Sale,
  from: Buyer[],
  progress: Progress,
): Promise<void> {
  const report = progress.count(`${provider.name}: paid`, purchase.count)
  report(0)
  await forEachLimited(Array.from({ length: purchase.count }), buyersAtOnce, async (_, index) => {
    const { client } = from[index % from.length] as Buyer
    const { paymentId, receipt } = await client.request(provider.url)
    if (!paymentId || !receipt) throw new Error(`${provider.url} served without a receipt`)
    paymentIds.push(paymentId)
    report(paymentIds.length)
  })
}

/** Resolves when the keeper has claimed a payment. */
async function untilClaimed(gatewayUrl: string, paymentId: string): Promise<void> {
  for (let status = 'verified'; status === 'verified'; ) {
    await new Promise((resolve) => setTimeout(resolve, 100))
    const answer = await fetch(new URL(`/payments/${paymentId}`, gatewayUrl))
    if (answer.ok) status = ((await answer.json()) as { payment_status: string }).payment_status
  }
}

async function payInMockMode(network: Stack['chain']['network']): Promise<string[]> {
  const provider = await openMockProvider()
  const client = createClient({
    gatewayUrl: provider.gatewayUrl,
    network,
    mockPayments: true,
    walletPrivateKey: generatePrivateKey(),
  })
  const { receipt, paymentTxHash } = await client.request(provider.url)
  await provider.close()
  return [
    ...(receipt !== undefined && paymentTxHash === undefined ? [] : ['mock mode gave no mock receipt']),
    ...(provider.served() === 1 ? [] : [`mock mode served ${provider.served()} requests`]),
  ]
}

/** Enough for everything but the high-value payment, with some left over. */
function budgetOf({ micropayments }: Plan): bigint {
  return micropayments.reduce((sum, { price, count }) => sum + price * BigInt(count), 1_000_000n)
}
