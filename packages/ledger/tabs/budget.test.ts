import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { type Network, networks } from '@tollkeeper/sdk/protocol/networks'
import { describe, expect, test } from 'vitest'
import { createMigratedDatabase } from '../../../test/support/database.ts'
import { drawFrom } from '../../../test/support/draw.ts'
import { seedProvider, seedToken } from '../../../test/support/seedPayments.ts'
import {
  type Market,
  type MarketTab,
  openMarket as open,
  price,
  wallets,
} from '../../../test/support/tabMarket.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import type { Allowance, Payers } from '../acceptance/payers.ts'
import { openDatabase } from '../store/database.ts'
import { createReserveForTab } from './reserveForTab.ts'

// The budget of a day, which all payers share: payers borrow from it, and unused loans return to it.

const sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
const provider = await seedProvider(sql)
const openMarket = (options: { budget?: bigint; least?: bigint } = {}) => open({ sql, provider, ...options })
const wallet = () => randomHex(20)

const unlimited: Allowance = {
  limit: null,
  by: 'cap',
  tabLimit: null,
  credit: null,
  earnedLimit: null,
  available: 0n,
  unsettled: 0n,
  debt: 0n,
  blockedBy: undefined,
  hasCode: false,
}

/**
 * Creates a function that reserves credit for a tab at a fixed time from a given budget. Its payers have no history, and only the budget limits them.
 */
function reserveAt(now: string, network: Network, budget: bigint) {
  const reserve = createReserveForTab(sql, { budget, now: () => Date.parse(now) })
  const payers = {
    allowance: async () => unlimited,
    freshAllowance: async () => unlimited,
  } as unknown as Payers
  const served = { network, token: seedToken } as unknown as ServedNetwork
  return ({ payer, tabId, nonce }: MarketTab) => reserve({ payer, tabId, nonce }, price, served, payers)
}

/** Like {@link reserveAt}, at noon of a given day. */
const reserveOn = (day: string, network: Network, budget: bigint) =>
  reserveAt(`${day}T12:00:00Z`, network, budget)

/** Buys the given number of times on a new tab. */
async function buyOn(market: Market, times: number, payer = wallet()): Promise<MarketTab> {
  const tab = market.openTab(payer)
  for (let n = 0; n < times; n++) await market.buy(tab, price)
  return tab
}

