import type { PayerState } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import type { Address, Hex } from 'viem'
import { expect, test } from 'vitest'
import { noBadRows } from '../../../test/support/badRows.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { drawFrom } from '../../../test/support/draw.ts'
import {
  seedChainId,
  seedPayment,
  seedPlatform,
  seedProvider,
  seedSettlement,
  seedToken,
} from '../../../test/support/seedPayments.ts'
import { seedTabSettlement, settleTab } from '../../../test/support/seedTabs.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { badDebt } from '../acceptance/badDebt.ts'
import { createPayers } from '../acceptance/payers.ts'
import { endPayments } from '../queue/stages.ts'
import { closeDueTabs } from './closeTabs.ts'
import { createReserveForTab } from './reserveForTab.ts'
import { onOnePostgres } from './tabDatabase.ts'
import { createTabStore } from './tabStore.ts'
import { takeClosedTabs } from './takeClosedTabs.ts'
import { closingTimes } from './upkeep.ts'

// What liars with any number of wallets can win on tabs, with the real credit, tab store and ledger. Only the chain is played:
// each wallet has all the USDC that it needs, until it doesn't.

const sql = await useDatabase()
const tabs = onOnePostgres(sql)
const store = createTabStore(tabs)
const provider = await seedProvider(sql)
const split = encodeSplit({ provider: provider.wallet, providerShare: 9n, platformShare: 1n })

const base = 1_000_000n
/** A tenth, as the gateway has it. */
const basisPoints = 1_000n
const dayMs = 86_400_000
const price = 250_000n

const rich: PayerState = {
  blockNumber: 100n,
  balance: 1_000_000_000n,
  hasCode: false,
  isBlacklisted: false,
  isPaused: false,
  isUsed: [false, false],
}
const served = {
  network: networks.localhost,
  token: seedToken,
  client: { getBlockNumber: async () => 100n },
} as unknown as ServedNetwork

type Tab = {
  payer: Address
  tabId: string
  paymentId: string
  nonce: Hex
  expiresAt: number
  requests: number
  /** USDC base units. */
  charged: bigint
}

let firstDay = 0

