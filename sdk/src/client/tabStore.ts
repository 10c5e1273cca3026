import type { Address, Hex } from 'viem'
import type { NetworkName } from '../protocol/networks.ts'

/** An open tab as JSON, as a {@link TabStore} keeps it. It contains no keys and no signatures. */
export type SavedTab = {
  /** `tab_` and 32 hex digits. */
  id: string
  /** The gateway's public URL. */
  issuer: string
  network: NetworkName
  /** USDC's address. */
  asset: Address
  /** Address of the TabSettlement contract. */
  contract: Address
  payer: Address
  platform: Address
  /** The reward for settling the tab, in basis points of the platform's part. */
  rewardShare: number
  /** Unix seconds. */
  expiry: number
  /** The number of the newest request. */
  sequence: number
  /** Number of lines that the gateway has confirmed. */
  known: number
  /**
   * The amounts of each line in USDC base units, decimal. `credit` is the credit from earlier tabs with which the line started, `bought` is the
   * amount bought on the line minus `credit`, and `signed` is the line's amount in the newest state.
   */
  lines: { split: Hex; bought: string; credit: string; signed: string }[]
}

/**
 * Keeps open tabs beyond the end of a process. The client saves a state before it sends it. After a restart, the client therefore continues the same
 * tab, and counts requests that got no response as bought.
 *
 * Only one client at a time may use a store. If two clients continued one tab, they would sign two states with the same number, and the gateway
 * accepts only one of them.
 */
export type TabStore = {
  /** Returns all tabs that were saved and not removed. The client calls it once, before the first payment. */
  load: () => Promise<readonly SavedTab[]>
  /** Saves a tab, and replaces an earlier one with the same `id`. */
  save: (tab: SavedTab) => Promise<void>
  remove: (id: string) => Promise<void>
}

/** A store in memory, whose tabs last only as long as the client. The gateway closes them after minutes without a request. */
export const noTabStore: TabStore = {
  load: async () => [],
  save: async () => {},
  remove: async () => {},
}
