import type { Address, Hash, Hex } from 'viem'
import type { NetworkName } from '../protocol/networks.ts'
import type { PaymentStatus } from '../protocol/paymentStatus.ts'

/**
 * An audit's verdict on a receipt, or on one authorization of its payment.
 *
 * - `settled`: USDC's logs show exactly the transfer that the receipt promises, with enough confirmations.
 * - `pending`: the transfer isn't on chain yet but still can be, or it isn't confirmed yet.
 * - `mismatch`: the chain shows another transfer than the receipt promises (see `reason`).
 * - `missing`: the transfer isn't on chain, although the receipt says that the payment settled; or the authorization expired before it was used.
 * - `cancelled`: the payer cancelled the authorization, or the provider voided the payment.
 * - `forged`: the text isn't a receipt, or the gateway didn't sign it.
 * - `duplicate`: another payment's receipt named the same authorization first.
 */
export type AuditState = 'settled' | 'pending' | 'mismatch' | 'missing' | 'cancelled' | 'forged' | 'duplicate'

/** Why a receipt, or one authorization of its payment, is in its {@link AuditState}. */
export type AuditReason =
  /** pending: mined, but without enough confirmations. */
  | 'confirming'
  /** pending: the authorization has not been used on chain yet. */
  | 'waiting'
  /** missing: the authorization expired before it was used. */
  | 'expired'
  /** missing: the receipt says that the payment settled, but its authorization was not used on chain. */
  | 'said_to_be_settled'
  /** mismatch: the payer, recipient, amount or token differs from the receipt. */
  | 'payer'
  | 'recipient'
  | 'amount'
  | 'token'
  /** mismatch: the authorization was used, but without a transfer. */
  | 'no_transfer'
  /** mismatch: the authorization doesn't pay the splitter for the receipt's two wallets and amounts. */
  | 'splitter'
  /** mismatch: both authorizations have the same nonce, so one transfer would prove both. */
  | 'same_nonce'
  /** mismatch: the receipt names a nonce, a contract or a provider that doesn't match its tab. */
  | 'tab'
  /** mismatch: the tab settled with less on its line than the request needs. */
  | 'line'
  /** mismatch: the tab settled with a platform other than the receipt's, or with a larger reward, so the platform received less. */
  | 'terms'
  /** cancelled: the payer cancelled on chain, or the provider voided the payment at the gateway. */
  | 'cancelled_on_chain'
  | 'voided'
  /** mismatch: the receipt reports a refund as arrived, but the refund isn't on chain or differs there. */
  | 'refund'
  /** mismatch: the fee of a tab line doesn't match the line's shares. */
  | 'fee'
  /** mismatch: the receipts of a tab line's requests don't add up to the tab line's amount. */
  | 'receipts'
  /** mismatch: the tab line belongs to another provider than the audited one. */
  | 'other_provider'
  /** forged: not a JWS, issued by another gateway, not signed by a key of the JWKS, or without the claims of a receipt. */
  | 'not_a_jws'
  | 'other_issuer'
  | 'bad_signature'
  | 'bad_claims'
  /** duplicate: `duplicateOf` names the earlier payment. */
  | 'sequence_shared'
  | 'authorization_shared'
  /** duplicate: the gateway previously signed different facts for the same line of the same tab. */
  | 'line_conflict'

/** An audit's verdict on one authorization of a payment: what the receipt promises, and what happened on chain. */
export type AuditedHalf = {
  half: 'provider' | 'platform'
  state: Exclude<AuditState, 'forged' | 'duplicate'>
  reason?: AuditReason
  /** The recipient, the amount in USDC base units and the nonce that the receipt promises. */
  to: Address
  value: bigint
  nonce: Hex
  /** What USDC's logs show about the authorization. Undefined if they don't contain it. */
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
    /** For a tab: the amount that was paid on the receipt's line. */
    line?: bigint
    /** For a tab: the share of the platform's part, in basis points, that the receipt's platform did not receive. Undefined if it received all. */
    lostFeeShare?: number
  }
}

