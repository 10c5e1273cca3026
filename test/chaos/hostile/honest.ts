import { setTimeout as wait } from 'node:timers/promises'
import type { Client, PaidResponse } from '@tollkeeper/sdk/client/createClient'
import { ClientError } from '@tollkeeper/sdk/client/errors'
import type { SignedPayment } from '@tollkeeper/sdk/client/signedPayment'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Address } from 'viem'
import type { Shop } from '../../support/shop.ts'
import { signPayment } from '../../support/x402.ts'
import { countSuccess, openGranted, placeOf, post } from './act.ts'
import { type Buyer, type Market, openReceiver, registerWebhook } from './scene.ts'
import { honestWallet } from './wallets.ts'

/** One request of an honest buyer. */
export type Purchase = {
  payer: Address
  shop: Shop
  /** USDC base units of both authorizations together. */
  price: bigint
  /** Payment ID, or the tab's payment ID for a request on a tab. Unset if nothing was served. */
  paymentId?: string
  /** Why nothing was served. */
  refusal?: string
  /** Whether all attacks had ended before the buyer sent the request. */
  afterwards: boolean
}

/** A sale of an x402 seller that trusted its facilitator's answer. */
export type Sale = { payer: Address; payee: Address; value: bigint; refusal: string | null }

export type Trade = {
  purchases: Purchase[]
  sales: Sale[]
  /** Payments whose settlement was reported to the providers' webhooks. */
  announced: Set<string>
  /** Resolves when every buyer has made its last purchase, after `over` has fired. */
  done: Promise<unknown>
  close: () => Promise<void>
}

const prices = ['0.005', '0.05', '0.5']
/**
 * Prices of the requests on tabs. The first price is sold only on tabs. Three tabs of these requests fit into a new payer's
 * credit of 1 USDC. With less credit, a buyer's tab would hold only the cheapest requests, whose fee doesn't cover the
 * tab's gas.
 */
const tabPrices = ['0.002', '0.02', '0.05']
/** Number of requests on a tab before its buyer closes it. */
const requestsATab = 10
/** Maximum number of closed, unsettled tabs with which a buyer opens another tab: a busy machine settles tabs late. */
const unsettledTabs = 2
/**
 * Interval in ms between purchases of a contract wallet. A keeper's wallet sends few transactions for contract wallets, each with at most 24
 * payments. The interval keeps the demand below this capacity; otherwise this would test a growing backlog.
 */
const withCodeEveryMs = 3_000

/**
 * Lets honest buyers, two of them with contract wallets, buy from three providers with a webhook each, until `over`
 * fires. Contract wallets buy nothing whose fee is less than their gas.
 *
 * @param onTabs Whether three more buyers buy from three more providers, always on tabs, which they repeatedly close
 *   and open.
 * @param sellsByX402 Whether there is also an x402 seller with a grant, which covers its gas at any permitted gas
 *   price.
 */
