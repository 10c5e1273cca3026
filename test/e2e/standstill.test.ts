import { createServer } from 'node:http'
import { setTimeout as wait } from 'node:timers/promises'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { listen, readBody, urlOf } from '../../sdk/test/serve.ts'
import { createTestDatabase } from '../support/database.ts'
import { hasPgbouncer, type PgBouncer, startPgbouncer } from '../support/pgbouncer.ts'
import { newBuyer, openShop, present, type Shop, signOnly } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { readBalance, tokenOf } from '../support/usdc.ts'

// PgBouncer stalls while a keeper settles each payment as soon as it is one second old.

/** Payments per round, and the price of each in USDC base units. */
const [buyersARound, price] = [8, 50_000n]
/**
 * Delays in ms from presenting a payment to stalling PgBouncer: before the payment is verified, while it is accepted,
 * or after it is accepted.
 */
const stopsAfterMs = [0, 20, 60]
/** Duration of the stall in ms. It is longer than the time for which a silent connection is kept. */
const standstillMs = 11_000
/** With this timeout, a middleware needs at most 100 s to void a payment whose response it never received. The keeper waits longer: 150 s. */
const [timeoutMs, minAgeSeconds] = [3_000, 150]

let stack: TestStack
let pooler: PgBouncer
let sql: Database
beforeAll(async () => {
  if (!hasPgbouncer) return
  const databaseUrl = await createTestDatabase()
  pooler = await startPgbouncer(databaseUrl, { keeperIdleInTransactionMs: 3_000 })
  const pooled = (name: 'api' | 'keeper') => ({
    DATABASE_URL: pooler.urlOf(name),
    DATABASE_DIRECT_URL: databaseUrl,
  })
  const keeper = { TRIGGER_TIME_SECONDS: '1', TRIGGER_MIN_AGE_SECONDS: String(minAgeSeconds) }
  stack = await startTestStack({
    databaseUrl,
    env: { api: pooled('api'), keeper: { ...pooled('keeper'), ...keeper } },
  })
  sql = openDatabase({ url: databaseUrl, max: 2, applicationName: 'test' })
})
afterAll(async () => {
  await sql?.end({ timeout: 1 })
  await stack?.close()
  await pooler?.close()
})

async function open(gatewayUrl?: string): Promise<Shop> {
  const shop = await openShop(stack, {
    usdcPerUnit: '0.05',
    timeout: timeoutMs,
    ...(gatewayUrl && { gatewayUrl }),
  })
  onTestFinished(() => shop.close())
  // With this flag, the keeper batches no payment of the shop while its middleware may still void the payment.
  await sql`update provider set own_middleware = true where id = ${shop.providerId}`
  await until('it sells', async () => (await fetch(shop.url)).status === 402)
  return shop
}

async function sign(shop: Shop) {
  const buyers = await Promise.all(Array.from({ length: buyersARound }, () => newBuyer(stack, '0.05')))
  return Promise.all(
    buyers.map(async (buyer) => ({ payer: buyer.address, payment: await signOnly(stack, shop, buyer) })),
  )
}

type Answered = { payer: `0x${string}`; status: number }

/** Expects that no payment of the buyers who weren't served is queued, and that they keep their money. */
async function expectFair(answered: readonly Answered[]): Promise<void> {
  const refused = answered.flatMap(({ payer, status }) => (status === 200 ? [] : payer))
  expect(refused.length).toBeGreaterThan(0)
  const addresses = refused.map((payer) => payer.toLowerCase())
  await until('none of their payments is queued', async () => {
    return (await sql`select from queue where payer = any(${addresses}::text[])`).length === 0
  })
  const left = await Promise.all(refused.map((payer) => readBalance(stack.rpc, tokenOf(stack.chain), payer)))
  expect(left).toEqual(refused.map(() => price))
}

describe.skipIf(!hasPgbouncer)('buyers that got 503', () => {
  test('behavior: buyers are not charged if the gateway accepts their payments but its responses are lost', async () => {
    let isDeaf = false
    const front = createServer(async (request, response) => {
      const body = request.method === 'POST' ? await readBody(request) : null
      const { host: _, connection: _c, 'content-length': _l, ...headers } = request.headers
      const answer = await fetch(new URL(request.url ?? '', stack.api.url), {
        method: request.method ?? 'GET',
        headers: headers as Record<string, string>,
        body,
      })
      const text = await answer.text()
      if (!isDeaf) response.writeHead(answer.status, { 'content-type': 'application/json' }).end(text)
    })
    await listen(front)
    onTestFinished(() => void front.closeAllConnections())
    const shop = await open(urlOf(front))
    const signed = await sign(shop)
    isDeaf = true
    const answered = await Promise.all(
      signed.map(async ({ payer, payment }) => ({ payer, status: (await present(shop, payment)).status })),
    )
    const [row] = await sql<[{ accepted: number }]>`select count(*)::int as accepted from payment`
    isDeaf = false
    expect(answered.map(({ status }) => status)).toEqual(signed.map(() => 503))
    expect(row.accepted).toBe(buyersARound)
    await expectFair(answered)
  })

  test('behavior: buyers are not charged if PgBouncer stalls', async () => {
    const shop = await open()
    const rounds = await Promise.all(
      stopsAfterMs.map(async (stopsMs) => ({ stopsMs, signed: await sign(shop) })),
    )
    const answered: Answered[] = []
    for (const { stopsMs, signed } of rounds) {
      const pid = pooler.pid()
      if (pid === undefined) throw new Error('PgBouncer is not running')
      const asked = signed.map(async ({ payer, payment }) => {
        const { status } = await present(shop, payment)
        answered.push({ payer, status })
      })
      await wait(stopsMs)
      process.kill(pid, 'SIGSTOP')
      try {
        await Promise.all(asked)
        await wait(standstillMs)
      } finally {
        process.kill(pid, 'SIGCONT')
      }
      await until('api and keeper reach their database again', async () => {
        const ready = await Promise.all(
          [stack.api, stack.keeper].map(({ url }) => fetch(new URL('/readyz', url))),
        )
        return ready.every(({ ok }) => ok)
      })
    }
    expect(answered.every(({ status }) => status === 200 || status === 503)).toBe(true)
    await expectFair(answered)
  }, 300_000)
})
