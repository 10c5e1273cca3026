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
} from '@tollkeeper/sdk/protocol/batchSettlement'
import { encodeSplit, type SplitterTerms } from '@tollkeeper/sdk/protocol/splitter'
import { encodeSettleTabs } from '@tollkeeper/sdk/protocol/tabSettlement'
import type { Address, Hex } from 'viem'
import type { GasHold, GasRequest } from './gasPolicy.ts'

/** One entry of the contract's `payments`: both open authorizations of an item, or the only open one. */
export type PlanEntry = { item: BatchItem; settlement: SettlementItem }

/**
 * An item that can't be settled in this batch, and the reason. `isPartial`: only its fee can't be settled, and the provider's part stays in the
 * batch.
 */
export type Drop = { isPartial?: boolean } & DropReason

type DropReason =
  | { item: BatchItem; reason: 'already_settled' }
  /** Its nonce is used or cancelled on chain. The index doesn't show yet by whom. */
  | { item: BatchItem; reason: 'nonce_used' }
  /** Its payer has code but the batch's other payers don't, or vice versa. */
  | { item: BatchItem; reason: 'payer_kind_differs'; hasCode: boolean }
  | { item: BatchItem; reason: 'failed'; failure: Failure }
  /** The batch ran out of gas before this item, which isn't the item's fault. */
  | { item: BatchItem; reason: 'deferred' }
  /** The item is held back because of gas cost. */
  | { item: BatchItem; reason: 'held'; by: GasHold }
  /** The token is paused now. */
  | { item: BatchItem; reason: 'token_paused' }

export type PlannedBatch = Pick<BatchRow, 'batchId' | 'token' | 'feeRecipient' | 'trigger' | 'lane'>

/** A transaction's plan. If its shape has `hasCode`, every authorization has the maximum gas that it may use, so the contract tries each of them. */
export type Plan = PaymentsPlan | TabsPlan
type AnyPlan = { entries: PlanEntry[]; calldata: Hex; gas: bigint }
export type PaymentsPlan = AnyPlan & { contract: 'batchSettlement'; shape: BatchShape }
type TabsPlan = AnyPlan & { contract: 'tabSettlement'; shape: null }

/**
 * Returns the open authorizations of an item as an entry, or null if nothing is left to settle.
 *
 * If two authorizations can't share an entry, for example because their validity differs, they settle one after the other: the fee is
 * sent only after the provider's authorization has settled.
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
  // If the provider's authorization was cancelled, no fee is owed.
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

/** Returns the shape of an item that is a tab, or null if it isn't one. */
export function shapeOfTab({ tab }: BatchItem): QueuedTab | null {
  if (!tab) return null
  const { lines, rewardShare } = tab
  return { rewardShare, lines: lines.length, splits: [...new Set(lines.map(({ split }) => `${split}`))] }
}

/** Returns the time until which an item can settle, in Unix seconds. A tab's `validBefore` also encodes other terms. */
function validUntil({ tab, provider }: BatchItem): bigint {
  return tab ? BigInt(tab.expiry) : provider.authorization.validBefore
}

/** Returns the platform's part of an entry, whether it settled before or settles now. */
function feeOf({ item, settlement }: PlanEntry): bigint {
  const { fee, splitter, tab, means } = item
  if (!fee) return splitter || tab ? sharedFee(item) : (means?.fee ?? 0n)
  const isPaid = fee.state === 'settled' || settlement.authorization === fee.authorization
  return settlement.fee || isPaid ? fee.authorization.value : 0n
}

/** The splitters that a batch sweeps, and their factory. */
export type PlannedSweeps = { factory: Address; splitters: readonly SplitterTerms[] }

/**
 * Sorts entries in the order in which the contract should try them: by payer, so that it skips a payer's other entries after a failure,
 * and by amount, so that if one fails for lack of balance, the larger ones after it would fail as well.
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
 * @param sweeps allowed only if each entry has a single authorization
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
  // A submission may have entries with and without a fee. `settle` accepts both; an entry without a fee then has one signature.
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

/** Builds the plan for the contract that settles these entries. All tabs of a batch have the same reward. */
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

/** Returns the code of the reason why a batch that must settle as a whole can't settle; null if the whole batch is planned or already settled. */
export function refusalOfWhole(items: readonly BatchItem[], drops: readonly Drop[]): string | null {
  const codes = [
    ...items
      .flatMap(goneHalves)
      .map(({ state }) => (state === 'cancelled' ? 'authorization_cancelled' : 'authorization_used')),
    ...drops.flatMap((drop) => (drop.reason === 'already_settled' ? [] : codeOfDrop(drop))),
  ]
  // A payment's fault takes precedence over a temporary reason.
  return codes.find((code) => code !== 'deferred') ?? codes[0] ?? null
}

/** Returns the failure code of payments that must settle together, if one of them was dropped. */
export function codeOfDrop(drop: Drop): string {
  if (drop.reason === 'failed') return drop.failure.code
  return drop.reason === 'nonce_used' ? 'authorization_used' : 'deferred'
}

/** Returns the authorizations of an item that no one can settle any longer. */
function goneHalves({ provider, fee }: BatchItem): ItemHalf[] {
  return [provider, fee].filter(
    (half) => half?.state === 'cancelled' || half?.state === 'foreign_use',
  ) as ItemHalf[]
}