/** A gateway with its own clock, which starts on a day of its own, and what was won from it. */
function openMarket({ budget = 5_000_000n, least = 5_000n } = {}) {
  firstDay += 100
  // It opens at noon: whatever the time is now, no day ends before it is told to.
  let ahead = firstDay * dayMs + dayMs / 2 - (Date.now() % dayMs)
  const now = () => Date.now() + ahead
  const payers = createPayers(
    served,
    { read: async () => rich },
    {
      database: sql,
      checkBalance: true,
      caps: { payer: null, newPayer: null },
      balanceTtlMs: 30_000,
      tabCredit: { base, basisPoints },
      now,
    },
  )
  const reserve = createReserveForTab(sql, { budget, now })
  const days = new Set<number>()
  /** USDC base units: `lost` was served and never paid; `settled` is without fees. */
  const sums = { lost: 0n, settled: 0n, fees: 0n }

  async function buy(tab: Tab, price: bigint): Promise<void> {
    const { payer, tabId, paymentId, nonce, expiresAt } = tab
    const isNew = tab.requests === 0
    const ask = () => {
      days.add(Math.floor(now() / dayMs))
      return reserve(tab, price, served, payers)
    }
    const accept = (reserved: bigint | null) =>
      store.accept({
        payer,
        tabId,
        paymentId,
        nonce,
        expiresAt,
        reserved,
        chainId: seedChainId,
        token: seedToken,
        contract: seedTabSettlement,
        platform: seedPlatform,
        rewardShare: 0,
        hasCode: false,
        sequence: tab.requests + 1,
        amounts: [tab.charged + price],
        position: 0,
        price,
        signature: randomHex(65),
        requestHash: randomHex(16),
        providerId: provider.providerId,
        endpointId: provider.endpointIds[0] as string,
        known: isNew ? 0 : 1,
        splits: isNew ? [split] : [],
      })
    let { verdict } = await accept(isNew ? await ask() : null)
    if (verdict === 'unreserved') verdict = (await accept(await ask())).verdict
    if (verdict === 'unreserved') throw new BaseError('tab_limit_exceeded')
    if (verdict !== 'accepted') throw new Error(verdict)
    tab.requests += 1
    tab.charged += price
  }

  const end = (tab: Tab, kind: 'settled' | 'failed', code: string | null) =>
    endPayments(sql, [{ paymentId: tab.paymentId, kind, code, isFinal: kind === 'settled' }], new Date(now()))

  return {
    sums,
    buy,
    openTab(payer: Address): Tab {
      const id = randomHex(16).slice(2)
      const expiresAt = Math.floor(now() / 1000) + 93_600
      return {
        payer,
        tabId: `tab_${id}`,
        paymentId: `pay_${id}`,
        nonce: randomHex(32),
        expiresAt,
        requests: 0,
        charged: 0n,
      }
    },
    /** Buys until a purchase is refused. @returns why. */
    async buyAll(tab: Tab, each = price): Promise<string> {
      for (;;) {
        // Errors of Postgres have codes as well, but they are no refusals.
        const code = await buy(tab, each).catch((error: unknown) => {
          if (error instanceof BaseError) return error.code
          throw error
        })
        if (code !== undefined) return code
      }
    },
    /** The gateway closes all tabs, and takes them in. */
    async close(afterMs = 600_000): Promise<void> {
      ahead += afterMs
      const leasts = new Map([[seedChainId, least]])
      const rules = { ...closingTimes, amount: 10_000_000n, credit: base, least: leasts }
      await closeDueTabs(tabs, rules, new Date(now()))
      await takeClosedTabs({
        sql,
        tabs,
        least: leasts,
        separators: new Map(),
        limit: 1_000,
        now: new Date(now()),
        onBadRow: noBadRows,
        checkpoint() {},
      })
    },
    async settle(tab: Tab): Promise<void> {
      const { charged: amount, nonce, ...own } = tab
      const lines = [{ payee: provider.wallet, amount }]
      await settleTab(sql, { ...own, nonces: [nonce, nonce], token: seedToken, lines })
      await end(tab, 'settled', null)
      sums.settled += (amount * 9n) / 10n
      sums.fees += amount / 10n
    },
    /** The tab fails because its wallet was empty when it came to settle. */
    async fail(tab: Tab): Promise<void> {
      await end(tab, 'failed', 'insufficient_balance')
      sums.lost += tab.charged
    },
    /** Makes a payment without a tab. */
    async pay(payer: Address, providerAmount: bigint, feeAmount = providerAmount / 9n): Promise<void> {
      const payment = await seedPayment(sql, { provider, payer, providerAmount, feeAmount })
      await seedSettlement(sql, payment)
      await endPayments(sql, [{ ...payment, kind: 'settled', code: null, isFinal: true }], new Date(now()))
      sums.settled += providerAmount
      sums.fees += feeAmount
    },
    /** How much of today's budget is lent, USDC base units. */
    async lent(): Promise<bigint> {
      const day = new Date(now()).toISOString().slice(0, 10)
      const [row] = await sql<{ drawn: bigint }[]>`
        select drawn from gas_draw where drawer = 'tab_credit' and day = ${day}`
      return row?.drawn ?? 0n
    },
    nextDay() {
      ahead += dayMs
    },
    /** The most that may be lost by now: each day's budget, and a tenth of what settled, or its fees if they are less. */
    bound() {
      const share = sums.settled / 10n
      return BigInt(days.size) * budget + (share < sums.fees ? share : sums.fees)
    },
  }
}

type Market = ReturnType<typeof openMarket>

const wallets = (count: number): Address[] => Array.from({ length: count }, () => randomHex(20))