export async function openTrade(
  scene: Market,
  over: AbortSignal,
  { sellsByX402 = false, onTabs = false } = {},
): Promise<Trade> {
  const announced = new Set<string>()
  const receiver = await openReceiver((body) => {
    const { type, data } = JSON.parse(body) as { type: string; data: { paymentId?: string } }
    if ((type === 'payment.settled' || type === 'tab.settled') && data.paymentId)
      announced.add(data.paymentId)
  })
  const openShops = (prices: readonly string[]) =>
    Promise.all(
      prices.map(async (price) => {
        const shop = await scene.shop(price)
        await registerWebhook(scene, shop, receiver.url)
        return { shop, price: parseUsdc(price) }
      }),
    )
  const shops = await openShops(prices)
  const tabShops = onTabs ? await openShops(tabPrices) : []
  const codes = [undefined, undefined, undefined, undefined, honestWallet, honestWallet]
  const buyers = await Promise.all(codes.map((code) => scene.buyer(code)))
  const seller = sellsByX402 && { shop: await openGranted(scene, '5000'), buyer: await scene.buyer() }
  const purchases: Purchase[] = []
  const purchase = async ({ account, client }: Buyer, sellers: typeof shops, turn: number) => {
    const { shop, price } = sellers[turn % sellers.length] as (typeof shops)[number]
    const made: Purchase = { payer: account.address, shop, price, afterwards: over.aborted }
    purchases.push(made)
    const served = await buy(client, shop.url).catch((error: unknown) => {
      made.refusal = error instanceof ClientError ? error.code : String(error)
    })
    if (served?.paymentId) made.paymentId = served.paymentId
  }
  const trade = buyers.map(async (buyer, index) => {
    const sellers = codes[index] ? shops.slice(1) : shops
    for (let turn = index; !over.aborted; turn++) {
      await purchase(buyer, sellers, turn)
      await wait(codes[index] ? withCodeEveryMs : 500, undefined, { signal: over }).catch(() => {})
    }
    await purchase(buyer, sellers, index)
  })
  /** Resolves when enough of a buyer's tabs have settled that its credit covers another one. */
  const waitForCredit = async ({ account }: Buyer) => {
    const tabs = new Set(
      purchases.flatMap(({ payer, paymentId }) => (payer === account.address ? (paymentId ?? []) : [])),
    )
    while (!over.aborted && [...tabs].filter((id) => !announced.has(id)).length > unsettledTabs)
      await wait(500, undefined, { signal: over }).catch(() => {})
  }
  const tabBuyers = await Promise.all(tabShops.map(() => scene.buyer(undefined, { tabs: true })))
  const tabTrade = tabBuyers.map(async (buyer) => {
    for (let turn = 1; !over.aborted; turn++) {
      await purchase(buyer, tabShops, turn)
      // If an outage prevents the close, the buyer closes this tab together with its next tab.
      if (turn % requestsATab === 0) {
        await buyer.client.close().catch(() => {})
        await waitForCredit(buyer)
      }
      await wait(500, undefined, { signal: over }).catch(() => {})
    }
    // Buy the most expensive request, because a tab with only the cheapest would be too small to settle.
    await purchase(buyer, tabShops, 2)
    await buyer.client.close()
  })
  const sales: Sale[] = []
  const done = Promise.all([...trade, ...tabTrade, seller && sell(scene, seller, sales, over)])
  return { purchases, sales, announced, done, close: receiver.close }
}

const saleEveryMs = 3_000
/** Timeout in ms, slightly longer than the timeout of a standard middleware. */
const saleTimeoutMs = 100_000

type Seller = { shop: Shop; buyer: Buyer }

/** Sells to a buyer through the keepers as facilitators, and asks again if no answer arrived. */
async function sell(scene: Market, { shop, buyer }: Seller, sales: Sale[], over: AbortSignal): Promise<void> {
  const { account } = buyer
  const value = 10_000n
  const asking: Promise<void>[] = []
  for (let turn = 0; !over.aborted; turn++) {
    const payment = await signPayment(placeOf(scene), account, { payTo: shop.address, value })
    const sale: Sale = { payer: account.address, payee: shop.address, value, refusal: 'no answer yet' }
    sales.push(sale)
    const { url } = scene.keepers[turn % scene.keepers.length]?.service ?? scene.stack.keeper
    const ask = async () => {
      const body = { key: shop.apiKey, body: payment.body }
      for (let times = 0; times < 5; times++) {
        const signal = AbortSignal.timeout(saleTimeoutMs)
        const answer = await post(url, '/settle', { ...body, signal }).catch(() => undefined)
        if (answer) countSuccess(scene, payment, answer)
        sale.refusal = answer?.success ? null : answer ? `${answer.reason}: ${answer.detail}` : 'no answer'
        if (answer?.success || (answer && answer.status < 500 && answer.reason !== 'settlement_pending'))
          return
        await wait(1_000)
      }
    }
    asking.push(ask())
    await wait(saleEveryMs, undefined, { signal: over }).catch(() => {})
  }
  await Promise.all(asking)
}

const mostPresentations = 5

/**
 * Requests a URL. If the request fails after the buyer has signed, presents the same payment again, and repeats this while the outcome is unknown: on a
 * busy machine, the seller may still be serving the payment when the second request ends.
 */
async function buy(client: Client, url: string): Promise<PaidResponse> {
  let payment: SignedPayment | undefined
  for (let presented = 1; ; presented++) {
    try {
      return await client.request(url, payment && { payment })
    } catch (error) {
      if (!(error instanceof ClientError) || error.payment === undefined) throw error
      const isOver = presented > 1 && error.outcome !== 'unknown'
      if (isOver || presented === mostPresentations) throw error
      payment = error.payment
    }
  }
}
