import { setTimeout as wait } from 'node:timers/promises'
import type { Address } from 'viem'
import { parseUsdc } from '#protocol/amount'
import type { Client, PaidResponse } from '#sdk/client/createClient'
import { ClientError } from '#sdk/client/errors'
import type { Shop } from '../../support/shop.ts'
import { type Buyer, type Market, openReceiver, registerWebhook } from './scene.ts'
import { honestWallet } from './wallets.ts'

/** One request that somebody pays for. */
export type Purchase = {
  payer: Address
  shop: Shop
  /** USDC base units, both halves. */
  price: bigint
  /** Unset where nothing was served. */
  paymentId?: string
  /** Why nothing was served. */
  refusal?: string
  /** Asked for when everybody hostile had left. */
  afterwards: boolean
}

export type Trade = {
  purchases: Purchase[]
  /** Payments of which the providers' webhooks were told that they settled. */
  announced: Set<string>
  /** Resolves when every buyer has bought once more after it was over. */
  done: Promise<unknown>
  close: () => Promise<void>
}

const prices = ['0.005', '0.05', '0.5']

/** Honest buyers, two of them with wallets that are contracts, at three providers with a webhook each, until it is over. */
export async function openTrade(scene: Market, over: AbortSignal): Promise<Trade> {
  const announced = new Set<string>()
  const receiver = await openReceiver((body) => {
    const { type, data } = JSON.parse(body) as { type: string; data: { paymentId?: string } }
    if (type === 'payment.settled' && data.paymentId) announced.add(data.paymentId)
  })
  const shops = await Promise.all(
    prices.map(async (price) => {
      const shop = await scene.shop(price)
      await registerWebhook(scene, shop, receiver.url)
      return { shop, price: parseUsdc(price) }
    }),
  )
  const codes = [undefined, undefined, undefined, undefined, honestWallet, honestWallet]
  const buyers = await Promise.all(codes.map((code) => scene.buyer(code)))
  const purchases: Purchase[] = []
  const purchase = async ({ account, client }: Buyer, turn: number) => {
    const { shop, price } = shops[turn % shops.length] as (typeof shops)[number]
    const made: Purchase = { payer: account.address, shop, price, afterwards: over.aborted }
    purchases.push(made)
    const served = await buy(client, shop.url).catch((error: unknown) => {
      made.refusal = error instanceof ClientError ? error.code : String(error)
    })
    if (served?.paymentId) made.paymentId = served.paymentId
  }
  const trade = buyers.map(async (buyer, index) => {
    for (let turn = index; !over.aborted; turn++) {
      await purchase(buyer, turn)
      await wait(500, undefined, { signal: over }).catch(() => {})
    }
    await purchase(buyer, index)
  })
  return { purchases, announced, done: Promise.all(trade), close: receiver.close }
}

/** What is signed already is presented once more before the buyer gives up. */
async function buy(client: Client, url: string): Promise<PaidResponse> {
  return client.request(url).catch((error: unknown) => {
    if (!(error instanceof ClientError) || error.payment === undefined) throw error
    return client.request(url, { payment: error.payment })
  })
}
