import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createStepBack, forEachRow, type OnBadRow, takeParts } from '@tollkeeper/runtime/stepBack'
import type { Address } from 'viem'
import type { Database } from '../store/database.ts'
import { type ClosingRules, closeDueTabs } from './closeTabs.ts'
import { giveCredits } from './giveCredits.ts'
import { releaseUnopened } from './releaseUnopened.ts'
import { raiseMark } from './storeMark.ts'
import { type TabDatabase, toHex } from './tabDatabase.ts'
import { takeClosedTabs } from './takeClosedTabs.ts'
import { createTabWatch } from './watchTabs.ts'

export type TabUpkeepOptions = {
  /** The ledger. */
  sql: Database
  tabs: TabDatabase
  networks: readonly ServedNetwork[]
  rules: Omit<ClosingRules, 'least'>
  /** Minimum prices by network in USDC base units, if above the network's own minimum. */
  minimumPrices: Partial<Record<string, bigint>>
  now: () => Date
  onBadRow: OnBadRow
  /**
   * Maximum time in ms that each of the three parts of a step may take: closing, importing and crediting tabs. The next step does the rest. The
   * sum of the three must be shorter than the time after which a loop counts as stalled. Default 4 s.
   */
  partMs?: number
  /** For crash tests; no effect otherwise. */
  checkpoint?: (name: 'after-tabs-closed' | 'after-tab-taken') => void | Promise<void>
}

/**
 * Limits at which tabs are closed without their buyers: idle for 5 minutes, open for 59 minutes, an hour before expiry, or 50,000 requests.
 * Within earned credit, an operator may allow tabs to be idle and open for several times as long.
 *
 * In the queue, a tab counts as waiting since its first purchase, so a tab of 59 minutes is due immediately, and its transaction is sent
 * before the first purchase is an hour old (conformance 8.1-8).
 */
export const closingTimes = {
  idleMs: 300_000,
  ageMs: 3_540_000,
  earnedTimes: 1,
  expiryLeadMs: 3_600_000,
  requests: 50_000,
}

/** Age in ms at which credit that was reserved for a tab is released if the tab was never opened. */
const unopenedMs = 600_000
const takenAtOnce = 100

/**
 * Creates the upkeep of tabs: it closes tabs that their buyers don't close, and imports closed tabs into the ledger. The keeper and the api
 * may both run it at the same time.
 */
export function createTabUpkeep({
  sql,
  tabs,
  networks,
  now,
  onBadRow,
  partMs = 4_000,
  checkpoint = () => {},
  ...options
}: TabUpkeepOptions) {
  const least = new Map(
    networks.map(({ network }) => {
      const configured = options.minimumPrices[network.name] ?? 0n
      return [network.chainId, configured > network.minimumPrice ? configured : network.minimumPrice]
    }),
  )
  const separators = new Map(
    networks.map(({ network, domainSeparator }) => [network.chainId, domainSeparator]),
  )
  /** Position at which the next step continues with credits; null for the start. */
  let uncredited: Uint8Array | null = null
  const unforgotten = createStepBack<string>(() => now().getTime())

  return {
    /**
     * Closes due tabs, imports closed tabs, and credits the buyers of settled tabs. If one of these parts fails, the others
     * still run.
     *
     * @returns `busy` if it stopped because of its time limit, so that the next step can follow immediately.
     */
    async closeAndTake(): Promise<'busy' | 'idle'> {
      const rules = { ...options.rules, least }
      const taking = { sql, tabs, least, separators, limit: takenAtOnce, onBadRow, checkpoint }
      let isBusy = false
      await takeParts({
        mark: () => raiseMark({ sql, tabs }),
        close: async () => {
          if (await closeDueTabs(tabs, rules, now(), createTimer(partMs))) isBusy = true
        },
        credit: async () => {
          const isOver = createTimer(partMs)
          uncredited = await giveCredits({ sql, tabs, onBadRow }, { after: uncredited, isOver })
          if (uncredited !== null) isBusy = true
        },
        take: async () => {
          await checkpoint('after-tabs-closed')
          const isOver = createTimer(partMs)
          while ((await takeClosedTabs({ ...taking, now: now() })) === takenAtOnce) {
            if (!isOver()) continue
            isBusy = true
            return
          }
        },
      })
      return isBusy ? 'busy' : 'idle'
    },
    /** Deletes tabs that were imported before a time, with their requests. @returns whether there are more. */
    async forget(before: Date): Promise<boolean> {
      const old = await tabs.all<{ payer: Uint8Array; id: Uint8Array; key: string }[]>`
        select payer, id, encode(payer || id, 'hex') as key from tabs.tab
        where taken_at < ${before} and not awaits_end
          and encode(payer || id, 'hex') <> all(${unforgotten.waiting()}::text[])
        order by taken_at limit ${takenAtOnce}`
      await forEachRow(old, deleteTab, (error, { payer, key }) => {
        unforgotten.failed(key)
        onBadRow('forget', error, { payer: toHex(payer) })
      })
      return old.length === takenAtOnce
    },
    /**
     * Releases credit, and the claim on the tab's id, of tabs that were never opened.
     *
     * @throws {TabStoreBehind} without releasing anything, because a tab that isn't stored may then have been lost.
     */
    async releaseUnopened(): Promise<void> {
      await raiseMark({ sql, tabs })
      await releaseUnopened(sql, tabs, new Date(now().getTime() - unopenedMs))
    },
    watch: createTabWatch({ sql, tabs, networks, now, onBadRow }),
  }

  async function deleteTab({ payer, id }: { payer: Uint8Array; id: Uint8Array }): Promise<void> {
    const own = await tabs.of(toHex(payer) as Address)
    await own.begin(async (tx) => {
      for (const table of ['request', 'item', 'line'])
        await tx`delete from ${tx(`tabs.${table}`)} where payer = ${payer} and tab_id = ${id}`
      await tx`delete from tabs.tab where payer = ${payer} and id = ${id}`
    })
  }
}

/** @returns a function that returns whether this many milliseconds have passed. */
function createTimer(ms: number): () => boolean {
  const endsAt = performance.now() + ms
  return () => performance.now() >= endsAt
}
