import type { PayerState } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createPayers } from '@tollkeeper/ledger/acceptance/payers'
import { endPayments } from '@tollkeeper/ledger/queue/stages'
import type { Database } from '@tollkeeper/ledger/store/database'
import { closeDueTabs } from '@tollkeeper/ledger/tabs/closeTabs'
import { createReserveForTab } from '@tollkeeper/ledger/tabs/reserveForTab'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { createTabStore, type Reservation } from '@tollkeeper/ledger/tabs/tabStore'
import { takeClosedTabs } from '@tollkeeper/ledger/tabs/takeClosedTabs'
import { closingTimes, createTabUpkeep } from '@tollkeeper/ledger/tabs/upkeep'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { platformPart } from '@tollkeeper/sdk/protocol/tab'
import type { Address, Hex } from 'viem'
import { noBadRows } from './badRows.ts'
import {
  type SeedProvider,
  seedChainId,
  seedPayment,
  seedPlatform,
  seedSettlement,
  seedToken,
} from './seedPayments.ts'
import { seedTabSettlement, settleTab } from './seedTabs.ts'
import { randomHex } from './usdc.ts'

/** The platform's share, a tenth, as in the gateway. */
const basisPoints = 1_000n
/** The share of the fee that rewards the settling keeper. */
const rewardShare = 1_000n
const dayMs = 86_400_000
/** Price of a purchase in USDC base units. */
export const price = 250_000n

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

