import type { Address, Hex, TransactionReceipt } from 'viem'
import type { GasLimits } from '#chain/gasLimits'
import type { PayersWithCode } from '#chain/payerCode'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { Database } from '#ledger/database'
import type { ReadDueBatches } from '#ledger/dueBatches'
import type { Lane } from '#ledger/lanes'
import type { TriggerSettings } from '#ledger/triggers'
import type { Logger } from '#process/log'
import type { Metrics } from '../metrics.ts'

/**
 * A named point of the settlement path; production does nothing at it, a crash test ends the process there.
 * Every await that could be the last one of this process is followed or preceded by one.
 */
export type Checkpoint = (name: CheckpointName) => Promise<void> | void

export const checkpoints = [
  'before-claim',
  'after-claim',
  'before-simulation',
  'after-simulation',
  'before-write-ahead',
  'after-write-ahead',
  'before-broadcast',
  'after-broadcast',
  'after-broadcast-recorded',
  'before-replacement-write-ahead',
  'after-replacement-write-ahead',
  'after-replacement-broadcast',
  'before-mined-recorded',
  'after-mined-recorded',
  'before-end',
  'after-end',
  'before-reorg-recorded',
  'after-reorg-recorded',
  'before-evidence-recorded',
  'after-evidence-recorded',
  'before-conclusion',
  'after-conclusion',
  'before-sweep',
  'after-sweep',
  'before-conclusions-undone',
  'after-conclusions-undone',
  'before-submission-recorded',
  'after-submission-recorded',
  'before-submission-answer',
  'after-verify-recorded',
  'after-settle-recorded',
  'before-settle-answer',
] as const
export type CheckpointName = (typeof checkpoints)[number]

export type KeeperSettings = {
  triggers: TriggerSettings
  /** Pause between two looks at the queue, the chain and the index. */
  pollMs: number
  leaseMs: number
  /** How far the index may be behind the chain. */
  maxIndexLagBlocks: bigint
  /** A stored transaction is sent again after this long. */
  rebroadcastAfterMs: number
  /** One that isn't mined after this long is replaced by a dearer one. */
  replaceAfterMs: number
  /** Wei; null: what the node suggests. */
  priorityFeePerGas: bigint | null
  /** These three, null: the network's own. */
  maxFeePerGas: bigint | null
  gasPerFee?: bigint | null
  dailyBudget?: bigint | null
  /** USDC base units an ETH (POL on Polygon), where there is no feed or it is stale. */
  gasTokenUsd: bigint
}

/** What the loops of one network work with. */
export type Context = {
  sql: Database
  served: ServedNetwork
  settings: KeeperSettings & GasLimits
  /** Blocks after which a batch is closed: Ponder's own finality. */
  finalityBlocks: bigint
  payersWithCode: PayersWithCode
  readDueBatches: ReadDueBatches
  now: () => Date
  randomBytes32: () => Hex
  checkpoint: Checkpoint
  log: Logger
  metrics: Metrics
  memory: Memory
}

/** What may be forgotten at any time: a restart only looks again. */
export type Memory = {
  /** Batches whose nonce is used, but by none of their transactions, and since when (ms). */
  missingSince: Map<string, number>
  /** Receipts of batches that this process found mined, until they are judged. */
  mined: Map<bigint, TransactionReceipt>
  /** Mined batches whose receipt was taken down, and its block: looked at again when that is final. */
  judged: Map<bigint, bigint>
  /** No reorg is being followed, and the record has what the index has. */
  isFollowed: boolean
  /** Payments with a half that is used on chain, though no log of it was found: when (ms) to look again. */
  lookups: Map<string, { at: number; patienceMs: number }>
  /** The claim that began last, which the next one waits for. */
  lastClaim: Promise<unknown>
  /** By wallet: the lanes of its last batches, the latest last. */
  turns: Map<Address, Lane[]>
  /** Until when (ms) payments wait for cheaper gas: those that travel alone, and all others. */
  heldUntil: { ordinary: number; highValue: number }
  /** Nothing of the token moved: when (ms) to ask whether that is over. null: it moves, as far as is known. */
  tokenLookAt: number | null
}

export function createMemory(): Memory {
  return {
    missingSince: new Map(),
    mined: new Map(),
    judged: new Map(),
    isFollowed: false,
    lookups: new Map(),
    lastClaim: Promise.resolve(),
    turns: new Map(),
    heldUntil: { ordinary: 0, highValue: 0 },
    tokenLookAt: null,
  }
}

export type SettlementWallet = { address: Address; sign: (transaction: SignableTransaction) => Promise<Hex> }

export type SignableTransaction = {
  chainId: number
  to: Address
  data: Hex
  nonce: number
  gas: bigint
  maxFeePerGas: bigint
  maxPriorityFeePerGas: bigint
}
