import { setTimeout as wait } from 'node:timers/promises'
import { startIndexer } from '@tollkeeper/indexer/launch'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { findBreaches } from '../support/ledger.ts'
import { openRestoreDrill, type RestoreDrill } from '../support/restoreDrill.ts'
import { type Front, startFront } from '../support/roundRobin.ts'
import { newBuyer, openShop, type Shop, type TestBuyer } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { readBalance, tokenOf } from '../support/usdc.ts'

// The host with the database is lost while buyers trade on tabs, and another one is started from the backup with the
// commands of docs/deployment.md. Buyers and sellers keep running, and reach the new gateway at the same URL.

const prices = ['0.01', '0.02'] as const
const startUsdc = '100'

let front: Front
let stack: TestStack
let drill: RestoreDrill
const toClose: (() => Promise<unknown>)[] = []
beforeAll(async () => {
  drill = openRestoreDrill()
  front = await startFront()
  stack = await startTestStack({
    env: { api: { PUBLIC_URL: front.url }, keeper: { TRIGGER_TIME_SECONDS: '2' } },
  })
  front.targets.push(stack.api.url)
})
afterAll(async () => {
  for (const close of toClose.reverse()) await close()
  await stack?.close()
  await front?.close()
  drill?.close()
})

type Purchase = { buyer: TestBuyer; shop: Shop; price: bigint; paymentId: string }

/** Starts gateway, keeper and indexer on the restored database, with the same secrets. */
async function startRestored() {
  const { url, env } = await drill.restore()
  const own = { DATABASE_URL: url, ...env }
  const { chain, platformWallet } = stack
  const indexer = await startIndexer({
    databaseUrl: url,
    rpcUrls: { [chain.network]: chain.url },
    platformWallets: [platformWallet],
    deploymentsFile: stack.env.DEPLOYMENTS_FILE,
  })
  toClose.push(() => indexer.close())
  const [api, keeper] = [await stack.createService('api', own), await stack.createService('keeper', own)]
  await Promise.all([api.start(), keeper.start(), indexer.ready])
  const sql = openDatabase({ url, max: 2, applicationName: 'test' })
  toClose.push(() => sql.end({ timeout: 1 }))
  return { api, sql, env }
}

test('behavior: if a gateway is restored from the documented backup during trade on tabs, buyers continue and close their tabs, and providers are paid for everything in the backup', async () => {
  const at = { api: { url: front.url }, chain: stack.chain }
  const shops = await Promise.all(
    prices.map(async (usdcPerUnit) => ({
      shop: await openShop(at, { usdcPerUnit }),
      price: parseUsdc(usdcPerUnit),
    })),
  )
  for (const { shop } of shops) toClose.push(() => shop.close())
  const openBuyer = async (): Promise<TestBuyer> => {
    const { address, privateKey } = await newBuyer(stack, startUsdc)
    const client = createClient({
      gatewayUrl: front.url,
      network: stack.chain.network,
      account: privateKeyToAccount(privateKey),
      usdcAddress: tokenOf(stack.chain),
      tabs: true,
    })
    return { address, privateKey, client }
  }
  const [first, second, late] = [await openBuyer(), await openBuyer(), await openBuyer()]
  const purchases: Purchase[] = []
  /** Buys once. Throws if the buyer isn't served. */
  const buy = async (buyer: TestBuyer, turn: number) => {
    const { shop, price } = shops[turn % shops.length] as (typeof shops)[number]
    const { paymentId = '' } = await buyer.client.request(shop.url)
    const made = { buyer, shop, price, paymentId }
    purchases.push(made)
    return made
  }
  /** Requests that got no answer because the database was down. Each of them may have been charged. */
  const unanswered: Pick<Purchase, 'buyer' | 'price'>[] = []
  const over = new AbortController()
  /** Buys repeatedly. Requests may fail during the backup, because the stand-in for pg_dump closes the database while it copies it. */
  const trade = (buyer: TestBuyer, turns: (turn: number) => number) =>
    (async () => {
      for (let turn = 0; !over.signal.aborted; turn++) {
        const { price } = shops[turns(turn) % shops.length] as (typeof shops)[number]
        await buy(buyer, turns(turn)).catch(() => unanswered.push({ buyer, price }))
        await wait(50)
      }
    })()
  const served = (buyer: TestBuyer) => purchases.filter((one) => one.buyer === buyer).length
  // After the backup, the second buyer's tab gets another line, and the third buyer opens its first tab.
  let isBackedUp = false
  const trades = [trade(first, (turn) => turn), trade(second, (turn) => (isBackedUp ? turn : 0))]
  await until('both are buying', () => [first, second].every((buyer) => served(buyer) >= 5))

  const before = [...purchases]
  await drill.backUp(stack.databaseUrl)
  isBackedUp = true
  const counts = new Map([first, second].map((buyer) => [buyer, served(buyer)]))
  trades.push(trade(late, (turn) => turn))
  await until('all three are buying', () =>
    [first, second, late].every((buyer) => served(buyer) >= (counts.get(buyer) ?? 0) + 5),
  )
  over.abort()
  await Promise.all(trades)
  const lost = purchases.filter((one) => !before.includes(one))

  await Promise.all([stack.api.kill(), stack.keeper.kill(), stack.indexer.close()])
  front.targets.length = 0
  const { api, sql, env } = await startRestored()
  expect(Date.parse(env.MACAROON_NOT_BEFORE ?? '')).toBeLessThan(Date.now())
  front.targets.push(api.url)
  const statusOfTab = async ({ client }: TestBuyer) => {
    const [tab] = await client.tabs()
    return (await fetch(new URL(`/tabs/${tab?.id}`, front.url))).status
  }
  expect(await Promise.all([first, second, late].map(statusOfTab))).toEqual([200, 200, 404])

  const after: Purchase[] = []
  for (const buyer of [first, second, late])
    for (let turn = 0; turn < 4; turn++) after.push(await buy(buyer, turn))
  for (const { client } of [first, second, late]) await client.close()
  for (const { client } of [first, second, late]) expect(await client.tabs()).toEqual([])

  const kept = [...before, ...after]
  const statusOf = async ({ paymentId }: Purchase) => {
    const answer = await fetch(new URL(`/payments/${paymentId}`, front.url))
    return ((await answer.json()) as { payment_status?: string }).payment_status
  }
  await until('all payments in the backup and since the restore are settled', async () =>
    (await Promise.all(kept.map(statusOf))).every((status) => status === 'settled'),
  )
  const sum = (some: readonly Pick<Purchase, 'buyer' | 'price'>[], buyer: TestBuyer) =>
    some.reduce((total, one) => total + (one.buyer === buyer ? one.price : 0n), 0n)
  for (const buyer of [first, second, late]) {
    const paid = parseUsdc(startUsdc) - (await readBalance(stack.rpc, tokenOf(stack.chain), buyer.address))
    expect(paid).toBeGreaterThanOrEqual(sum(kept, buyer))
    expect(paid).toBeLessThanOrEqual(sum([...kept, ...lost, ...unanswered], buyer))
  }
  expect(await findBreaches(sql)).toEqual([])
})
