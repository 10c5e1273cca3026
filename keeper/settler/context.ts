import type { PayersWithCode } from '@tollkeeper/chain/payerCode'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Probe } from '@tollkeeper/runtime/health'
import type { Logger } from '@tollkeeper/runtime/log'
import type { Tracer } from '@tollkeeper/runtime/trace'
import type { Address, Hex } from 'viem'
import type { Checkpoint } from '../settings/checkpoints.ts'
import type { SendingSettings } from '../settings/config.ts'
import type { Metrics } from '../settings/metrics.ts'
import type { Journal } from './journal.ts'

/** The context of a settlement's steps, in any keeper. */
export type SettlerContext = {
  served: ServedNetwork
  settings: SendingSettings
  address: Address
  /** Null if this process doesn't have the wallet's key. Anyone can send the stored transactions; only a new offer needs the key. */
  wallet: SettlementWallet | null
  journal: Journal
  payersWithCode: PayersWithCode
  /** Returns the oldest block by whose state an authorization may be judged. It is the newest block that the index has read. */
  readNotBefore: () => Promise<bigint>
  /**
   * For each wallet, the maximum number of transactions in flight that its gas money covers. Set when the money didn't cover one more
   * transaction. May be lost.
   */
  fundedInFlight: Map<Address, number>
  /** Batches whose nonce is used although none of their transactions is mined, with the time in ms when the keeper first saw that. May be lost. */
  missingSince: Map<string, number>
  now: () => Date
  checkpoint: Checkpoint
  log: Logger
  metrics: Metrics
  /** Traces settlements. Default: no tracing. */
  tracer?: Tracer | null
}

export type SettlementWallet = {
  address: Address
  /** @throws {SignerError} */
  sign: (transaction: {
    chainId: number
    to: Address
    data: Hex
    nonce: number
    gas: bigint
    maxFeePerGas: bigint
    maxPriorityFeePerGas: bigint
  }) => Promise<Hex>
  /** Checks the remote signer, if there is one. */
  probe?: Probe
}

/** Thrown if the wallet can't pay for its batch. Amounts are in wei, and undefined if a node refused the transaction without stating amounts. */
export class Unfunded extends Error {
  override name = 'Unfunded'
  readonly balance: bigint | undefined
  readonly needed: bigint | undefined

  constructor(balance?: bigint, needed?: bigint) {
    super(
      balance === undefined
        ? 'a node reports insufficient funds'
        : `the wallet has ${balance} wei, but needs ${needed}`,
    )
    this.balance = balance
    this.needed = needed
  }
}

/** @throws {Unfunded} if the balance is too small */
export function requireFunds(balance: bigint, needed: bigint): void {
  if (balance < needed) throw new Unfunded(balance, needed)
}
