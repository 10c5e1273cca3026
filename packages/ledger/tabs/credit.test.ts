import type { Address } from 'viem'
import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { drawFrom } from '../../../test/support/draw.ts'
import { seedChainId, seedProvider } from '../../../test/support/seedPayments.ts'
import {
  type Market,
  type MarketOptions,
  openMarket as open,
  price,
  wallets,
} from '../../../test/support/tabMarket.ts'
import { until } from '../../../test/support/until.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { badDebt } from '../acceptance/badDebt.ts'
import { findCoveredDefaults, recordCoverPayment } from '../acceptance/coveredDefaults.ts'
import { forgiveDebts } from '../acceptance/forgiveDebt.ts'
import { grantCredit } from '../acceptance/grantCredit.ts'

// The gains that dishonest buyers with any number of wallets can make on tabs.

const sql = await useDatabase()
const provider = await seedProvider(sql)
const openMarket = (options: Omit<MarketOptions, 'sql' | 'provider'> = {}) =>
  open({ sql, provider, ...options })

/** Each wallet concurrently buys the maximum on a separate tab, and never pays. @returns the codes of the refusals. */
async function takeAll(market: Market, payers: readonly Address[]): Promise<string[]> {
  const own = payers.map((payer) => market.openTab(payer))
  const refusals = await Promise.all(own.map((tab) => market.buyAll(tab)))
  await market.close()
  for (const tab of own) if (tab.requests > 0) await market.fail(tab)
  return refusals
}

/** Buys the maximum, and pays. */
async function buyHonestly(market: Market, payer: Address): Promise<void> {
  const tab = market.openTab(payer)
  await market.buyAll(tab)
  await market.close()
  await market.settle(tab)
}

test('behavior: wallets that never paid gain at most the budget of each day, regardless of their number, and payers who have paid are still served', async () => {
  const market = openMarket()
  const [established, newcomer] = wallets(2) as [Address, Address]
  await market.pay(established, 20_000_000n)
  for (let day = 0; day < 2; day++) {
    const refusals = await takeAll(market, wallets(12))
    expect(new Set(refusals)).toEqual(new Set(['tab_limit_exceeded']))
    // On the second day, one price of the budget was already lent to the newcomer, so the twelve new wallets gain less.
    expect(market.sums.lost).toBe(day === 0 ? 5_000_000n : 9_750_000n)
    const tab = market.openTab(newcomer)
    await expect(market.buy(tab, price)).rejects.toMatchObject({ code: 'tab_limit_exceeded' })
    await market.buy(market.openTab(established), price)
    await market.close()
    market.nextDay()
    await market.buy(market.openTab(newcomer), price)
    await market.close()
  }
})

test('behavior: refuses a payer with debts', async () => {
  const market = openMarket()
  const [payer] = wallets(1) as [Address]
  await takeAll(market, [payer])
  const [row] = await sql<[{ owed: bigint }]>`
    select sum(value) as owed from ${badDebt(sql)} debt where payer = ${payer}`
  expect(row.owed).toBe(market.sums.lost)
  expect(await market.buyAll(market.openTab(payer))).toBe('payer_in_debt')
})

test('behavior: a payer who settles for a while and then defaults gains a tenth of the settled amount, plus its loans', async () => {
  const market = openMarket({ budget: 1_500_000n })
  const growers = wallets(3)
  for (const payer of growers) await market.pay(payer, 10_000_000n)
  for (let round = 0; round < 3; round++) for (const payer of growers) await buyHonestly(market, payer)
  await takeAll(market, growers)
  expect(market.sums.lost).toBeGreaterThan(market.sums.settled / 12n)
  expect(market.sums.lost).toBeLessThanOrEqual(market.bound())
})

test('behavior: before lending from the budget, counts the amounts that the payer settled since its limit was cached', async () => {
  const market = openMarket()
  const [payer] = wallets(1) as [Address]
  await market.pay(payer, 10_000_000n)
  const tab = market.openTab(payer)
  // These purchases reserve one step, which is the whole credit earned so far.
  for (let n = 0; n < 4; n++) await market.buy(tab, price)
  // The tab settles within the five minutes for which the payer's limit is cached.
  await market.close(1_000)
  await market.settle(tab)
  await market.buy(market.openTab(payer), price)
  expect(await market.lent()).toBe(0n)
  await market.close()
})

test('behavior: a first payment of the minimum amount earns no credit beyond the loans from the budget', async () => {
  const market = openMarket({ budget: 1_500_000n })
  const farm = wallets(8)
  for (const payer of farm) await market.pay(payer, 4_500n)
  await takeAll(market, farm)
  expect(market.sums.lost).toBeLessThanOrEqual(market.bound())
})

test('behavior: payments between wallets of the same owner earn no more than their small fees', async () => {
  const market = openMarket({ budget: 1_500_000n })
  const farm = wallets(4)
  for (const payer of farm) await market.pay(payer, 100_000_000n, 100_000n)
  await takeAll(market, farm)
  expect(market.sums.lost).toBeLessThanOrEqual(market.bound())
})

