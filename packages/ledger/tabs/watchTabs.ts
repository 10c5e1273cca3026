import { createChainReads, type PayerState } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { failedDependency } from '@tollkeeper/runtime/dependencies'
import { forEachRow, type OnBadRow } from '@tollkeeper/runtime/stepBack'
import { readNodeError } from '@tollkeeper/sdk/nodes/nodeErrors'
import { BaseError as ViemError } from 'viem'
import { type Exposure, readExposures } from '../acceptance/exposure.ts'
import type { Database } from '../store/database.ts'
import { type CloseReason, closeTabs, type OpenTab, readOpenTabs } from './closeTabs.ts'
import type { TabDatabase } from './tabDatabase.ts'

type TabWatchOptions = {
  /** The ledger. */
  sql: Database
  tabs: TabDatabase
  networks: readonly ServedNetwork[]
  now: () => Date
  onBadRow: OnBadRow
}

/** Number of tabs that one call to a node checks. */
const tabsAtOnce = 150
/** Number of pages after which a step ends. A node may take half a second for each, and anyone can open very many tabs. */
export const pagesAtOnce = 4
/** Minimum balance of a payer, in quarters of its debts. */
const coverQuarters = 5n

/**
 * Creates the function that closes tabs whose payer's balance is becoming too low, or whose nonce is used. Each call checks a few pages of
 * a network's open tabs, sorted by payer, and the next call continues from there.
 *
 * A page that fails is skipped until the next round, so that it doesn't block other pages.
 */
export function createTabWatch({
  sql,
  tabs,
  networks,
  now,
  onBadRow,
}: TabWatchOptions): (served: ServedNetwork) => Promise<'busy' | 'idle'> {
  const reads = new Map(networks.map((served) => [served, createChainReads(served)]))
  const cursors = new Map<ServedNetwork, Uint8Array>()

  /** @returns `idle` once all open tabs of the network were checked, otherwise `busy`. */
  return async (served) => {
    const { chainId } = served.network
    let after = cursors.get(served) ?? Buffer.alloc(0)
    let own: OpenTab[] = []
    for (let pages = 1; ; pages++) {
      const page = await readOpenTabs(tabs, { chainId, after, limit: tabsAtOnce })
      own = [...own, ...page]
      const isLast = page.length < tabsAtOnce
      // The last payer may have more tabs on the next page.
      const payer = isLast ? undefined : page.at(-1)?.payer
      const whole = own.filter((tab) => tab.payer !== payer)
      const lastWhole = whole.at(-1)
      if (isLast) cursors.delete(served)
      else if (lastWhole) cursors.set(served, lastWhole.key)
      await closeEndangered(served, whole)
      if (isLast) return 'idle'
      // The next step reads the last payer's tabs again. If all pages belong to one payer, this step must continue, because otherwise no
      // step would get past that payer.
      if (pages >= pagesAtOnce && lastWhole) return 'busy'
      own = own.slice(whole.length)
      after = (page.at(-1) as OpenTab).key
    }
  }

  /** @param open for each payer of these tabs, all of its open tabs. */
  async function closeEndangered(served: ServedNetwork, open: readonly OpenTab[]): Promise<void> {
    const close = async (own: readonly OpenTab[]) => closeTabs(tabs, await findEndangered(served, own), now())
    try {
      await close(open)
    } catch (error) {
      if (failedDependency(error) !== undefined || isNodeError(error)) throw error
      // If something about one payer can't be read, the others are still checked.
      await forEachRow([...Map.groupBy(open, ({ payer }) => payer).values()], close, (cause, [tab]) =>
        onBadRow('watch', cause, { payer: tab?.payer }),
      )
    }
  }

  /** @param open for each payer of these tabs, all of its open tabs. */
  async function findEndangered(
    served: ServedNetwork,
    open: readonly OpenTab[],
  ): Promise<(OpenTab & { reason: CloseReason })[]> {
    if (open.length === 0) return []
    const states = await reads
      .get(served)
      ?.readTogether(open.map(({ payer, nonce }) => ({ payer, nonces: [nonce] as const })))
    const [state] = states ?? []
    if (states === undefined || state === undefined) return []
    const byPayer = Map.groupBy(open, ({ payer }) => payer)
    const exposures = await readExposures(sql, served, {
      payers: [...byPayer.keys()],
      block: state.blockNumber,
      withHistory: false,
      now: Math.floor(now().getTime() / 1000),
    })
    return open.flatMap((tab, index) => {
      const { isUsed, hasCode, balance } = states[index] as PayerState
      const { unsettled, reserved } = exposures.get(tab.payer) as Exposure
      // Count only what is charged on open tabs, not all credit that is reserved for them.
      const charged = (byPayer.get(tab.payer) ?? []).reduce((sum, one) => sum + one.charged, 0n)
      const owed = unsettled - reserved + charged
      const reason: CloseReason | undefined = isUsed[0]
        ? 'authorization_used'
        : hasCode && !tab.hasCode
          ? 'code'
          : balance * 4n < owed * coverQuarters
            ? 'balance'
            : undefined
      return reason ? [{ ...tab, reason }] : []
    })
  }
}

/**
 * Returns whether the node itself failed, so that separate calls for each payer would fail as well. A call that failed because of one payer doesn't
 * count.
 */
function isNodeError(error: unknown): boolean {
  return error instanceof ViemError && readNodeError(error).kind !== 'execution'
}
