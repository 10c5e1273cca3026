import { mapLimited } from '@tollkeeper/sdk/audit/concurrency'
import { type Client, createClient } from '@tollkeeper/sdk/client/createClient'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Address } from 'viem'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import type { Stack } from '../stack/stack.ts'
import { untilStatus, untilTaken } from './paymentStatus.ts'
import { countThreshold, type Plan, type Purchase } from './plan.ts'
import type { Progress } from './progress.ts'
import { type DemoProvider, openMockProvider, openProvider } from './providers.ts'

type Buyer = { address: Address; client: Client }

export type Sale = { purchase: Purchase; provider: DemoProvider; address: Address }

export type Market = {
  /** Sales that are paid request by request. */
  sales: Sale[]
  /** Sales on one buyer's tab, which settles as one payment. */
  tabSales: Sale[]
  /** All payments; the tab counts as one payment. */
  paymentIds: string[]
  /** The receipts that the buyers received, one for each request. */
  receipts: string[]
  buyers: Buyer[]
}

const buyerCount = 10
const buyersAtOnce = 8
/**
 * Number of concurrent requests on the tab. The gateway stores requests on tabs in groups, and a request waits until its group is
 * stored, so one request at a time would be slow.
 */
const tabRequestsAtOnce = 32
const tabBudget = 2_000_000n

/** Buys the planned requests on a tab, makes all planned payments, and makes one request in mock mode. */
export async function holdMarket(
  stack: Stack,
  plan: Plan,
  usdcAddress: Address,
  progress: Progress,
): Promise<Market> {
  const { network } = stack.chain
  const gatewayUrl = stack.api.url
  const newBuyer = (tabs: boolean): Buyer => {
    const walletPrivateKey = generatePrivateKey()
    const wallet = { network, usdcAddress, walletPrivateKey }
    const client = createClient({
      gatewayUrl,
      ...wallet,
      limits: { perPayment: '12' },
      tabs,
      timeout: 60_000,
    })
    return { address: privateKeyToAddress(walletPrivateKey), client }
  }
  const agent = newBuyer(true)
  const buyers = Array.from({ length: buyerCount }, () => newBuyer(false))
  const wealthy = newBuyer(false)
  const budget = budgetOf(plan)
  const openAll = (purchases: Purchase[]) =>
    Promise.all(purchases.map((purchase) => openSale(purchase, stack)))
  const singles = [...plan.micropayments, plan.highValue].filter(({ count }) => count > 0)
  // Send the three transactions together, so that one block contains them all.
  const [tabSales, sales] = await Promise.all([
    openAll(plan.tab),
    openAll(singles),
    stack.chain.mintUsdc(
      buyers.map(({ address }) => address),
      budget,
    ),
    stack.chain.mintUsdc([wealthy.address], plan.highValue.price),
    stack.chain.mintUsdc([agent.address], tabBudget),
  ])

  const minted = budget * BigInt(buyerCount) + plan.highValue.price + tabBudget
  progress.say(`${buyerCount + 2} buyers hold ${formatUsdc(minted)} USDC`)

  // Buy on the tab first. The keeper then settles the tab, in a separate transaction, while the other buyers pay.
  const tab = await buyOnTab(tabSales, agent, stack, progress)
  const market: Market = {
    sales,
    tabSales,
    paymentIds: [tab.paymentId],
    receipts: tab.receipts,
    buyers: [...buyers, wealthy, agent],
  }
  const [many] = plan.micropayments
  // Pay one provider after the other, so that each batch contains only the payments to one provider.
  for (const sale of sales) {
    const { purchase } = sale
    const payments = await sell(sale, purchase === plan.highValue ? [wealthy] : buyers, progress)
    market.paymentIds.push(...payments.map(({ paymentId }) => paymentId))
    market.receipts.push(...payments.map(({ receipt }) => receipt))
    if (purchase === many && many.count >= countThreshold) {
      await untilStatus(gatewayUrl, market.paymentIds.at(-1) as string, (status) => status !== 'verified')
    }
    await sale.provider.close()
  }
  await payInMockMode(network)
  progress.say('  Mock mode: 1 request served, without a gateway, nothing to settle')
  return market
}

/** Makes all planned purchases from a provider. @returns the payments in the order in which they were served. */
async function sell(
  { purchase, provider }: Sale,
  from: Buyer[],
  progress: Progress,
): Promise<{ paymentId: string; receipt: string }[]> {
  const payments: { paymentId: string; receipt: string }[] = []
  const report = progress.count(`${provider.name}: paid`, purchase.count)
  report(0)
  await mapLimited([...Array(purchase.count).keys()], buyersAtOnce, async (index) => {
    const { client } = from[index % from.length] as Buyer
    const { paymentId, receipt } = await client.request(provider.url)
    if (!paymentId || !receipt) throw new Error(`${provider.url} served without a receipt`)
    payments.push({ paymentId, receipt })
    report(payments.length)
  })
  return payments
}

/** Buys a request from each provider in turn, closes the tab, and waits until a batch can settle the tab. */
async function buyOnTab(
  sales: Sale[],
  { client }: Buyer,
  stack: Stack,
  progress: Progress,
): Promise<{ paymentId: string; receipts: string[] }> {
  const requests = sales
    .flatMap((sale) => Array.from({ length: sale.purchase.count }, (_, round) => ({ sale, round })))
    .toSorted((a, b) => a.round - b.round)
  const receipts: string[] = []
  const ids = new Set<string>()
  let tabId = ''
  const report = progress.count(`${sales.length} providers: bought on a tab`, requests.length)
  report(0)
  await mapLimited(requests, tabRequestsAtOnce, async ({ sale: { provider } }) => {
    const { paymentId, receipt, payment } = await client.request(provider.url)
    if (!paymentId || !receipt || !payment?.tab)
      throw new Error(`${provider.url} served without a tab's receipt`)
    ids.add(paymentId)
    tabId = payment.tab.tab
    receipts.push(receipt)
    report(receipts.length)
  })
  await client.close()
  await Promise.all(sales.map(({ provider }) => provider.close()))
  const [paymentId, ...others] = ids
  if (paymentId === undefined || others.length > 0)
    throw new Error(`${ids.size} tabs were opened instead of one`)
  await untilTaken(stack.api.url, tabId)
  return { paymentId, receipts }
}

async function openSale(purchase: Purchase, { api, chain }: Stack): Promise<Sale> {
  const address = privateKeyToAddress(generatePrivateKey())
  const { provider: name, price } = purchase
  const options = { gatewayUrl: api.url, name, network: chain.network, address, price }
  return { purchase, provider: await openProvider(options), address }
}

/** Pays and serves a request in mock mode, in which nothing is signed or settled. */
async function payInMockMode(network: Stack['chain']['network']): Promise<void> {
  const provider = await openMockProvider()
  const client = createClient({
    gatewayUrl: provider.gatewayUrl,
    network,
    mockPayments: true,
    walletPrivateKey: generatePrivateKey(),
  })
  const { receipt } = await client.request(provider.url)
  await provider.close()
  if (receipt === undefined) throw new Error('mock mode gave no mock receipt')
}

/** Returns an amount that is more than enough for everything except the high-value payment. */
function budgetOf({ micropayments }: Plan): bigint {
  return micropayments.reduce((sum, { price, count }) => sum + price * BigInt(count), 1_000_000n)
}
