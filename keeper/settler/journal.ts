import type { Failure } from '@tollkeeper/chain/failures'
import type { Mined } from '@tollkeeper/chain/receipts'
import type { SignerCode } from '@tollkeeper/chain/signTransaction'
import type { BatchResult } from '@tollkeeper/ledger/batches/batches'
import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import type { Offer, SignedTransaction } from '@tollkeeper/ledger/batches/transactions'
import type { SplitterTerms } from '@tollkeeper/sdk/protocol/splitter'
import type { Hex } from 'viem'
import type { GasControl } from './gasControl.ts'
import type { Drop, PlannedBatch } from './plan.ts'

/** The conclusions from a mined transaction about items that had passed the simulation. */
export type MinedVerdict = {
  /** Items that the contract tried and the token refused. This is their payers' fault, even though the simulation passed. */
  failed: { item: BatchItem; failure: Pick<Failure, 'code' | 'detail'> }[]
  /** Items whose nonce is used or cancelled. A look-up will show who used or cancelled it. */
  spent: BatchItem[]
  /** Items that may not have been tried for lack of gas. Their next transaction has full gas for each item. */
  untried: BatchItem[]
  /** Whether the transaction used at least 97% of its gas limit, although each item had its full gas. If so, our gas model is wrong. */
  ranOut: boolean
}

/** The end of a batch that settled nothing. */
type Unsettled = {
  result: Exclude<BatchResult, 'settled'>
  /** The code with which payments of a submission fail. A payment that was dropped fails with the code of its drop instead. */
  failure: string
  /** Items that weren't settled, with their reasons, which decide the payments' next stages. */
  drops?: readonly Drop[]
  /** Keeps the batch open if a node has ever accepted one of its transactions, because that transaction may still be mined. */
  unlessTaken?: boolean
}

/** A journal's view of a batch that isn't closed. */
export type OpenBatch = {
  batch: PlannedBatch
  /** All signed transactions, starting with the highest offer, which is the one that counts. Empty if there is none yet. */
  offers: readonly Offer[]
  /** Milliseconds since it was claimed. */
  ageMs: number
  /** Approves the gas of its transactions, and reserves it. */
  gas: GasControl
  readItems: () => Promise<BatchItem[]>
  /** Returns at most `most` splitters to sweep with these items. Each of them is paid by one of the items, or belongs to the batch's platform. */
  readSweeps: (items: readonly BatchItem[], most: number) => Promise<SplitterTerms[]>
  /** Stores a transaction before it is sent, and releases the items that it leaves out. */
  save: (transaction: SignedTransaction, drops: readonly Drop[]) => Promise<void>
  /**
   * Stores that a transaction of the batch was mined.
   *
   * @param books the cost of its gas, and the wallet's reward for its tabs, in USDC base units
   */
  markMined: (mined: Mined, verdict: MinedVerdict, books: { cost: bigint; reward: bigint }) => Promise<void>
  /** Closes the batch. @returns whether this call closed it */
  close: (end: Unsettled) => Promise<boolean>
}

/**
 * The store of the settler's batches: Postgres for the operator's keeper, or memory for a keeper without a database. Such a keeper can read
 * everything else from the chain and the gateway.
 */
export type Journal = {
  /** Returns the wallet's claimed batches that aren't mined yet, in the order of their nonces. A batch that isn't signed yet comes last. */
  readOpen: () => Promise<OpenBatch[]>
  /** Returns the nonces of the wallet's batches, mined or not, starting from a given nonce. */
  readNonces: (from: number) => Promise<ReadonlySet<number>>
  /** Returns the highest offer for each nonce in a range, in the order of the nonces, regardless of the batches' states. */
  readOffers: (nonces: { from: number; below: number }) => Promise<Offer[]>
  /** Stores that a transaction was sent to the nodes, and whether a node acknowledged it (`isTaken`). */
  markTried: (hash: Hex, isTaken: boolean) => Promise<void>
  /** Pauses the wallet, so that it starts no new batches for a while. */
  pause: (ms: number, reason: 'insufficient_gas_funds' | 'out_of_gas' | SignerCode) => Promise<void>
}
