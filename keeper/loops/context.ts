import type { GasLimits } from '@tollkeeper/chain/gasLimits'
import type { GasMeter } from '@tollkeeper/chain/gasShares'
import type { PayersWithCode } from '@tollkeeper/chain/payerCode'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { ReadDueBatches } from '@tollkeeper/ledger/queue/dueBatches'
import type { Lane } from '@tollkeeper/ledger/queue/lanes'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { Logger } from '@tollkeeper/runtime/log'
import { createStepBack } from '@tollkeeper/runtime/stepBack'
import type { Tracer } from '@tollkeeper/runtime/trace'
import type { Address, Hex, TransactionReceipt } from 'viem'
import type { Checkpoint } from '../settings/checkpoints.ts'
import type { KeeperSettings } from '../settings/config.ts'
import type { Metrics } from '../settings/metrics.ts'
import type { GasPolicy } from '../settler/gasPolicy.ts'
import { createBlockPace } from './blockPace.ts'

/** What the loops of one network work with. */
export type Context = {
  sql: Database
  served: ServedNetwork
  settings: KeeperSettings & GasLimits
  /** Blocks after which a batch is closed: Ponder's own finality. */
  finalityBlocks: bigint
  payersWithCode: PayersWithCode
  readDueBatches: ReadDueBatches
  meter: GasMeter
  gasPolicy: GasPolicy
  now: () => Date
  randomBytes32: () => Hex
  checkpoint: Checkpoint
  log: Logger
  metrics: Metrics
  memory: ReturnType<typeof createMemory>
  /** Null: nothing is traced. */
  tracer?: Tracer | null
}

/** State that may be lost at any time: a restart only looks again. */
/** @param clock milliseconds that never go back. */
export function createMemory(clock?: () => number) {
  return {
    /** How long the wallets gather callers of POST /settle. */
    pace: createBlockPace(clock),
    /** Batches with a used nonce though none of their transactions is mined, and since when (ms). */
    missingSince: new Map<string, number>(),
    /** Receipts of mined batches that this process found, until they are judged. */
    mined: new Map<bigint, TransactionReceipt>(),
    /** Mined batches with a stored receipt, and their block: they are looked at again when that is final. */
    judged: new Map<bigint, bigint>(),
    /** No reorg is being followed, and the record has what the index has. */
    isFollowed: false,
    /** Payments that could not be concluded. */
    unconcluded: createStepBack<string>(),
    /** The claim that began last, which the next one waits for. */
    lastClaim: Promise.resolve() as Promise<unknown>,
    /** By wallet: the lanes of its last batches, the latest last. */
    turns: new Map<Address, Lane[]>(),
    /** Until when (ms) the network is reported as waiting for cheaper gas; 0: it isn't waiting. */
    expensiveUntil: 0,
    /** When (ms) a pair was last claimed alone, so that its batch could sweep. */
    pairAloneAt: 0,
    /** Whether the token is paused, as far as we know, and when (ms) to ask again. */
    token: { isPaused: false, lookAt: 0 },
  }
}