describe('a loan', () => {
  test('default: is the price of one request for a payer without history; each further loan doubles the tab’s credit', async () => {
    const market = openMarket()
    const tab = market.openTab(wallet())
    const lent = []
    for (let n = 0; n < 4; n++) {
      await market.buy(tab, 10_000n)
      lent.push(await market.lent())
    }
    expect(lent).toEqual([10_000n, 20_000n, 40_000n, 40_000n])
  })

  test('behavior: one step of credit covers all requests that wait for it, up to the payer’s maximum', async () => {
    const market = openMarket()
    const tab = market.openTab(wallet())
    const steps = await Promise.all(Array.from({ length: 50 }, () => market.reserveFor(tab, 10_000n)))
    expect(new Set(steps.map(({ reserved }) => reserved))).toEqual(new Set([500_000n]))
    const more = await Promise.all(Array.from({ length: 200 }, () => market.reserveFor(tab, 10_000n)))
    expect(new Set(more.map(({ reserved }) => reserved))).toEqual(new Set([1_000_000n]))
  })

  test('behavior: the unused part returns to the budget when the tab closes, and the rest once the tab’s settlement is final', async () => {
    const market = openMarket()
    const tab = await buyOn(market, 3)
    expect(await market.lent()).toBe(4n * price)
    await market.close()
    expect(await market.lent()).toBe(3n * price)
    await market.settle(tab)
    expect(await market.lent()).toBe(0n)
  })

  test('behavior: the loan of a failed tab stays drawn, even after its result is final', async () => {
    const market = openMarket()
    const tab = await buyOn(market, 3)
    const today = market.today()
    await market.close()
    await market.fail(tab)
    await market.expireFailed()
    const [row] = await sql`select lent from tab_budget where day = ${today} and money = 'test'`
    expect(row).toEqual({ lent: 3n * price })
  })

  test('behavior: if a tab ends too small to settle, the used part of its loan stays drawn', async () => {
    const market = openMarket({ least: 4n * price })
    const today = market.today()
    await buyOn(market, 3)
    await market.close(93_600_000)
    const [row] = await sql`select lent from tab_budget where day = ${today} and money = 'test'`
    expect(row).toEqual({ lent: 3n * price })
  })

  test('behavior: if all requests of a tab are charged nothing, its loan returns to the budget once the tab is idle', async () => {
    const market = openMarket()
    const tab = await buyOn(market, 3)
    await market.chargeEach(tab, 0n)
    expect(await market.lent()).toBe(4n * price)
    await market.close(301_000)
    expect(await market.lent()).toBe(0n)
  })

  test('behavior: buyers who are charged almost nothing can reserve the whole budget of only one day, and only until their tabs close', async () => {
    const market = openMarket({ budget: 2_000_000n })
    const days = [market.today()]
    const tabs = wallets(3).map(market.openTab)
    const ends = []
    for (const tab of tabs) {
      ends.push(await market.buyAll(tab, 100_000n))
      await market.chargeEach(tab, 1n)
    }
    // Each of the first two tabs holds the maximum that one wallet may owe, and together they hold the whole budget. So nothing can be bought on the
    // third tab.
    expect(ends).toEqual(Array(3).fill('tab_limit_exceeded'))
    expect(tabs.map(({ requests }) => requests)).toEqual([10, 10, 0])
    await market.close()
    expect(await market.lent()).toBe(2_000_000n)
    market.nextDay()
    days.push(market.today())
    await buyOn(market, 1)
    expect(await market.lent()).toBe(price)
    await market.close(3_600_000)
    const rows =
      await sql`select lent from tab_budget where day = any(${days}::date[]) and money = 'test' order by day`
    expect(rows.map(({ lent }) => lent)).toEqual([20n, price])
  })

  test('behavior: if a tab is never opened, its whole loan returns to the budget', async () => {
    const market = openMarket()
    await market.reserveFor(market.openTab(wallet()), price)
    expect(await market.lent()).toBe(price)
    const today = market.today()
    await market.release()
    const [row] = await sql`select lent from tab_budget where day = ${today} and money = 'test'`
    expect(row).toEqual({ lent: 0n })
  })

  test('behavior: the unused part of a tab’s loans from two days returns to the later day’s budget first', async () => {
    const market = openMarket()
    const tab = await buyOn(market, 1)
    const days = [market.today()]
    market.nextDay()
    days.push(market.today())
    for (let n = 0; n < 2; n++) await market.buy(tab, price)
    const lent = async () => {
      const rows = await sql<{ lent: bigint }[]>`
        select lent from tab_budget where day = any(${days}::date[]) and money = 'test' order by day`
      return rows.map((row) => row.lent)
    }
    expect(await lent()).toEqual([price, 3n * price])
    await market.close()
    expect(await lent()).toEqual([price, 2n * price])
    await market.settle(tab)
    expect(await lent()).toEqual([0n, 0n])
  })

  test('behavior: a loan counts on the UTC day of its request, from the first to the last millisecond', async () => {
    const market = openMarket()
    for (const [now, count] of [
      ['2025-03-01T23:59:59.999Z', 1],
      ['2025-03-02T00:00:00.000Z', 2],
      ['2025-03-02T23:59:59.999Z', 1],
    ] as const) {
      const reserve = reserveAt(now, networks.localhost, 10n * price)
      for (let n = 0; n < count; n++) await reserve(market.openTab(wallet()))
    }
    const rows = await sql<{ day: string; lent: bigint }[]>`
      select to_char(day, 'DD') as day, lent from tab_budget where day between '2025-02-28' and '2025-03-03' order by day`
    expect(rows.map(({ day, lent }) => [day, BigInt(lent)])).toEqual([
      ['01', price],
      ['02', 3n * price],
    ])
  })

  test('behavior: loans on test networks don’t use up the budget for real money', async () => {
    const market = openMarket({ budget: price })
    await buyOn(market, 1)
    await expect(buyOn(market, 1)).rejects.toMatchObject({ code: 'tab_limit_exceeded' })
    const reserve = reserveOn(market.today(), networks.base, price)
    expect(await reserve(market.openTab(wallet()))).toMatchObject({ reserved: price, lent: price })
    const rows = await sql`select money, lent from tab_budget where day = ${market.today()} order by money`
    expect(rows).toEqual([
      { money: 'real', lent: price },
      { money: 'test', lent: price },
    ])
  })

  test('behavior: a lowered budget lends nothing until enough loans have returned', async () => {
    const market = openMarket({ budget: 4n * price })
    const tab = await buyOn(market, 3)
    const reserve = reserveOn(market.today(), networks.localhost, 2n * price)
    await expect(reserve(market.openTab(wallet()))).rejects.toMatchObject({ code: 'tab_limit_exceeded' })
    await market.close(301_000)
    await market.settle(tab)
    expect(await reserve(market.openTab(wallet()))).toMatchObject({ lent: price })
  })

  test('error: a constraint rejects loans beyond the budget', async () => {
    const market = openMarket()
    await buyOn(market, 1)
    const exceeding = sql`update tab_budget set lent = budget + 1 where day = ${market.today()}`
    await expect(exceeding).rejects.toMatchObject({ code: '23514' })
  })
})

