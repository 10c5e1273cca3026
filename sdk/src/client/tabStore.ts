import type { Address, Hex } from 'viem'
import type { NetworkName } from '../protocol/networks.ts'

/** An open tab as a {@link TabStore} keeps it: JSON, without keys and signatures. */
export type SavedTab = {
  /** `tab_` and 32 hex digits. */
  id: string
  /** The gateway's public URL. */
  issuer: string
  network: NetworkName
  /** USDC. */
  asset: Address
  /** The TabSettlement contract. */
  contract: Address
  payer: Address
  platform: Address
  /** Basis points of the platform's part. */
  rewardShare: number
  /** Unix seconds. */
  expiry: number
  /** The number of the newest request. */
  sequence: number
  /** How many lines the gateway knows. */
  known: number
  /**
   * For each line: what was bought on it, less the credit of earlier tabs that it began with; that credit; and the newest state's
   * amount. USDC base units, decimal.
   */
  lines: { split: Hex; bought: string; credit: string; signed: string }[]
}

/**
 * Keeps open tabs past the end of a process. A state is saved before it is sent, so whoever loads it goes on with the same tab, and
 * counts requests that were sent without an answer as bought.
 *
 * One client at a time uses a store: two that go on with one tab would sign two states of one number, and the gateway takes only one.
 */
export type TabStore = {
  /** All tabs that were saved and not removed. Called once, before the first payment. */
  load: () => Promise<readonly SavedTab[]>
  /** Saves a tab, and replaces an earlier one with its `id`. */
  save: (tab: SavedTab) => Promise<void>
  remove: (id: string) => Promise<void>
}

/** For tabs that last as long as the client: their gateways close them after minutes without a request. */
export const noTabStore: TabStore = {
  load: async () => [],
  save: async () => {},
  remove: async () => {},
}
