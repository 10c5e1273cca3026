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

/** The context of one network's loops. */
export type Context = {
  sql: Database
  served: ServedNetwork
  settings: KeeperSettings & GasLimits
  /** Number of blocks after which a block counts as final, and its batches are closed. Ponder uses the same number. */
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
  /** Null if nothing is traced. */
  tracer?: Tracer | null
}

/**
 * Creates the state that a process keeps in memory. It may be lost at any time, because after a restart the process reads everything again.
 *
 * @param clock returns monotonic milliseconds
 */
export function createMemory(clock?: () => number) {
  return {
    /** Decides how long the wallets gather callers of POST /settle. */
    pace: createBlockPace(clock),
    /**
     * For each wallet, the maximum number of transactions in flight that its gas money covers. Set when the money didn't cover one more
     * transaction.
     */
    fundedInFlight: new Map<Address, number>(),
    /** Batches whose nonce is used although none of their transactions is mined, with the time in ms when the keeper first saw that. */
    missingSince: new Map<string, number>(),
    /** Receipts of mined batches that this process found, until they are judged. */
    mined: new Map<bigint, TransactionReceipt>(),
    /** Mined batches with a stored receipt, and their block. They are closed when the block is final. */
    judged: new Map<bigint, bigint>(),
    /** Whether the record has everything that the index has, and no reorg is being processed. */
    isFollowed: false,
    /** Payments that could not be finalized, each with the time of its next attempt. */
    unfinalized: createStepBack<string>(),
    /** The last claim. The next claim waits until it has ended. */
    lastClaim: Promise.resolve() as Promise<unknown>,
    /** By wallet: the lanes of its last batches, the latest last. */
    turns: new Map<Address, Lane[]>(),
    /** Time in ms until which the network is reported as waiting for cheaper gas; 0 if it isn't waiting. */
    expensiveUntil: 0,
    /** Time in ms at which a pair was last claimed alone, so that its batch could sweep. */
    pairAloneAt: 0,
    /** Whether the token was paused when it was last read, and the time in ms at which to read it again. */
    token: { isPaused: false, lookAt: 0 },
  }
}
