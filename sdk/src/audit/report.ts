import type { Address, Hash, Hex } from 'viem'
import type { NetworkName } from '../protocol/networks.ts'

/**
 * What an audit says of a receipt, or of one half of its payment.
 *
 * - `settled`: USDC's logs show exactly the transfer that the receipt promises, with its confirmations.
 * - `pending`: not there yet, and it can still come.
 * - `mismatch`: something else moved than the receipt promises (see `reason`).
 * - `missing`: it isn't there, and can't come any more or is said to have come.
 * - `cancelled`: the payer cancelled the authorization, or the provider voided the payment.
 * - `forged`: not signed by the gateway, or not a receipt.
 * - `duplicate`: another payment's receipt stands on the same authorization.
 */
export type AuditState = 'settled' | 'pending' | 'mismatch' | 'missing' | 'cancelled' | 'forged' | 'duplicate'

/** Why a receipt, or one half of its payment, is in its {@link AuditState}. */
export type AuditReason =
  /** pending: mined, but not deep enough. */
  | 'confirming'
  /** pending: not used on chain yet. */
  | 'waiting'
  /** missing: the authorization has run out. */
  | 'expired'
  /** missing: the receipt says that it settled. */
  | 'said_to_be_settled'
  /** mismatch: who paid, who got it, how much, in which token. */
  | 'payer'
  | 'recipient'
  | 'amount'
  | 'token'
  /** mismatch: the authorization was used, but no transfer goes with it. */
  | 'no_transfer'
  /** mismatch: both halves carry one nonce, so that one transfer would prove both. */
  | 'same_nonce'
  /** cancelled: by the payer on chain, or by the provider at the gateway. */
  | 'cancelled_on_chain'
  | 'voided'
  /** forged: not a JWS, no signature by a key of the JWKS, claims that aren't a receipt's, another gateway's. */
  | 'not_a_jws'
  | 'other_issuer'
  | 'bad_signature'
  | 'bad_claims'
  /** duplicate: see `duplicateOf`. */
  | 'authorization_shared'

/** What an audit says of one half of a payment: what the receipt promises, and what the chain has. */
export type AuditedHalf = {
  half: 'provider' | 'platform'
  state: Exclude<AuditState, 'forged' | 'duplicate'>
  reason?: AuditReason
  /** As the receipt promises. */
  to: Address
  value: bigint
  nonce: Hex
  /** What the chain has, where it has anything. */
  onChain?: {
    from: Address
    to?: Address
    value?: bigint
    transactionHash: Hash
    blockNumber: bigint
    blockHash: Hash
    /** Unix seconds. */
    blockTime: bigint
    logIndex: number
  }
}

/** What an audit says of one receipt. */
export type AuditedReceipt = {
  /** Place in the list that was audited, from 0. */
  position: number
  state: AuditState
  reason?: AuditReason
  /** What the receipt says is what the chain says: `settled`, or voided with nothing moved. */
  reconciled: boolean
  /** A sentence for a person. */
  detail: string
  /** Unless `forged`, what the receipt says of itself. */
  payment?: {
    paymentId: string
    providerId: string
    endpointId: string
    network: string
    payer: Address
    timestamp: string
    providerAmount: bigint
    platformAmount: bigint
    /** As in the receipt. */
    transactionHash: Hash
  }
  halves?: [AuditedHalf, AuditedHalf]
  /** The receipt names another transaction or block than the money moved in: it was signed before a reorg. */
  isSuperseded?: true
  /** `paymentId` of the payment that had the authorization first. */
  duplicateOf?: string
}

/** A transfer that an authorization moved to or from a wallet, and that no audited receipt accounts for. */
export type UnreceiptedTransfer = {
  network: NetworkName
  direction: 'in' | 'out'
  from: Address
  to: Address
  value: bigint
  nonce: Hex
  transactionHash: Hash
  blockNumber: bigint
  /** Unix seconds. */
  blockTime: bigint
  logIndex: number
}

/** Payments of one provider on one network; a payment whose receipt was signed anew counts once. */
export type ProviderTotal = {
  providerId: string
  network: string
  payments: number
  settled: number
  pending: number
  /** Neither settled, pending nor voided. */
  failing: number
  /** As USDC's logs prove, halves of unsettled payments included. */
  providerAmount: bigint
  platformAmount: bigint
  /** Promised by receipts that are pending. */
  pendingAmount: bigint
}

/** What the audited receipts account for in one settlement transaction. */
export type BatchTotal = {
  network: string
  transactionHash: Hash
  blockNumber: bigint
  /** Unix seconds. */
  blockTime: bigint
  payments: number
  authorizations: number
  providerAmount: bigint
  platformAmount: bigint
}

/** The transfers of one wallet on one network, and those that no receipt accounts for. */
export type WalletAudit = {
  wallet: Address
  network: NetworkName
  /** Unix seconds, both inclusive. */
  from: bigint
  to: bigint
  /** Transfers that an authorization moved, in that time. */
  transfers: number
  /** Plain transfers, which no receipt can be expected for. */
  plainTransfers: number
  unreceipted: UnreceiptedTransfer[]
}

/** The result of an audit. Amounts are USDC base units. */
export type AuditReport = {
  /** Every receipt reconciles, and no transfer of the wallet lacks one. */
  reconciled: boolean
  receipts: AuditedReceipt[]
  states: Record<AuditState, number>
  providers: ProviderTotal[]
  batches: BatchTotal[]
  wallets: WalletAudit[]
  /** Up to where each chain was read. */
  heads: { network: NetworkName; blockNumber: bigint; blockHash: Hash; blockTime: bigint }[]
}
