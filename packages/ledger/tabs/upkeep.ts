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
  /** USDC base units by network, if above the network's own minimum. */
  minimumPrices: Partial<Record<string, bigint>>
  now: () => Date
  onBadRow: OnBadRow
  /**
   * Milliseconds after which closing, crediting and taking each leave the rest to the next step. All three together are shorter than the
   * time after which a loop counts as standing still. Default 4 s.
   */
  partMs?: number
  /** For crash tests; does nothing otherwise. */
  checkpoint?: (name: 'after-tabs-closed' | 'after-tab-taken') => void | Promise<void>
}

/**
 * When tabs are closed without their buyers: idle for 5 minutes, open for 59 minutes, an hour before expiry, with 50,000 requests. An
 * operator may let them be idle and open for several times as long within earned credit.
 *
 * In the queue a tab has waited since its first purchase, so a tab of 59 minutes is due at once, and its transaction is sent before the
 * first purchase is an hour old (conformance 8.1-8).
 */
export const closingTimes = {
  idleMs: 300_000,
  ageMs: 3_540_000,
  earnedTimes: 1,
  expiryLeadMs: 3_600_000,
  requests: 50_000,
}

/** How old a step of credit is released, if its tab was never opened. */
const unopenedMs = 600_000
const takenAtOnce = 100

/**
 * Does for tabs what their buyers don't do: closes them, and takes them into the ledger. Keeper and api do the same, and both may at
 * the same time.
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
  /** Where the next step goes on with credits; null: at the start. */
  let uncredited: Uint8Array | null = null
  const unforgotten = createStepBack<string>(() => now().getTime())

  return {
    /**
     * Closes the tabs that are due, takes closed ones in, and credits the buyers of those that have settled. If one of these fails, the
     * others are done anyway.
     *
     * @returns `busy` if it stopped because of the time, so that the next step can follow at once.
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
    /** Deletes tabs that were taken in before then, with their requests. @returns whether there are more. */
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
     * @throws {TabStoreBehind} and releases nothing, because a tab that isn't stored may then be one that was lost.
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

/** @returns a function that tells whether so many milliseconds have passed. */
function createTimer(ms: number): () => boolean {
  const endsAt = performance.now() + ms
  return () => performance.now() >= endsAt
}
