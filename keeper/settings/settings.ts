import type { TriggerSettings } from '#ledger/queue/triggers'
import type { NetworkName } from '#protocol/networks'
import type { FeeSchedule } from '#protocol/tier'

/** Every keeper's settings for sending transactions. */
export type SettlerSettings = {
  /** How long until a stored transaction is sent again. */
  rebroadcastAfterMs: number
  /** How long until an unmined one is replaced by a dearer one. */
  replaceAfterMs: number
  /** Wei; null: the node's suggestion. */
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
  /** Null in any of these three: the network's own value (chain/gasLimits.ts). */
  maxFeePerGas: bigint | null
  gasPerFee?: bigint | null
  dailyBudget?: bigint | null
  /** USDC base units that gas may cost a UTC day for all together who pay no fee and have no grant. */
  gasAllowance: bigint
  /** USDC base units an ETH (POL on Polygon), if there is no feed or it is stale. */
  gasTokenUsd: bigint
}

export type FacilitatorSettings = {
  /** Whether requests without an API key are taken. */
  isOpen: boolean
  /** How long a verified payment is kept for its seller. */
  reserveMs: number
  /** How long until POST /settle answers settlement_pending. */
  timeoutMs: number
  /** How long until it answers if nothing was sent, and in version 1, which has no such answer. */
  holdMs: number
  /** What a provider owes for a payment, USDC base units. */
  fee: bigint
  /** Most payments reserved or waiting at a time for one API key, or without a key for one paid wallet. */
  maxOpen: number
}

/** When open tabs are closed. USDC base units. */
export type TabSettings = {
  /** How much a payer that never settled anything may owe. */
  credit: bigint
  /** By network, if the least price that settles alone is to be above the network's own. */
  minimumPrices: Partial<Record<NetworkName, bigint>>
}

export const defaultTabSettings: TabSettings = { credit: 1_000_000n, minimumPrices: {} }

export type DiscoverySettings = {
  /** The gateway's, from which the recipient of a price follows. */
  feeSchedule: FeeSchedule
  /** The gateway's, too. */
  offerTimeoutSeconds: number
}

export const defaultDiscovery: DiscoverySettings = { feeSchedule: 'tiered', offerTimeoutSeconds: 3_600 }

export type SubmitLimits = {
  /** Submissions a minute from one address, and from one provider at any address. */
  perCaller: number
}

/** Most HTTP clients and proxies wait for thirty seconds. */
export const defaultSubmitTimeoutMs = 25_000

export const defaultSubmitLimits: SubmitLimits = { perCaller: 60 }
