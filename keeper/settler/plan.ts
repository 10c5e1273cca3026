import type { Failure } from '@tollkeeper/chain/failures'
import {
  type BatchShape,
  batchGasLimit,
  callGasLimit,
  sweepGasLimit,
  tabBatchGasLimit,
  tabReserves,
} from '@tollkeeper/chain/gas'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { BatchRow } from '@tollkeeper/ledger/batches/batches'
import { type BatchItem, type ItemHalf, rewardOf, sharedFee } from '@tollkeeper/ledger/batches/items'
import type { QueuedTab } from '@tollkeeper/ledger/queue/queue'
import { mostLeadSeconds } from '@tollkeeper/ledger/queue/triggers'
import {
  encodeSettle,
  encodeSettleAuthorizations,
  type SettlementItem,
  settlementItems,
  triggerCodes,
} from '@tollkeeper/sdk/protocol/settlement'
import { encodeSplit, type SplitterTerms } from '@tollkeeper/sdk/protocol/splitter'
import { encodeSettleTabs } from '@tollkeeper/sdk/protocol/tabSettlement'
import type { Address, Hex } from 'viem'
import type { GasHold, GasRequest } from './gasPolicy.ts'

/** One entry of the contract's `payments`: both open halves of an item, or the only open one. */
export type PlanEntry = { item: BatchItem; settlement: SettlementItem }

/** Why an item can't be settled in this batch. `isPartial`: only its fee half; the provider's stays in the batch. */
export type Drop = { isPartial?: boolean } & DropReason

type DropReason =
  | { item: BatchItem; reason: 'already_settled' }
  /** Used or cancelled on chain; the index doesn't say yet by whom. */
  | { item: BatchItem; reason: 'nonce_used' }
  /** Its payer has code but the batch's others don't, or the other way round. */
  | { item: BatchItem; reason: 'payer_kind_differs'; hasCode: boolean }
  | { item: BatchItem; reason: 'failed'; failure: Failure }
  /** Not its fault: the batch ran out of gas before it. */
  | { item: BatchItem; reason: 'deferred' }
  /** Nothing pays for its gas now. */
  | { item: BatchItem; reason: 'held'; by: GasHold }
  /** The token is paused now. */
  | { item: BatchItem; reason: 'token_paused' }

export type PlannedBatch = Pick<BatchRow, 'batchId' | 'token' | 'feeRecipient' | 'trigger' | 'lane'>

/** @param shape `hasCode`: every authorization has the most gas that it may use, so each is tried. */
export type Plan = PaymentsPlan | TabsPlan
type AnyPlan = { entries: PlanEntry[]; calldata: Hex; gas: bigint }
export type PaymentsPlan = AnyPlan & { contract: 'batchSettlement'; shape: BatchShape }
type TabsPlan = AnyPlan & { contract: 'tabSettlement'; shape: null }

/**
 * The open halves of an item as an entry; null if nothing is to be settled.
 *
 * Two halves that can't share an entry, because their windows differ, say, go one after the other: the fee is sent only once
 * the provider's half is known to have moved.
 */
export function planEntry(item: BatchItem, batch: Pick<PlannedBatch, 'feeRecipient'>): PlanEntry | null {
  const { provider, fee } = item
  if (provider.state === 'open') {
    const shared =
      fee?.state === 'open'
        ? settlementItems(provider.authorization, fee.authorization, batch.feeRecipient)
        : []
    return {
      item,
      settlement: shared.length === 1 && shared[0] ? shared[0] : { authorization: provider.authorization },
    }
  }
  // Where the provider's half was cancelled, no fee is owed.
  if (provider.state === 'settled' && fee?.state === 'open') {
    return { item, settlement: { authorization: fee.authorization } }
  }
  return null
}

/** Returns an entry's request for gas. */
export function gasRequestOf({ item, settlement }: PlanEntry, hasCode: boolean): GasRequest {
  const { to: recipient } = settlement.authorization
  const { isSold = true, gasLeft = 0n } = item.means ?? {}
  const fee = feeOf({ item, settlement })
  const shape = { isPair: settlement.fee !== undefined, recipient, hasCode, tab: shapeOfTab(item) }
  const hasLostFee = item.fee !== null && fee === 0n
  const urgentAt = item.means?.urgentAt ?? validUntil(item) - BigInt(mostLeadSeconds)
  const means = { fee, isSold, gasLeft, reward: rewardOf(item) }
  return { ...shape, ...means, paymentId: item.paymentId, urgentAt, hasLostFee }
}

/** What an item takes of a batch where it is a tab. */
export function shapeOfTab({ tab }: BatchItem): QueuedTab | null {
  if (!tab) return null
  const { lines, rewardShare } = tab
  return { rewardShare, lines: lines.length, splits: [...new Set(lines.map(({ split }) => `${split}`))] }
}

/** Until when a half of an entry can settle, Unix seconds; a tab's `validBefore` holds more than that. */
function validUntil({ tab, provider }: BatchItem): bigint {
  return tab ? BigInt(tab.expiry) : provider.authorization.validBefore
}