test('behavior: tabs that are left too small to settle reduce the payer’s credit, over many tabs and days', async () => {
  const market = openMarket({ budget: 250_000n, least: 4n * price + 1n })
  const [payer] = wallets(1) as [Address]
  await market.pay(payer, 10_000_000n)
  for (let day = 0; day < 3; day++) {
    for (let n = 0; n < 3; n++) {
      const tab = market.openTab(payer)
      for (let i = 0; i < 4; i++) await market.buy(tab, price).catch(() => {})
      market.sums.lost += tab.charged
    }
    await market.close(93_600_000)
  }
  expect(market.sums.lost).toBeGreaterThanOrEqual(1_000_000n)
  expect(market.sums.lost).toBeLessThanOrEqual(market.bound())
})

/**
 * Reads how much these payers' final defaults cost providers and the platform, and the fees that the platform kept of these payers, in USDC base
 * units.
 */
async function readCovers(payers: readonly Address[]) {
  return sql<{ payer: Address; defaulted: bigint; covered: bigint; kept: bigint; listed: bigint }[]>`
    select asked.payer,
      coalesce((
        select sum(default_of_tab(o.payment_id)) from payment_result o
        where o.payer = asked.payer and o.final_at is not null and o.kind = 'failed'
      ), 0) as defaulted,
      coalesce((select sum(y.covered) from payer y where y.address = asked.payer), 0) as covered,
      coalesce((select sum(r.kept_fee) from payer_revenue r where r.payer = asked.payer and r.period = 'all'), 0) as kept,
      coalesce((select sum(c.amount) from covered_default c where c.payer = asked.payer), 0) as listed
    from unnest(${[...payers]}::text[]) asked (payer)`
}

describe('credit that an operator grants', () => {
  const grant = (payer: Address, amount: bigint | null) =>
    grantCredit(sql, { chainId: seedChainId, payer, amount, reason: 'a test' })

  test('behavior: a grant lets a payer owe more and draws nothing from the budget; the platform bears a default within the grant', async () => {
    const market = openMarket({ budget: 0n })
    const [payer] = wallets(1) as [Address]
    await grant(payer, 3_000_000n)
    const tab = market.openTab(payer)
    await market.buyAll(tab)
    expect(tab.charged).toBe(3_000_000n)
    expect(await market.lent()).toBe(0n)
    await market.close()
    await market.fail(tab)
    await market.expireFailed()
    expect(await readCovers([payer])).toMatchObject([
      { defaulted: 2_700_000n, covered: 2_700_000n, kept: 0n },
    ])
  })

  test('behavior: with a grant of 0, a payer who has earned nothing is refused until the grant is reset', async () => {
    const market = openMarket()
    const [payer] = wallets(1) as [Address]
    await grant(payer, 0n)
    await expect(market.buy(market.openTab(payer), price)).rejects.toMatchObject({
      code: 'tab_limit_exceeded',
    })
    await grant(payer, null)
    // A payer's state is read again after at least 100 ms.
    await market.close(1_000)
    await market.buy(market.openTab(payer), price)
  })

  test('behavior: if the default credit is 0, serves only payers with earned or granted credit', async () => {
    const market = openMarket({ base: 0n })
    const [stranger, trusted, known] = wallets(3) as [Address, Address, Address]
    await grant(trusted, price)
    await market.pay(known, 10_000_000n)
    await expect(market.buy(market.openTab(stranger), price)).rejects.toMatchObject({
      code: 'tab_limit_exceeded',
    })
    for (const payer of [trusted, known]) await market.buy(market.openTab(payer), price)
    expect(await market.lent()).toBe(0n)
  })
})

