import type { Address, Hex } from 'viem'
import type { NetworkName } from '../protocol/networks.ts'

/** An open tab as a {@link TabStore} keeps it: JSON, with no key and no signature in it. */
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
   * What was bought on each line, less the credit of earlier tabs that it began with, and what the newest state signs for it: USDC base
   * units, decimal.
   */
  lines: { split: Hex; bought: string; credit: string; signed: string }[]
}

/**
 * Keeps open tabs past the end of a process. A state is saved before it is sent, so whoever loads it goes on with the same tab, and
 * counts what was sent without an answer as bought.
 *
 * One client at a time uses a store: two that go on with one tab would sign two states of one number, of which the gateway takes one.
 */
export type TabStore = {
  /** All that were saved and not removed. Asked once, before the first payment. */
  load: () => Promise<readonly SavedTab[]>
  /** Keeps a tab in the place of what was kept under its `id`. */
  save: (tab: SavedTab) => Promise<void>
  remove: (id: string) => Promise<void>
}

/** Tabs that last as long as the client: left alone, each closes at its gateway after minutes without a request. */
export const noTabStore: TabStore = {
  load: async () => [],
  save: async () => {},
  remove: async () => {},
}
