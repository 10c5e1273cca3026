import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { createWalletClient, http, parseAbi, publicActions } from 'viem'
import { devAccount, devPrivateKey } from '../../../apps/devstack/chain/accounts.ts'
import type { Stack } from '../../../apps/devstack/stack/stack.ts'
import { backdate } from '../../support/backdate.ts'
import { newBuyer, openShop, type Shop, type TestBuyer } from '../../support/shop.ts'
import { until } from '../../support/until.ts'
import { tokenOf } from '../../support/usdc.ts'

/** Thresholds so high that payments reach them only if a test intends it. */
export const patient = {
  WEBHOOK_ALLOW_PRIVATE: 'true',
  TRIGGER_COUNT: '50',
  TRIGGER_AMOUNT_USDC: '1',
  TRIGGER_TIME_SECONDS: '3600',
}

export type Scene = {
  shop: Shop
  /** A webhook for all events, with a URL that doesn't respond. */
  webhookId: string
  settled: string[]
  /** A payment that fails for lack of balance, and is retried automatically. */
  retrying: string
  /** A payment whose retries are used up. */
  failed: string
  waiting: string[]
  /** The receipt in the response to a payment that has settled since. */
  receipt: string
  /** The receipt in the response to a payment that is still waiting. */
  waitingReceipt: string
  /** Makes one more payment. */
  pay: () => Promise<void>
}

type SceneOptions = {
  /** Number of payments in each batch. */
  batches: number[]
  waiting: number
  /** Spreads accepted payments over the past `days`, so that the charts show more than a minute. */
  days?: number
}

/**
 * Creates the short history of a provider. The payments are real: the SDK pays, the keeper settles, and the indexer reads the chain.
 */
export async function playScene(stack: Stack, { batches, waiting, days = 0 }: SceneOptions): Promise<Scene> {
  const shop = await openShop(stack, { usdcPerUnit: '0.012' })
  const webhookId = await addWebhook(stack, shop)
  const sql = openDatabase({ url: stack.databaseUrl, max: 2, applicationName: 'scene' })
  try {
    // Mint one after another, because the mints share an account.
    const buyers: TestBuyer[] = []
    for (const usdc of ['5', '5', '5']) buyers.push(await newBuyer(stack, usdc))
    const pay = async (count: number): Promise<{ paymentId: string; receipt: string }[]> =>
      Promise.all(
        Array.from({ length: count }, async (_, index) => {
          const paid = await buyers[index % buyers.length]?.client.request(shop.url)
          return { paymentId: paid?.paymentId as string, receipt: paid?.receipt as string }
        }),
      )

    // Makes calls that buy nothing: one without a payment, and one from a buyer without money.
    await Promise.all(Array.from({ length: 4 }, () => fetch(shop.url)))
    await (await newBuyer(stack, '0.001')).client.request(shop.url).catch(() => {})

    const settled: string[] = []
    let receipt = ''
    for (const count of batches) {
      const paid = await pay(count)
      const ids = paid.map(({ paymentId }) => paymentId)
      receipt = paid[0]?.receipt ?? receipt
      if (days > 0) {
        await stack.keeper.stop()
        await moveBack(sql, ids, days)
        await stack.keeper.start()
      }
      await waitAnHour(sql, ids)
      await untilStatus(stack, ids, 'settled')
      settled.push(...ids)
    }

    const poor = await payAndEmptyTheWallet(stack, shop)
    const [retrying, failed] = poor
    await waitAnHour(sql, poor)
    await untilStatus(stack, poor, 'retrying')
    await waitAnHour(sql, poor, -1)
    // The next attempt would settle the waiting payments as well. So move it beyond the time that the tests take on a slow
    // machine.
    await sql`update queue set next_at = now() + interval '55 minutes' where payment_id = ${retrying}`
    // Five retries take a day and an hour, so make the last one due now.
    await sql`update queue set attempts = 5, next_at = now() where payment_id = ${failed}`
    await untilStatus(stack, [failed], 'failed')

    const last = await pay(waiting)
    return {
      shop,
      webhookId,
      settled,
      retrying,
      failed,
      waiting: last.map(({ paymentId }) => paymentId),
      receipt,
      waitingReceipt: last[0]?.receipt ?? '',
      pay: async () => {
        await pay(1)
      },
    }
  } finally {
    await sql.end()
  }
}

/** Makes payments older by an hour, after which the time trigger fires. One statement changes all of them, so that they settle together. */
async function waitAnHour(sql: Database, ids: readonly string[], hours = 1): Promise<void> {
  await sql`update queue set accepted_at = accepted_at - ${hours} * interval '1 hour' where payment_id in ${sql(ids)}`
}

async function addWebhook(stack: Stack, { providerId, apiKey }: Shop): Promise<string> {
  const response = await fetch(new URL(`/providers/${providerId}/webhooks`, stack.api.url), {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({
      url: `http://${loopback}:${await reservePort()}/hook`,
      description: 'Accounting',
    }),
  })
  return ((await response.json()) as { webhookId: string }).webhookId
}

async function moveBack(sql: Database, ids: string[], days: number): Promise<void> {
  for (const [index, id] of ids.entries()) {
    // Recent days get more payments than earlier days, and no two days get the same number.
    const hours = Math.floor(days * 24 * ((index * 0.618_034) % 1) ** 1.6) + 1
    await backdate(sql, { paymentId: id }, hours * 3_600_000)
  }
}

/** Makes two payments of a buyer who then moves the money away, so that they fail only on chain. */
async function payAndEmptyTheWallet(stack: Stack, shop: Shop): Promise<[string, string]> {
  const account = devAccount(14)
  const usdcAddress = tokenOf(stack.chain)
  const { network } = stack.chain
  await stack.chain.mintUsdc([account.address], 100_000n)
  const client = createClient({
    gatewayUrl: stack.api.url,
    network,
    walletPrivateKey: devPrivateKey(14),
    limits: { perPayment: '20' },
    usdcAddress,
    tabs: false,
  })
  const first = await client.request(shop.url)
  const second = await client.request(shop.url)
  const wallet = createWalletClient({ account, transport: http(stack.chain.url) }).extend(publicActions)
  const hash = await wallet.writeContract({
    address: usdcAddress,
    abi: parseAbi(['function transfer(address to, uint256 value) returns (bool)']),
    functionName: 'transfer',
    args: [devAccount(15).address, 100_000n],
    chain: null,
  })
  await wallet.waitForTransactionReceipt({ hash, pollingInterval: 50 })
  return [first.paymentId as string, second.paymentId as string]
}

async function untilStatus(stack: Stack, ids: string[], wanted: string): Promise<void> {
  await until(`${ids.length} payments are ${wanted}`, async () => {
    const found = await Promise.all(
      ids.map(async (id) => {
        const answer = await fetch(new URL(`/payments/${id}`, stack.api.url))
        return ((await answer.json()) as { payment_status?: string }).payment_status
      }),
    )
    return found.every((status) => status === wanted)
  })
}
