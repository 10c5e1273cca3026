import type { Hex } from 'viem'
import type { Failure } from '#chain/failures'
import type { Mined } from '#chain/receipts'
import type { SignerCode } from '#chain/signTransaction'
import type { BatchOutcome } from '#ledger/batches/batches'
import type { BatchItem } from '#ledger/batches/items'
import type { Offer, SignedTransaction } from '#ledger/batches/transactions'
import type { SplitterTerms } from '#protocol/splitter'
import type { Drop, PlannedBatch } from './plan.ts'

/** What a mined transaction says against items that the simulation had let pass. */
export type Verdict = {
  /** Tried by the contract, and refused by the token: their payers' fault, whatever the simulation was told. */
  failed: { item: BatchItem; failure: Pick<Failure, 'code' | 'detail'> }[]
  /** Used or cancelled: the index or the chain will say by whom. */
  spent: BatchItem[]
  /** Perhaps never tried, for want of gas: settled next with the full gas of each budgeted. */
  untried: BatchItem[]
  /** It took all its gas although no payer can burn more than is budgeted: our model of the gas is wrong. */
  ranOut: boolean
}

/** How a batch ends that settled nothing. */
export type Unsettled = {
  outcome: Exclude<BatchOutcome, 'settled'>
  /** Why what was submitted together isn't settled; a payment with a drop of its own fails for that. */
  failure: string
  /** Why items of it weren't settled: each goes where its reason leads. */
  drops?: readonly Drop[]
  /** Not if a node has ever taken a transaction of it, which may be mined yet. */
  unlessTaken?: boolean
}

/** A batch on its way, as its journal knows it. */
export type OpenBatch = {
  batch: PlannedBatch
  /** Everything that was signed for it, the dearest (the one that counts) first; empty: nothing yet. */
  offers: readonly Offer[]
  /** Milliseconds since it was claimed. */
  ageMs: number
  readItems: () => Promise<BatchItem[]>
  /** At most `most` splitters to sweep with these items of it, the batch's own or others of its platform. */
  readSweeps: (items: readonly BatchItem[], most: number) => Promise<SplitterTerms[]>
  /** Stores a transaction, and releases what it leaves out, before its first byte goes out. */
  save: (transaction: SignedTransaction, drops: readonly Drop[]) => Promise<void>
  /**
   * It stands in a block: the wallet is free.
   *
   * @param books what its gas cost, and what it paid its wallet for the tabs that it settled, in USDC base units.
   */
  markMined: (mined: Mined, verdict: Verdict, books: { cost: bigint; reward: bigint }) => Promise<void>
  /** @returns whether this call ended it. */
  close: (end: Unsettled) => Promise<boolean>
}

/**
 * Where the settler keeps what it has begun: Postgres for the operator's keeper, memory for one without a database, for
 * which the chain and the gateway remember.
 */
export type Journal = {
  /** The batch that this wallet has begun and not seen mined; null: none. */
  readOpen: () => Promise<OpenBatch | null>
  /** The dearest offer for each nonce in a range, whatever became of its batch; the lowest nonce first. */
  readOffers: (nonces: { from: number; below: number }) => Promise<Offer[]>
  /** A stored transaction was handed to the nodes; `isTaken`: one of them said that it has it. */
  markTried: (hash: Hex, isTaken: boolean) => Promise<void>
  /** Keeps the wallet from starting anything new for a while. */
  pause: (ms: number, reason: 'insufficient_gas_funds' | 'out_of_gas' | SignerCode) => Promise<void>
}
