import type { TriggerSettings } from '#ledger/queue/triggers'
import type { NetworkName } from '#protocol/networks'
import type { FeeSchedule } from '#protocol/tier'

/** What every keeper is told of sending transactions. */
export type SettlerSettings = {
  /** A stored transaction is sent again after this long. */
  rebroadcastAfterMs: number
  /** One that isn't mined after this long is replaced by a dearer one. */
  replaceAfterMs: number
  /** Wei; null: what the node suggests. */
  priorityFeePerGas: bigint | null
  /** Wei; no transaction offers more. */
  maxFeePerGas: bigint
}

export type KeeperSettings = Omit<SettlerSettings, 'maxFeePerGas'> & {
  triggers: TriggerSettings
  /** Pause between two looks at the queue, the chain and the index. */
  pollMs: number
  leaseMs: number
  /** How far the index may be behind the chain. */
  maxIndexLagBlocks: bigint
  /** Null in one of these three: the network's own value (chain/gasLimits.ts). */
  maxFeePerGas: bigint | null
  gasPerFee?: bigint | null
  dailyBudget?: bigint | null
  /** USDC base units that gas may cost a UTC day for all together who pay no fee and have no grant. */
  gasAllowance: bigint
  /** USDC base units an ETH (POL on Polygon), where there is no feed or it is stale. */
  gasTokenUsd: bigint
}

export type FacilitatorSettings = {
  /** Whether requests without an API key are taken. */
  isOpen: boolean
  /** How long a verified payment is kept for its seller. */
  reserveMs: number
  /** After how long POST /settle answers settlement_pending. */
  timeoutMs: number
  /** After how long it answers where nothing was sent, or in version 1, which knows no such answer. */
  holdMs: number
  /** What a provider owes for a payment, USDC base units. */
  fee: bigint
  /** How many payments of one API key, or without one of one wallet that is paid, are reserved or wait at a time. */
  maxOpen: number
}

/** When open tabs are closed. USDC base units. */
export type TabSettings = {
  /** What a payer may owe who never settled anything. */
  credit: bigint
  /** By network, where what settles alone is to be above the network's own least price. */
  minimumPrices: Partial<Record<NetworkName, bigint>>
}

export const defaultTabSettings: TabSettings = { credit: 1_000_000n, minimumPrices: {} }

export type DiscoverySettings = {
  /** The gateway's: what a price is paid to follows from it. */
  feeSchedule: FeeSchedule
  /** The gateway's as well. */
  offerTimeoutSeconds: number
}

export const defaultDiscovery: DiscoverySettings = { feeSchedule: 'tiered', offerTimeoutSeconds: 3_600 }

export type SubmitLimits = {
  /** Submissions a minute of one address, and of one provider whatever its address. */
  perCaller: number
}

/** Most HTTP clients and proxies wait for thirty seconds. */
export const defaultSubmitTimeoutMs = 25_000

export const defaultSubmitLimits: SubmitLimits = { perCaller: 60 }
