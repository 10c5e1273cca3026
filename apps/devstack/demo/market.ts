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
  /** Paid request by request. */
  sales: Sale[]
  /** Bought by one buyer on a tab, which settles as one payment. */
  tabSales: Sale[]
  /** All payments, that of the tab among them. */
  paymentIds: string[]
  /** As the buyers got them, one for each request. */
  receipts: string[]
  buyers: Buyer[]
}

const buyerCount = 10
const buyersAtOnce = 8
const tabBudget = 2_000_000n

/** Buys the plan's requests on a tab, makes all its payments, and one request in mock mode. */
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
    const client = createClient({ gatewayUrl, ...wallet, maxPaymentUsdc: '12', tabs, timeout: 60_000 })
    return { address: privateKeyToAddress(walletPrivateKey), client }
  }
  const agent = newBuyer(true)
  const buyers = Array.from({ length: buyerCount }, () => newBuyer(false))
  const wealthy = newBuyer(false)
  const budget = budgetOf(plan)
  await stack.chain.mintUsdc(
    buyers.map(({ address }) => address),
    budget,
  )
  await stack.chain.mintUsdc([wealthy.address], plan.highValue.price)
  await stack.chain.mintUsdc([agent.address], tabBudget)

  const minted = budget * BigInt(buyerCount) + plan.highValue.price + tabBudget
  progress.say(`${buyerCount + 2} buyers hold ${formatUsdc(minted)} USDC`)

  // The tab comes first, so that it settles while the others pay: the next trigger takes it, in a transaction of its own.
  const tab = await buyOnTab(plan.tab, agent, stack, progress)
  const market: Market = {
    sales: [],
    tabSales: tab.sales,
    paymentIds: [tab.paymentId],
    receipts: tab.receipts,
    buyers: [...buyers, wealthy, agent],
  }
  const [many] = plan.micropayments
  // One provider after the other, or waiting payments would join another provider's batch.
  for (const purchase of [...plan.micropayments, plan.highValue]) {
    if (purchase.count === 0) continue
    const sale = await openSale(purchase, stack)
    const payments = await sell(sale, purchase === plan.highValue ? [wealthy] : buyers, progress)
    market.sales.push(sale)
    market.paymentIds.push(...payments.map(({ paymentId }) => paymentId))
    market.receipts.push(...payments.map(({ receipt }) => receipt))
    if (purchase === many && many.count >= countThreshold) {
      await untilStatus(gatewayUrl, market.paymentIds.at(-1) as string, (status) => status !== 'verified')
    }
    await sale.provider.close()
  }
  await payInMockMode(network)
  progress.say('  Mock mode: 1 request served, no gateway asked, nothing to settle')
  return market
}

/** Buys all that is planned of a provider. @returns the payments in the order in which they were served. */
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

/** Buys a request from each provider in turn, closes the tab, and waits until a batch can take its payment. */
async function buyOnTab(
  purchases: Purchase[],
  { client }: Buyer,
  stack: Stack,
  progress: Progress,
): Promise<{ sales: Sale[]; paymentId: string; receipts: string[] }> {
  const sales = await Promise.all(purchases.map((purchase) => openSale(purchase, stack)))
  const requests = sales
    .flatMap((sale) => Array.from({ length: sale.purchase.count }, (_, round) => ({ sale, round })))
    .toSorted((a, b) => a.round - b.round)
  const receipts: string[] = []
  const ids = new Set<string>()
  let tabId = ''
  const report = progress.count(`${sales.length} providers: bought on a tab`, requests.length)
  report(0)
  await mapLimited(requests, buyersAtOnce, async ({ sale: { provider } }) => {
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
  return { sales, paymentId, receipts }
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

/** Enough for everything but the high-value payment, with some left over. */
function budgetOf({ micropayments }: Plan): bigint {
  return micropayments.reduce((sum, { price, count }) => sum + price * BigInt(count), 1_000_000n)
}
