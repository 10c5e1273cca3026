import type { Address, Hash, Hex } from 'viem'
import type { NetworkName } from '../protocol/networks.ts'

/**
 * What an audit says of a receipt, or of one half of its payment.
 *
 * - `settled`: USDC's logs show exactly the transfer that the receipt promises, with its confirmations.
 * - `pending`: the transfer isn't on chain or isn't confirmed yet, and still can be.
 * - `mismatch`: something else moved than the receipt promises (see `reason`).
 * - `missing`: the transfer isn't on chain, although the receipt says that it settled, or it can't settle any more.
 * - `cancelled`: the payer cancelled the authorization, or the provider voided the payment.
 * - `forged`: not signed by the gateway, or not a receipt.
 * - `duplicate`: another payment's receipt names the same authorization, and did so first.
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
  /** mismatch: another payer, recipient, amount or token than the receipt promises. */
  | 'payer'
  | 'recipient'
  | 'amount'
  | 'token'
  /** mismatch: the authorization was used, but without a transfer. */
  | 'no_transfer'
  /** mismatch: it doesn't pay the splitter of its two wallets and its shares. */
  | 'splitter'
  /** mismatch: both halves carry one nonce, so that one transfer would prove both. */
  | 'same_nonce'
  /** mismatch: it names a nonce, a contract or a provider that isn't that of its tab. */
  | 'tab'
  /** mismatch: its tab moved with less on its line than the request needs. */
  | 'line'
  /** mismatch: its tab moved with another platform or a larger reward than the receipt names, so the platform got less. */
  | 'terms'
  /** cancelled: by the payer on chain, or by the provider at the gateway. */
  | 'cancelled_on_chain'
  | 'voided'
  /** mismatch: a refund that the receipt says has arrived isn't on chain, or not as it says. */
  | 'refund'
  /** forged: not a JWS, signed for another gateway, not signed by a key of the JWKS, or without a receipt's claims. */
  | 'not_a_jws'
  | 'other_issuer'
  | 'bad_signature'
  | 'bad_claims'
  /** duplicate: see `duplicateOf`. */
  | 'sequence_shared'
  | 'authorization_shared'

/** What an audit says of one half of a payment: what the receipt promises, and what the chain has. */
export type AuditedHalf = {
  half: 'provider' | 'platform'
  state: Exclude<AuditState, 'forged' | 'duplicate'>
  reason?: AuditReason
  /** The recipient, the amount in USDC base units and the nonce that the receipt promises. */
  to: Address
  value: bigint
  nonce: Hex
  /** What USDC's logs say about the authorization, where there are any. */
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
    /** Of a tab: what moved on the receipt's line. */
    line?: bigint
    /** Of a tab: basis points of the platform's part that went elsewhere than the receipt says. Absent if none did. */
    lostFeeShare?: number
  }
}

/** A splitter's payout, as USDC's logs show it: the platform's transfer, and the provider's right after it. */
export type AuditedPayout = {
  transactionHash: Hash
  blockNumber: bigint
  /** Of the platform's transfer. */
  logIndex: number
  /** False: its wallet couldn't be paid, and its part waits in a splitter of its own. */
  isPlatformPaid: boolean
}

/** What an audit says of a refund that a receipt names. */
export type AuditedRefund = {
  /** Among the payment's, from 1. */
  number: number
  /** `pending`: not on chain yet, or not confirmed. `missing`: the receipt says that it has arrived. */
  state: 'settled' | 'pending' | 'missing' | 'mismatch'
  from: Address
  value: bigint
  nonce: Hex
  transactionHash?: Hash
}

/** One half an authorization. */
export type AuditedHalves = [AuditedHalf] | [provider: AuditedHalf, platform: AuditedHalf]

/** What an audit says of one receipt. */
export type AuditedReceipt = {
  /** Index in the list that was audited. */
  position: number
  state: AuditState
  reason?: AuditReason
  /** Whether the receipt and the chain agree: it is `settled`, or was voided and nothing moved. */
  reconciled: boolean
  /** The verdict in one sentence for people. */
  detail: string
  /** What the receipt claims, unless it is `forged`. */
  payment?: {
    paymentId: string
    providerId: string
    endpointId: string
    network: string
    payer: Address
    timestamp: string
    providerAmount: bigint
    platformAmount: bigint
    /** The one that the receipt names. */
    transactionHash: Hash
    /** Whom its one authorization pays for both parts; absent where each part has one of its own. */
    splitter?: Address
    /** The tab that it was bought on, and the number of the request. */
    tab?: { id: string; sequence: number; split: Hex; lineTotal: bigint }
  }
  /** The provider's, or the only one, which carries all; then the platform's. */
  halves?: AuditedHalves
  /** Where the splitter that it pays has paid it out; absent where it waits, or pays none. */
  payout?: AuditedPayout
  /** The refunds that the receipt names; absent where there are none. */
  refunds?: AuditedRefund[]
  /** The receipt names another transaction or block than the money moved in: it was signed before a reorg. */
  isSuperseded?: true
  /** The `paymentId` of the payment that had the authorization first. */
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

/** The payments of one provider on one network. A payment with several receipts counts once. */
export type ProviderTotal = {
  providerId: string
  network: string
  payments: number
  settled: number
  pending: number
  /** Neither settled, pending nor voided. */
  failing: number
  /** What USDC's logs prove to have moved, including single halves of payments that aren't settled. */
  providerAmount: bigint
  platformAmount: bigint
  /** What pending receipts promise the provider. */
  pendingAmount: bigint
  /** Of `providerAmount`, what waits in splitters. */
  waitingAmount: bigint
  /** What USDC's logs prove to have gone back to payers. */
  refundedAmount: bigint
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

/** What the audited receipts account for on one tab, and what moved of it. */
export type TabTotal = {
  network: string
  id: string
  payer: Address
  /** The gateway that signed the receipts. */
  issuer: string
  nonce: Hex
  /** Requests with a receipt. Those without one may be others', and their numbers are no gap. */
  requests: number
  /** Where and how much moved, once the tab has settled. */
  transactionHash?: Hash
  movedAmount?: bigint
  /** The terms under which it settled, as its payer signed them: the recipient of the platform's part, and the reward in basis points. */
  platform?: Address
  rewardShare?: number
  lines: {
    split: Hex
    provider: Address
    requests: number
    /** What the receipts charge, together. */
    boughtAmount: bigint
    /** The most that one of the receipts needs on the line: its `lineTotal`, less what others reduced of it since. */
    lineTotal: bigint
    movedAmount?: bigint
    /** What moved too little for all receipts of the line. */
    gap: bigint
  }[]
}

/** The transfers of one wallet on one network, and those that no receipt accounts for. */
export type WalletAudit = {
  wallet: Address
  network: NetworkName
  /** Unix seconds, both inclusive. */
  from: bigint
  to: bigint
  /** How many transfers an authorization moved in that period. */
  transfers: number
  /** Plain transfers, for which no receipt can be expected. */
  plainTransfers: number
  unreceipted: UnreceiptedTransfer[]
}

/** The result of an audit. Amounts are USDC base units. */
export type AuditReport = {
  /** Whether every receipt agrees with the chain, and every transfer of the audited wallets has a receipt. */
  reconciled: boolean
  receipts: AuditedReceipt[]
  states: Record<AuditState, number>
  providers: ProviderTotal[]
  batches: BatchTotal[]
  tabs: TabTotal[]
  wallets: WalletAudit[]
  /** The block up to which each chain was read. */
  heads: { network: NetworkName; blockNumber: bigint; blockHash: Hash; blockTime: bigint }[]
}