/** Each wallet buys all it may on a tab of its own, all at once, and never pays. @returns why they were refused. */
async function takeAll(market: Market, payers: readonly Address[]): Promise<string[]> {
  const own = payers.map((payer) => market.openTab(payer))
  const refusals = await Promise.all(own.map((tab) => market.buyAll(tab)))
  await market.close()
  for (const tab of own) if (tab.requests > 0) await market.fail(tab)
  return refusals
}

/** Buys all it may, and pays. */
async function buyHonestly(market: Market, payer: Address): Promise<void> {
  const tab = market.openTab(payer)
  await market.buyAll(tab)
  await market.close()
  await market.settle(tab)
}

test('behavior: wallets that never paid win a budget a day, however many they are; whoever has paid is served beside them', async () => {
  const market = openMarket()
  const [established, newcomer] = wallets(2) as [Address, Address]
  await market.pay(established, 20_000_000n)
  for (let day = 0; day < 2; day++) {
    const refusals = await takeAll(market, wallets(12))
    expect(new Set(refusals)).toEqual(new Set(['tab_limit_exceeded']))
    // On the second day, the newcomer was lent one step.
    expect(market.sums.lost).toBe(day === 0 ? 5_000_000n : 9_000_000n)
    const tab = market.openTab(newcomer)
    await expect(market.buy(tab, price)).rejects.toMatchObject({ code: 'tab_limit_exceeded' })
    await market.buy(market.openTab(established), price)
    await market.close()
    market.nextDay()
    await market.buy(market.openTab(newcomer), price)
    await market.close()
  }
})

test('behavior: who owes buys nothing more', async () => {
  const market = openMarket()
  const [payer] = wallets(1) as [Address]
  await takeAll(market, [payer])
  const [row] = await sql<[{ owed: bigint }]>`
    select sum(value) as owed from ${badDebt(sql)} debt where payer = ${payer}`
  expect(row.owed).toBe(market.sums.lost)
  expect(await market.buyAll(market.openTab(payer))).toBe('payer_in_debt')
})

test('behavior: who settles for a while wins a tenth of that, and what he was lent of the budget', async () => {
  const market = openMarket({ budget: 1_500_000n })
  const growers = wallets(3)
  for (const payer of growers) await market.pay(payer, 10_000_000n)
  for (let round = 0; round < 3; round++) for (const payer of growers) await buyHonestly(market, payer)
  await takeAll(market, growers)
  expect(market.sums.lost).toBeGreaterThan(market.sums.settled / 12n)
  expect(market.sums.lost).toBeLessThanOrEqual(market.bound())
})

test("behavior: a payer's settlements since its limit was cached count before the budget lends", async () => {
  const market = openMarket()
  const [payer] = wallets(1) as [Address]
  await market.pay(payer, 10_000_000n)
  const tab = market.openTab(payer)
  // They reserve one step, which is all the credit that the payer has earned so far.
  for (let n = 0; n < 4; n++) await market.buy(tab, price)
  // A limit is cached for five minutes.
  await market.close(1_000)
  await market.settle(tab)
  await market.buy(market.openTab(payer), price)
  expect(await market.lent()).toBe(0n)
  await market.close()
})

test('behavior: a least payment first opens no credit beside the budget', async () => {
  const market = openMarket({ budget: 1_500_000n })
  const farm = wallets(8)
  for (const payer of farm) await market.pay(payer, 4_500n)
  await takeAll(market, farm)
  expect(market.sums.lost).toBeLessThanOrEqual(market.bound())
})

test('behavior: what moves between wallets of one owner, for hardly a fee, earns nothing beyond that', async () => {
  const market = openMarket({ budget: 1_500_000n })
  const farm = wallets(4)
  for (const payer of farm) await market.pay(payer, 100_000_000n, 100_000n)
  await takeAll(market, farm)
  expect(market.sums.lost).toBeLessThanOrEqual(market.bound())
})

test('behavior: what is left too small to settle, tab by tab and day by day, counts as taken', async () => {
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

test.each([1, 2, 3])('behavior: whatever wallets mix of it: seed %i', async (seed) => {
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
})