describe('the bearer of a default', () => {
  /** Makes a payer buy the maximum on a tab. The tab then defaults, and its result is final. */
  async function defaultOf(market: Market, payer: Address) {
    const tab = market.openTab(payer)
    await market.buyAll(tab)
    await market.close()
    await market.fail(tab)
    await market.expireFailed()
    return tab
  }

  test('behavior: the platform bears a default within the payer’s earned credit, out of the fees that it kept, and the provider bears the rest', async () => {
    const market = openMarket()
    const [payer] = wallets(1) as [Address]
    // Of 20 USDC, the platform kept a fee of 1 USDC.
    await market.pay(payer, 19_000_000n, 1_000_000n)
    const tab = market.openTab(payer)
    await market.buyAll(tab)
    // 1 USDC is lent, and 1 USDC is earned.
    expect(tab.charged).toBe(2_000_000n)
    await market.close()
    await market.fail(tab)
    const [before] = await readCovers([payer])
    expect(before?.covered).toBe(0n)
    await market.expireFailed()
    const [after] = await readCovers([payer])
    // Nine tenths of the purchases are the provider's part.
    expect(after).toMatchObject({
      defaulted: 1_800_000n,
      covered: 1_000_000n,
      kept: 1_000_000n,
      listed: 1_000_000n,
    })
    const filter = { chainId: seedChainId, payee: provider.wallet }
    const owed = async () => (await findCoveredDefaults(sql, filter, 10)).map(({ amount }) => amount)
    const [due] = await owed()
    const txHash = randomHex(32)
    expect(await recordCoverPayment(sql, filter, { amount: 1n, txHash })).toBe(due)
    expect(await recordCoverPayment(sql, filter, { amount: due ?? 0n, txHash })).toBeUndefined()
    expect(await owed()).toEqual([])
  })

  test('behavior: borne amounts no longer count as earned once the debt is forgiven', async () => {
    const market = openMarket()
    const [payer] = wallets(1) as [Address]
    await market.pay(payer, 19_000_000n, 1_000_000n)
    await defaultOf(market, payer)
    await forgiveDebts(sql, { payer }, 'a test')
    const lent = await market.lent()
    await market.buy(market.openTab(payer), price)
    expect(await market.lent()).toBeGreaterThan(lent)
  })

  test('behavior: if a reorg reverts the result of a default, the platform no longer owes the provider what it has not paid yet', async () => {
    const market = openMarket()
    const [payer] = wallets(1) as [Address]
    await market.pay(payer, 19_000_000n, 1_000_000n)
    const tab = await defaultOf(market, payer)
    await sql`update payment_result set final_at = null, arrived = null where payment_id = ${tab.paymentId}`
    expect(await readCovers([payer])).toMatchObject([{ covered: 0n, listed: 0n }])
  })

  test('behavior: if a reorg reverts a payer’s fees while its default becomes final, the platform pays no part of the default from these fees', async () => {
    const market = openMarket()
    const [payer] = wallets(1) as [Address]
    const other = await seedProvider(sql)
    await sql`
      insert into payer_revenue (provider_id, period, starts_at, chain_id, payer, payments, gross, settled_net, last_accepted_at, kept_fee)
      values (${other.providerId}, 'all', 'epoch', ${seedChainId}, ${payer}, 1, 0, 0, now(), 1000000)`
    let defaulting: Promise<unknown> | undefined
    const tab = market.openTab(payer)
    await market.buyAll(tab)
    await market.close()
    await market.fail(tab)
    await sql.begin(async (tx) => {
      await tx`select from payer where address = ${payer} for update`
      await tx`update payer_revenue set kept_fee = 0 where payer = ${payer}`
      defaulting = market.expireFailed()
      await until('the default waits for the payer', async () => {
        const waiting = await sql`
          select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
        return waiting.length > 0
      })
    })
    await defaulting
    expect(await readCovers([payer])).toMatchObject([{ covered: 0n, listed: 0n }])
  })

  test('behavior: trading between own wallets is never profitable: the fees exceed the rewards and the possible gain from a default', async () => {
    const market = openMarket({ budget: 0n })
    const [payer] = wallets(1) as [Address]
    await market.pay(payer, 10_000_000n, 100_000n)
    // The trader settles its own tabs, so it also gets the rewards.
    const trade = async () => {
      const tab = market.openTab(payer)
      await market.buyAll(tab, 10_000n)
      await market.close()
      return tab
    }
    for (let round = 0; round < 10; round++) await market.settle(await trade())
    const paid = market.sums.fees
    await market.fail(await trade())
    expect(market.sums.rewards).toBeGreaterThan(0n)
    expect(market.sums.lost).toBeLessThanOrEqual(paid)
  })
})

test.each([1, 2, 3])(
  'behavior: for any mix of payments, purchases and defaults, losses stay within the budgets and the fees that the platform kept: seed %i',
  async (seed) => {
    const draw = drawFrom(`credit ${seed}`)
    const market = openMarket({ budget: 1_000_000n })
    const own = wallets(10)
    for (let turn = 0; turn < 40; turn++) {
      const payer = own[Math.floor(draw() * own.length)] as Address
      const act = draw()
      if (act < 0.2) await market.pay(payer, BigInt(Math.floor(draw() * 4_000_000)) + 1n, 100_000n)
      else if (act < 0.25) market.nextDay()
      else {
        const tab = market.openTab(payer)
        await market.buyAll(tab, BigInt(Math.floor(draw() * 300_000)) + 10_000n)
        await market.close()
        if (tab.requests > 0) await (draw() < 0.6 ? market.settle(tab) : market.fail(tab))
      }
      expect(market.sums.lost).toBeLessThanOrEqual(market.bound())
    }
    await market.expireFailed()
    const covers = await readCovers(own)
    // The platform never bears more of a payer's defaults than it kept of that payer's fees.
    for (const { payer, covered, kept, listed } of covers) {
      expect(covered, payer).toBe(listed)
      expect(covered, payer).toBeLessThanOrEqual(kept)
    }
    // Providers' losses are at most the loans from the budgets.
    const borne = covers.reduce((sum, { defaulted, covered }) => sum + defaulted - covered, 0n)
    expect(borne).toBeLessThanOrEqual(market.days() * 1_000_000n)
    expect(covers.some(({ covered }) => covered > 0n)).toBe(true)
  },
)