/** The platform's part of an entry, settled before or now. */
function feeOf({ item, settlement }: PlanEntry): bigint {
  const { fee, splitter, tab, means } = item
  if (!fee) return splitter || tab ? sharedFee(item) : (means?.fee ?? 0n)
  const isPaid = fee.state === 'settled' || settlement.authorization === fee.authorization
  return settlement.fee || isPaid ? fee.authorization.value : 0n
}

/** The splitters that a batch sweeps, and the factory that makes them. */
export type PlannedSweeps = { factory: Address; splitters: readonly SplitterTerms[] }

/**
 * Sorts entries in the order in which the contract should try them: by payer, so that it skips the rest after a failure, and each
 * payer's least first, so that one without balance explains the ones after it.
 */
function sortByPayer(entries: readonly PlanEntry[]): PlanEntry[] {
  return entries.toSorted(({ settlement: { authorization: a } }, { settlement: { authorization: b } }) => {
    if (a.from !== b.from) return a.from < b.from ? -1 : 1
    return a.value === b.value ? 0 : a.value < b.value ? -1 : 1
  })
}

/**
 * Packs entries into a transaction's calldata and gas limit, sorted by payer.
 *
 * @param sweeps only for a batch whose entries are one authorization each.
 */
export function planPayments(
  batch: PlannedBatch,
  unsorted: readonly PlanEntry[],
  hasCode: boolean,
  sweeps?: PlannedSweeps,
): PaymentsPlan {
  const entries = sortByPayer(unsorted)
  const head = toHead(batch, hasCode)
  const settlements = entries.map(({ settlement }) => settlement)
  // A submission may hold both kinds: an entry without a fee has one signature.
  const { calldata, payees } = settlements.some(({ fee }) => fee)
    ? encodeSettle(head, settlements, keccak256)
    : encodeSettleAuthorizations(
        head,
        settlements.map(({ authorization }) => authorization),
        sweeps && {
          factory: sweeps.factory,
          gasLimit: sweepGasLimit(sweeps.splitters.length),
          splits: sweeps.splitters.map(encodeSplit),
        },
      )
  const pairs = entries.filter((entry) => entry.settlement.fee).length
  const shape = {
    pairs,
    singles: entries.length - pairs,
    payees: payees.length,
    hasCode,
    sweeps: sweeps?.splitters.length ?? 0,
  }
  const gas = batchGasLimit(shape, toBytes(calldata))
  return { contract: 'batchSettlement', entries, shape, calldata, gas }
}

/** Builds the plan for the contract that settles these entries. All tabs of a batch have one reward. */
export function buildPlan(batch: PlannedBatch, entries: readonly PlanEntry[], hasCode: boolean): Plan {
  const rewardShare = entries[0]?.item.tab?.rewardShare
  if (rewardShare === undefined) return planPayments(batch, entries, hasCode)
  return planTabs({ ...toHead(batch, hasCode), ...tabReserves, rewardShare }, sortByPayer(entries), hasCode)
}

function toHead({ token, feeRecipient, batchId, trigger }: PlannedBatch, hasCode: boolean) {
  const callGas = callGasLimit(hasCode)
  return { token, feeRecipient, batchId, trigger: triggerCodes[trigger], callGasLimit: callGas }
}

function planTabs(
  head: Parameters<typeof encodeSettleTabs>[0],
  entries: PlanEntry[],
  hasCode: boolean,
): TabsPlan {
  const tabs = entries.flatMap(({ item: { tab, provider } }) => {
    const { from: payer, nonce, signature } = provider.authorization
    return tab ? [{ ...tab, payer, nonce, signature }] : []
  })
  const { calldata, splits } = encodeSettleTabs(head, tabs)
  const lines = tabs.reduce((sum, tab) => sum + tab.lines.length, 0)
  const shape = { tabs: tabs.length, lines, splits: splits.length, hasCode }
  const gas = tabBatchGasLimit(shape, toBytes(calldata))
  return { contract: 'tabSettlement', entries, shape: null, calldata, gas }
}

function toBytes(hex: Hex): Uint8Array {
  return Buffer.from(hex.slice(2), 'hex')
}

/** Why a batch that settles as a whole can't; null: all of it is planned, or settled already. */
export function refusalOfWhole(items: readonly BatchItem[], drops: readonly Drop[]): string | null {
  const codes = [
    ...items
      .flatMap(goneHalves)
      .map(({ state }) => (state === 'cancelled' ? 'authorization_cancelled' : 'authorization_used')),
    ...drops.flatMap((drop) => (drop.reason === 'already_settled' ? [] : codeOfDrop(drop))),
  ]
  // A fault of a payment comes before what may be over in a moment.
  return codes.find((code) => code !== 'deferred') ?? codes[0] ?? null
}

/** Why a payment fails that must settle together with others, when one of them can't. */
export function codeOfDrop(drop: Drop): string {
  if (drop.reason === 'failed') return drop.failure.code
  return drop.reason === 'nonce_used' ? 'authorization_used' : 'deferred'
}

/** Halves of an item that nobody can settle any more. */
function goneHalves({ provider, fee }: BatchItem): ItemHalf[] {
  return [provider, fee].filter(
    (half) => half?.state === 'cancelled' || half?.state === 'foreign_use',
  ) as ItemHalf[]
}
