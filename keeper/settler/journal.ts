import type { Failure } from '@tollkeeper/chain/failures'
import type { Mined } from '@tollkeeper/chain/receipts'
import type { SignerCode } from '@tollkeeper/chain/signTransaction'
import type { BatchOutcome } from '@tollkeeper/ledger/batches/batches'
import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import type { Offer, SignedTransaction } from '@tollkeeper/ledger/batches/transactions'
import type { SplitterTerms } from '@tollkeeper/sdk/protocol/splitter'
import type { Hex } from 'viem'
import type { Drop, PlannedBatch } from './plan.ts'

/** What a mined transaction proves against items that the simulation had let pass. */
export type MinedVerdict = {
  /** Tried by the contract and refused by the token: their payers' fault, whatever the simulation said. */
  failed: { item: BatchItem; failure: Pick<Failure, 'code' | 'detail'> }[]
  /** Used or cancelled: the index or the chain will say by whom. */
  spent: BatchItem[]
  /** Perhaps never tried, for want of gas: settled next with full gas for each. */
  untried: BatchItem[]
  /** It took all its gas, though payers can't burn more than they were given: our gas model is wrong. */
  ranOut: boolean
}

/** How a batch ends that settled nothing. */
type Unsettled = {
  outcome: Exclude<BatchOutcome, 'settled'>
  /** Why what was submitted together isn't settled; a payment with a drop of its own fails for that. */
  failure: string
  /** Why items of it weren't settled: each goes where its reason leads. */
  drops?: readonly Drop[]
  /** Doesn't end it if a node has ever taken a transaction of it, which may still be mined. */
  unlessTaken?: boolean
}

/** A batch that isn't closed, as its journal has it. */
export type OpenBatch = {
  batch: PlannedBatch
  /** All signed transactions, the one with the highest offer (the one that counts) first; empty: none yet. */
  offers: readonly Offer[]
  /** Milliseconds since it was claimed. */
  ageMs: number
  readItems: () => Promise<BatchItem[]>
  /** At most `most` splitters to sweep with these items, the batch's own or others of its platform. */
  readSweeps: (items: readonly BatchItem[], most: number) => Promise<SplitterTerms[]>
  /** Stores a transaction, and releases what it leaves out, before its first byte goes out. */
  save: (transaction: SignedTransaction, drops: readonly Drop[]) => Promise<void>
  /**
   * Stores that it stands in a block, so the wallet is free.
   *
   * @param books its cost of gas, and the wallet's reward for its tabs, in USDC base units.
   */
  markMined: (mined: Mined, verdict: MinedVerdict, books: { cost: bigint; reward: bigint }) => Promise<void>
  /** @returns whether this call ended it. */
  close: (end: Unsettled) => Promise<boolean>
}

/**
 * Where the settler keeps its batches: Postgres for the operator's keeper, memory for one without a database, for
 * which the chain and the gateway remember.
 */
export type Journal = {
  /** The batch that this wallet has claimed and not seen mined; null: none. */
  readOpen: () => Promise<OpenBatch | null>
  /** The highest offer for each nonce in a range, whatever its batch's state; the lowest nonce first. */
  readOffers: (nonces: { from: number; below: number }) => Promise<Offer[]>
  /** Stores that a transaction was sent to the nodes; `isTaken`: one of them said that it has it. */
  markTried: (hash: Hex, isTaken: boolean) => Promise<void>
  /** Lets the wallet start nothing new for a while. */
  pause: (ms: number, reason: 'insufficient_gas_funds' | 'out_of_gas' | SignerCode) => Promise<void>
}