/** A splitter's payout in USDC's logs: the platform's transfer, directly followed by the provider's. */
export type AuditedPayout = {
  transactionHash: Hash
  blockNumber: bigint
  /** Log index of the platform's transfer. */
  logIndex: number
  /** False if the token refused to pay the platform's wallet. The platform's part is then in a separate splitter that pays only the platform. */
  isPlatformPaid: boolean
}

/** An audit's verdict on a refund that a receipt names. */
export type AuditedRefund = {
  /** The refund's number within its payment, from 1. */
  number: number
  /** `pending`: not on chain or not confirmed yet. `missing`: the receipt says that the refund arrived, but it isn't on chain. */
  state: 'settled' | 'pending' | 'missing' | 'mismatch'
  from: Address
  value: bigint
  nonce: Hex
  transactionHash?: Hash
}

/** One entry for each authorization. */
export type AuditedHalves = [AuditedHalf] | [provider: AuditedHalf, platform: AuditedHalf]

/** An audit's verdict on one receipt. */
export type AuditedReceipt = {
  /** Index in the audited list. */
  position: number
  state: AuditState
  reason?: AuditReason
  /** Whether the receipt and the chain agree: the payment is `settled`, or was voided and no USDC moved. */
  reconciled: boolean
  /** Description of the verdict in one sentence. */
  detail: string
  /** What the receipt claims, unless it is `forged`. */
  payment?: {
    paymentId: string
    providerId: string
    endpointId: string
    network: string
    payer: Address
    timestamp: string
    /** The payment's status when the receipt was signed. */
    status: PaymentStatus
    providerAmount: bigint
    platformAmount: bigint
    /** The transaction that the receipt names. */
    transactionHash: Hash
    /** The recipient of the single authorization that pays both parts. Undefined if each part has a separate authorization. */
    splitter?: Address
    /** The tab on which the request was bought, and the request's number on it. */
    tab?: { id: string; sequence: number; split: Hex; lineTotal: bigint }
  }
  /** The provider's authorization, then the platform's. If there is only one authorization, it pays both parts. */
  halves?: AuditedHalves
  /** The payout with which the splitter passed the payment on. Undefined if the amount is still in the splitter, or there is no splitter. */
  payout?: AuditedPayout
  /** The refunds that the receipt names. Undefined if it names none. */
  refunds?: AuditedRefund[]
  /** Set if the transfer is in another transaction or block than the receipt names, because the receipt was signed before a reorg. */
  isSuperseded?: true
  /** The `paymentId` of the payment that used the authorization first. */
  duplicateOf?: string
}

/** An audit's verdict on one tab line: everything that a provider sold on a line of a tab. */
export type AuditedTabLine = {
  /** Index in the audited list of tab lines. */
  position: number
  state: AuditState
  reason?: AuditReason
  /** Whether the tab line, the chain and the receipts of its requests agree. */
  reconciled: boolean
  /** Description of the verdict in one sentence. */
  detail: string
  /** The tab line's claims, unless it is `forged`. */
  line?: {
    paymentId: string
    providerId: string
    network: string
    payer: Address
    /** The gateway that signed it. */
    issuer: string
    tabId: string
    nonce: Hex
    split: Hex
    /** The wallet that receives the line's amount. */
    provider: Address
    requests: number
    totalAmount: bigint
    providerAmount: bigint
    platformAmount: bigint
    /** The amount that the buyer owes on the line, to all providers that sold on it. */
    chargedAmount: bigint
    /** The part of `chargedAmount` that an earlier credit of the buyer paid. */
    creditAmount: bigint
  }
  /** The audited receipts of the tab line's requests. */
  receipts?: { requests: number; totalAmount: bigint }
  /** The amount that was paid on the line. Set when the tab's nonce has been used. */
  onChain?: NonNullable<AuditedHalf['onChain']>
  /** Set if the tab settled with another state than the state in the tab line. */
  isOtherState?: true
}

