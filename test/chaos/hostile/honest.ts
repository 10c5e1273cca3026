import { setTimeout as wait } from 'node:timers/promises'
import type { Client, PaidResponse } from '@tollkeeper/sdk/client/createClient'
import { ClientError } from '@tollkeeper/sdk/client/errors'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Address } from 'viem'
import type { Shop } from '../../support/shop.ts'
import { signPayment } from '../../support/x402.ts'
import { openGranted, placeOf, post, tell } from './act.ts'
import { type Buyer, type Market, openReceiver, registerWebhook } from './scene.ts'
import { honestWallet } from './wallets.ts'

/** One request that somebody pays for. */
export type Purchase = {
  payer: Address
  shop: Shop
  /** USDC base units, both halves. */
  price: bigint
  /** Unset where nothing was served. Of a request on a tab, the tab's. */
  paymentId?: string
  /** Why nothing was served. */
  refusal?: string
  /** Asked for when everybody hostile had left. */
  afterwards: boolean
}

/** What an x402 seller sold for its facilitator's word. */
export type Sale = { payer: Address; payee: Address; value: bigint; refusal: string | null }

export type Trade = {
  purchases: Purchase[]
  sales: Sale[]
  /** Payments of which the providers' webhooks were told that they settled. */
  announced: Set<string>
  /** Resolves when every buyer has bought once more after it was over. */
  done: Promise<unknown>
  close: () => Promise<void>
}

const prices = ['0.005', '0.05', '0.5']
/**
 * The first is sold on tabs only. Three tabs of them together fit a new payer's credit of 1 USDC. Beyond it, a buyer's tab would hold
 * the cheapest requests alone, whose fee doesn't carry its gas.
 */
const tabPrices = ['0.002', '0.02', '0.05']
/** How many requests a buyer puts on a tab before it closes it. */
const requestsATab = 10
/** Maximum number of a buyer's closed tabs that haven't settled when it opens another one: a busy machine settles late. */
const unsettledTabs = 2
/**
 * Wallets with code wait for each other: they have a few of a keeper wallet's transactions, 24 payments in each. What all
 * of them here want is less than that, or it would be a test of a backlog that grows.
 */
const withCodeEveryMs = 3_000

/**
 * Honest buyers, two of them with wallets that are contracts, at three providers with a webhook each, until it is over.
 * Contracts buy nothing whose fee is less than their gas.
 *
 * @param onTabs beside them three buyers at three further providers, all on tabs, which they close and open again and again.
 * @param sellsByX402 beside them an x402 seller with a grant, which covers its gas at any price that may be paid.
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
  /** Resolves when so many of a buyer's tabs have settled that its credit covers another one. */
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
      // What an outage keeps open is closed with the next.
      if (turn % requestsATab === 0) {
        await buyer.client.close().catch(() => {})
        await waitForCredit(buyer)
      }
      await wait(500, undefined, { signal: over }).catch(() => {})
    }
    // The dearest: a tab of the cheapest alone would be too small to settle.
    await purchase(buyer, tabShops, 2)
    await buyer.client.close()
  })
  const sales: Sale[] = []
  const done = Promise.all([...trade, ...tabTrade, seller && sell(scene, seller, sales, over)])
  return { purchases, sales, announced, done, close: receiver.close }
}

const saleEveryMs = 3_000
/** A standard middleware's own limit, and somewhat more. */
const saleTimeoutMs = 100_000

type Seller = { shop: Shop; buyer: Buyer }

/** Serves who pays, as soon as one of the keepers says so, and asks again where it heard nothing. */
async function sell(scene: Market, { shop, buyer }: Seller, sales: Sale[], over: AbortSignal): Promise<void> {
  const { account } = buyer
  const value = 10_000n
  const told: Promise<void>[] = []
  for (let turn = 0; !over.aborted; turn++) {
    const payment = await signPayment(placeOf(scene), account, { payTo: shop.address, value })
    const sale: Sale = { payer: account.address, payee: shop.address, value, refusal: 'never told' }
    sales.push(sale)
    const { url } = scene.keepers[turn % scene.keepers.length]?.service ?? scene.stack.keeper
    const ask = async () => {
      const body = { key: shop.apiKey, body: payment.body }
      for (let times = 0; times < 5; times++) {
        const signal = AbortSignal.timeout(saleTimeoutMs)
        const answer = await post(url, '/settle', { ...body, signal }).catch(() => undefined)
        if (answer) tell(scene, payment, answer)
        sale.refusal = answer?.success ? null : answer ? `${answer.reason}: ${answer.detail}` : 'no answer'
        if (answer?.success || (answer && answer.status < 500 && answer.reason !== 'settlement_pending'))
          return
        await wait(1_000)
      }
    }
    told.push(ask())
    await wait(saleEveryMs, undefined, { signal: over }).catch(() => {})
  }
  await Promise.all(told)
}

/** What is signed already is presented once more before the buyer gives up. */
async function buy(client: Client, url: string): Promise<PaidResponse> {
  return client.request(url).catch((error: unknown) => {
    if (!(error instanceof ClientError) || error.payment === undefined) throw error
    return client.request(url, { payment: error.payment })
  })
}
