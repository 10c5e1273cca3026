import type { Address } from 'viem'
import type { PayersWithCode } from '#chain/payerCode'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { Logger } from '#process/log'
import type { Checkpoint } from '../settings/checkpoints.ts'
import type { Metrics } from '../settings/metrics.ts'
import type { Ceiling } from './ceiling.ts'
import type { Journal } from './journal.ts'
import type { SettlementWallet } from './wallet.ts'

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

/** What the steps of a settlement work with, whoever's keeper takes them. */
export type SettlerContext = {
  served: ServedNetwork
  settings: SettlerSettings
  address: Address
  /** null: its key is not here. The stored bytes can be sent by anybody; only a new offer needs the key. */
  wallet: SettlementWallet | null
  journal: Journal
  ceiling: Ceiling
  payersWithCode: PayersWithCode
  /** The oldest block whose state may judge an authorization: what the index has seen. */
  readNotBefore: () => Promise<bigint>
  /** Batches whose nonce is used, but by none of their transactions, and since when (ms). May be forgotten. */
  missingSince: Map<string, number>
  now: () => Date
  checkpoint: Checkpoint
  log: Logger
  metrics: Metrics
}