/**
 * Counts of all payments, by the same rules as the provider's monthly statement. A request on a tab is one payment. Payments that the keeper settles
 * as an x402 facilitator are missing, because no gateway signs receipts for them.
 */
export type PaymentCounts = {
  /** Number of payments, excluding voided ones. */
  payments: number
  /** Payments for which the provider has been paid. */
  settled: number
  /** Payments that can still settle, and the sum that they promise the provider. */
  outstanding: number
  outstandingAmount: bigint
  failed: number
  voided: number
}

/** A transfer to or from an audited wallet. The transfer used an authorization, but no audited receipt exists for it. */
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
  /** Number of payments that are neither settled, pending nor voided. */
  failing: number
  /** Amount that moved according to USDC's logs. If only one of a payment's two authorizations settled, its amount is included. */
  providerAmount: bigint
  platformAmount: bigint
  /** The sum that pending receipts promise the provider. */
  pendingAmount: bigint
  /** The part of `providerAmount` that is still in splitters. */
  waitingAmount: bigint
  /** The amount that was refunded to payers according to USDC's logs. */
  refundedAmount: bigint
  /** Counts of the same payments, by the rules of the provider's statement. */
  counts: PaymentCounts
}

/** The totals of one settlement transaction. Only payments with an audited receipt or tab line count. */
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

/** The totals of one tab: what the audited receipts charge, and the amount that settled. */
export type TabTotal = {
  network: string
  id: string
  payer: Address
  /** The gateway that signed the receipts. */
  issuer: string
  nonce: Hex
  /** Number of requests with a receipt. Gaps in the requests' numbers are no error, because other providers sell on the same tab. */
  requests: number
  /** The settlement's transaction and amount. Undefined until the tab has settled. */
  transactionHash?: Hash
  movedAmount?: bigint
  /** The terms of the settled state: `platform` receives the platform's part, and `rewardShare` is the reward in basis points. */
  platform?: Address
  rewardShare?: number
  lines: {
    split: Hex
    provider: Address
    requests: number
    /** The sum of what the receipts charge on the line. */
    boughtAmount: bigint
    /** The amount that the line must receive to pay all its receipts: the largest `lineTotal`, minus later reductions of other requests. */
    lineTotal: bigint
    movedAmount?: bigint
    /** The amount that is missing on the line: what its receipts or its tab line require, minus what the settlement paid. */
    gap: bigint
    /** The amounts that the gateway's tab line records. Undefined if no tab line was audited. */
    booked?: { requests: number; totalAmount: bigint }
  }[]
}

/** The transfers of one wallet on one network, including those for which no receipt exists. */
export type WalletAudit = {
  wallet: Address
  network: NetworkName
  /** Start and end of the period in Unix seconds, both inclusive. */
  from: bigint
  to: bigint
  /** Number of transfers in the period that used an authorization. */
  transfers: number
  /** Number of plain transfers, which never have a receipt. */
  plainTransfers: number
  unreceipted: UnreceiptedTransfer[]
}

/** The result of an audit. Amounts are USDC base units. */
export type AuditReport = {
  /** Whether every receipt and tab line agrees with the chain, and every transfer of the audited wallets has a receipt. */
  reconciled: boolean
  receipts: AuditedReceipt[]
  tabLines: AuditedTabLine[]
  /** Counts of all payments, by the same rules as the provider's monthly statement. */
  counts: PaymentCounts
  states: Record<AuditState, number>
  providers: ProviderTotal[]
  batches: BatchTotal[]
  tabs: TabTotal[]
  wallets: WalletAudit[]
  /** The block up to which each chain was read. */
  heads: { network: NetworkName; blockNumber: bigint; blockHash: Hash; blockTime: bigint }[]
}
