import { setTimeout as wait } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { openDatabase } from '#ledger/store/database'
import { createTestDatabase } from '../support/database.ts'
import { hasPgbouncer, startPgbouncer } from '../support/pgbouncer.ts'
import { newBuyer, openShop, present, signOnly } from '../support/shop.ts'
import { startTestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { readBalance, tokenOf } from '../support/usdc.ts'

/** Payments a round, and what each pays, in USDC base units. */
const [buyersARound, price] = [8, 50_000n]
/** How long after a payment PgBouncer stands still: before it is verified, while it is accepted, and after it. */
const stopsAfterMs = [0, 10, 30, 60]
/** Longer than a silent connection is kept. */
const standstillMs = 11_000
/** As long as a middleware of this timeout takes to void what it never heard of. */
const [timeoutMs, minAgeSeconds] = [3_000, 60]

test.skipIf(!hasPgbouncer)(
  'behavior: PgBouncer stands still beside a keeper that settles at once: who was told 503 is not charged, who was served is',
  async () => {
    const databaseUrl = await createTestDatabase()
    const pooler = await startPgbouncer(databaseUrl, { keeperIdleInTransactionMs: 3_000 })
    onTestFinished(() => pooler.close())
    const pooled = (name: 'api' | 'keeper') => ({
      DATABASE_URL: pooler.urlOf(name),
      DATABASE_DIRECT_URL: databaseUrl,
    })
    const stack = await startTestStack({
      databaseUrl,
      env: {
        api: pooled('api'),
        keeper: {
          ...pooled('keeper'),
          TRIGGER_TIME_SECONDS: '1',
          TRIGGER_MIN_AGE_SECONDS: String(minAgeSeconds),
        },
      },
    })
    onTestFinished(() => stack.close())
    const sql = openDatabase({ url: databaseUrl, max: 2, applicationName: 'test' })
    onTestFinished(() => sql.end({ timeout: 1 }))
    const shop = await openShop(stack, { usdcPerUnit: '0.05', timeout: timeoutMs })
    onTestFinished(() => shop.close())

    const answered: { payer: string; status: number }[] = []
    for (const stopsMs of stopsAfterMs) {
      const buyers = await Promise.all(Array.from({ length: buyersARound }, () => newBuyer(stack, '0.05')))
      const signed = await Promise.all(buyers.map((buyer) => signOnly(stack, shop, buyer)))
      const pid = pooler.pid()
      if (pid === undefined) throw new Error('PgBouncer does not run')
      const asked = signed.map(async (payment, index) => {
        const { status } = await present(shop, payment)
        answered.push({ payer: buyers[index]?.address.toLowerCase() ?? '', status })
      })
      await wait(stopsMs)
      process.kill(pid, 'SIGSTOP')
      try {
        await Promise.all(asked)
        await wait(standstillMs)
      } finally {
        process.kill(pid, 'SIGCONT')
      }
      await until('api and keeper have their database again', async () => {
        const ready = await Promise.all(
          [stack.api, stack.keeper].map(({ url }) => fetch(new URL('/readyz', url))),
        )
        return ready.every(({ ok }) => ok)
      })
    }
    const payersOf = (isServed: boolean) =>
      answered.flatMap(({ payer, status }) => ((status === 200) === isServed ? payer : []))
    const [served, refused] = [payersOf(true), payersOf(false)]
    expect(answered.length).toBe(stopsAfterMs.length * buyersARound)
    expect(answered.every(({ status }) => status === 200 || status === 503)).toBe(true)
    expect(refused.length).toBeGreaterThan(0)
    await until('nothing waits any more', async () => (await sql`select from queue`).length === 0)
    const paid = await Promise.all(
      [...served, ...refused].map((payer) =>
        readBalance(stack.rpc, tokenOf(stack.chain), payer as `0x${string}`),
      ),
    )
    expect(paid).toEqual([...served.map(() => 0n), ...refused.map(() => price)])
  },
  300_000,
)