export type MarketTab = {
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

export type Market = ReturnType<typeof openMarket>

export type MarketOptions = {
  sql: Database
  provider: SeedProvider
  /** Maximum that all payers together may borrow in a UTC day beyond their earned credit, in USDC base units. */
  budget?: bigint
  /** Maximum that each payer may owe beyond its earned credit, in USDC base units. */
  base?: bigint
  /** The minimum amount with which a tab of one line settles. */
  least?: bigint
}

/**
 * Opens a gateway, and counts what attackers gain. The gateway's clock starts on a day that no other market uses. Credit, tab store
 * and ledger are real. Only the chain is simulated: each wallet has all the USDC that it needs, until a tab fails.
 */
export function openMarket({
  sql,
  provider,
  budget = 5_000_000n,
  base = 1_000_000n,
  least = 5_000n,
}: MarketOptions) {
  const tabs = onOnePostgres(sql)
  const store = createTabStore(tabs)
  const split = encodeSplit({ provider: provider.wallet, providerShare: 9n, platformShare: 1n })
  firstDay += 100
  // The clock starts at noon, whatever the real time is. So the day ends only when the test advances the clock.
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
  /**
   * Sums in USDC base units. `lost`: served and never paid. `settled`: without fees. `fees`: kept by the platform. `rewards`:
   * paid by the platform to those who settled.
   */
  const sums = { lost: 0n, settled: 0n, fees: 0n, rewards: 0n }
  const failed: MarketTab[] = []

  function reserveFor(tab: MarketTab, price: bigint): Promise<Reservation> {
    days.add(Math.floor(now() / dayMs))
    return reserve(tab, price, served, payers)
  }

  async function buy(tab: MarketTab, price: bigint): Promise<void> {
    const { payer, tabId, paymentId, nonce, expiresAt } = tab
    const isNew = tab.requests === 0
    const ask = () => reserveFor(tab, price)
    const accept = (reservation: Reservation | null) =>
      store.accept({
        payer,
        tabId,
        paymentId,
        nonce,
        expiresAt,
        reservation,
        chainId: seedChainId,
        token: seedToken,
        contract: seedTabSettlement,
        platform: seedPlatform,
        rewardShare: Number(rewardShare),
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
    if (verdict === 'closed') throw new BaseError('tab_closed')
    if (verdict !== 'accepted') throw new Error(verdict)
    tab.requests += 1
    tab.charged += price
  }

  /** Changes the charge of each request on the tab to `amount`, as the tab's provider would; 0 voids the requests. */
  async function chargeEach({ payer, tabId, ...tab }: MarketTab, amount: bigint): Promise<void> {
    for (let sequence = 1; sequence <= tab.requests; sequence++) {
      const charged = await store.charge({ payer, tabId, sequence }, amount)
      if (charged !== 'charged') throw new Error(charged)
    }
  }

  const end = (tab: MarketTab, kind: 'settled' | 'failed', code: string | null) =>
    endPayments(sql, [{ paymentId: tab.paymentId, kind, code, isFinal: kind === 'settled' }], new Date(now()))

  return {
    sums,
    buy,
    chargeEach,
    /** Reserves a step of credit without buying anything. */
    reserveFor,
    /** Releases the reservations of tabs that were never opened. */
    async release(): Promise<void> {
      ahead += 660_000
      const rules = { ...closingTimes, amount: 10_000_000n }
      const options = {
        sql,
        tabs,
        networks: [],
        rules,
        minimumPrices: {},
        onBadRow: noBadRows,
        now: () => new Date(now()),
      }
      await createTabUpkeep(options).releaseUnopened()
    },
    openTab(payer: Address): MarketTab {
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
    /** Buys until a purchase is refused. @returns the reason. */
    async buyAll(tab: MarketTab, each = price): Promise<string> {
      for (;;) {
        // Errors of Postgres have codes as well, but they aren't refusals.
        const code = await buy(tab, each).catch((error: unknown) => {
          if (error instanceof BaseError) return error.code
          throw error
        })
        if (code !== undefined) return code
      }
    },
    /** Closes all tabs and adds them to the ledger, as the gateway does. */
    async close(afterMs = 600_000): Promise<void> {
      ahead += afterMs
      const leasts = new Map([[seedChainId, least]])
      const rules = { ...closingTimes, amount: 10_000_000n, least: leasts }
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
    async settle(tab: MarketTab): Promise<void> {
      const { charged: amount, nonce, ...own } = tab
      const lines = [{ payee: provider.wallet, amount }]
      await settleTab(sql, { ...own, nonces: [nonce, nonce], token: seedToken, lines })
      await end(tab, 'settled', null)
      const fee = platformPart(split, amount)
      const reward = (fee * rewardShare + 9_999n) / 10_000n
      sums.settled += amount - fee
      sums.fees += fee - reward
      sums.rewards += reward
    },
    /** Fails the tab because its wallet was empty when it settled. */
    async fail(tab: MarketTab): Promise<void> {
      await end(tab, 'failed', 'insufficient_balance')
      sums.lost += tab.charged
      failed.push(tab)
    },
    /** Lets the failed tabs expire, so that they can no longer settle. */
    async expireFailed(): Promise<void> {
      ahead += 93_700_000
      for (const { paymentId } of failed.splice(0))
        await endPayments(sql, [{ paymentId, kind: 'failed', code: null, isFinal: true }], new Date(now()))
    },
    /** Makes a payment without a tab. */
    async pay(payer: Address, providerAmount: bigint, feeAmount = providerAmount / 9n): Promise<void> {
      const payment = await seedPayment(sql, { provider, payer, providerAmount, feeAmount })
      await seedSettlement(sql, payment)
      await endPayments(sql, [{ ...payment, kind: 'settled', code: null, isFinal: true }], new Date(now()))
      sums.settled += providerAmount
      sums.fees += feeAmount
    },
    today: () => new Date(now()).toISOString().slice(0, 10),
    /** Returns how much of today's budget is lent, in USDC base units. */
    async lent(): Promise<bigint> {
      const day = new Date(now()).toISOString().slice(0, 10)
      const [row] = await sql<{ lent: bigint }[]>`
        select lent from tab_budget where day = ${day} and money = 'test'`
      return row?.lent ?? 0n
    },
    nextDay() {
      ahead += dayMs
    },
    /** Returns the number of days on which something was bought. */
    days: () => BigInt(days.size),
    /**
     * Returns the maximum loss so far: each day's budget, plus the smaller of the fees and a tenth of what settled.
     */
    bound() {
      const share = sums.settled / 10n
      return BigInt(days.size) * budget + (share < sums.fees ? share : sums.fees)
    },
  }
}

export const wallets = (count: number): Address[] => Array.from({ length: count }, () => randomHex(20))
