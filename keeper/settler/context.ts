import type { PayersWithCode } from '@tollkeeper/chain/payerCode'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Probe } from '@tollkeeper/runtime/health'
import type { Logger } from '@tollkeeper/runtime/log'
import type { Tracer } from '@tollkeeper/runtime/trace'
import type { Address, Hex } from 'viem'
import type { Checkpoint } from '../settings/checkpoints.ts'
import type { SendingSettings } from '../settings/config.ts'
import type { Metrics } from '../settings/metrics.ts'
import type { GasControl } from './gasControl.ts'
import type { Journal } from './journal.ts'

/** What the steps of a settlement work with, in any keeper. */
export type SettlerContext = {
  served: ServedNetwork
  settings: SendingSettings
  address: Address
  /** null: its key is not here. Anybody can send the stored bytes; only a new offer needs the key. */
  wallet: SettlementWallet | null
  journal: Journal
  gas: GasControl
  payersWithCode: PayersWithCode
  /** The oldest block whose state may judge an authorization: one that the index has seen. */
  readNotBefore: () => Promise<bigint>
  /** Batches with a used nonce though none of their transactions is mined, and since when (ms). May be forgotten. */
  missingSince: Map<string, number>
  now: () => Date
  checkpoint: Checkpoint
  log: Logger
  metrics: Metrics
  /** Default: nothing is traced. */
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
  /** Checks its signer, if its key is elsewhere. */
  probe?: Probe
}

/** The wallet can't pay for its batch. In wei; undefined if a node doesn't say how much is missing. */
export class Unfunded extends Error {
  override name = 'Unfunded'
  readonly balance: bigint | undefined
  readonly needed: bigint | undefined

  constructor(balance?: bigint, needed?: bigint) {
    super(balance === undefined ? 'a node says so' : `the wallet has ${balance} wei and needs ${needed}`)
    this.balance = balance
    this.needed = needed
  }
}

/** @throws {Unfunded} if the balance is too small */
export function requireFunds(balance: bigint, needed: bigint): void {
  if (balance < needed) throw new Unfunded(balance, needed)
}