/** Reads the days on which the sum of the loans differs from the drawn amount, or exceeds the budget. */
const readBreaches = () => sql`
  select b.day, b.money, b.lent, b.budget, loans.amount from tab_budget b
  cross join lateral (
    select coalesce(sum(l.amount), 0) as amount from tab_loan l where l.day = b.day and l.money = b.money
  ) loans
  where loans.amount <> b.lent or b.lent > b.budget`

test.each([1, 2, 3, 4])(
  'behavior: lost and outstanding loans stay within the budget, however purchases and the ends of tabs interleave: seed %i',
  async (seed) => {
    const draw = drawFrom(`budget ${seed}`)
    const budget = 3_000_000n
    const least = 40_000n
    const market = openMarket({ budget, least })
    const own = wallets(6)
    const pick = <T>(list: readonly T[]) => list[Math.floor(draw() * list.length)] as T
    let closed: MarketTab[] = []
    let open: MarketTab[] = []
    const refused = (error: unknown) => {
      if (!(error instanceof BaseError)) throw error
    }
    // A tab's requests are numbered, so its buyer sends them in order.
    const last = new Map<MarketTab, Promise<void>>()
    const buyInOrder = (tab: MarketTab, amount: bigint) => {
      const next = (last.get(tab) ?? Promise.resolve()).then(() => market.buy(tab, amount).catch(refused))
      last.set(tab, next)
      return next
    }
    for (let round = 0; round < 12; round++) {
      // Run all of these concurrently.
      const acts = Array.from({ length: 8 }, async () => {
        const act = draw()
        if (act < 0.6) {
          const tab = draw() < 0.5 && open.length > 0 ? pick(open) : market.openTab(pick(own))
          if (!open.includes(tab)) open.push(tab)
          return buyInOrder(tab, BigInt(Math.floor(draw() * 200_000)) + 1n)
        }
        if (act < 0.7) return market.reserveFor(market.openTab(pick(own)), price).then(() => {}, refused)
        const ended = closed.splice(Math.floor(draw() * closed.length), 1)[0]
        if (ended === undefined) return
        return act < 0.9 ? market.settle(ended) : market.fail(ended)
      })
      await Promise.all(acts)
      expect(await readBreaches()).toEqual([])
      if (draw() < 0.3) market.nextDay()
      if (draw() < 0.5) {
        await Promise.all([market.close(), market.close(), market.release()])
        // Tabs with smaller charges stay open and wait for more purchases.
        closed = [...closed, ...open.filter(({ charged }) => charged >= least)]
        open = open.filter(({ charged }) => charged < least)
        expect(await readBreaches()).toEqual([])
      }
    }
    await market.close(93_600_000)
    await market.release()
    for (const tab of [...closed, ...open]) if (tab.charged >= least) await market.settle(tab)
    expect(await readBreaches()).toEqual([])
    // The amounts that are still drawn were lost, on tabs that failed or were too small to settle.
    const [drawn] = await sql<[{ drawn: bigint }]>`
    select coalesce(sum(l.amount), 0) as drawn from tab_loan l where l.payer = any(${own}::text[])`
    const [left] = await sql<[{ left: bigint }]>`
    select coalesce(sum(left_unpaid), 0) as left from payer where address = any(${own}::text[])`
    expect(drawn.drawn).toBeLessThanOrEqual(market.sums.lost + left.left)
  },
)
