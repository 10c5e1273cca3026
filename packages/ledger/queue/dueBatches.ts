import { estimateFees } from '@tollkeeper/chain/feeEstimate'
import { mostPairs, mostPayments, mostTabs } from '@tollkeeper/chain/gas'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { estimateSettlementCost, readGasTokenPrice } from '@tollkeeper/chain/settlementCost'
import type { Trigger } from '@tollkeeper/sdk/protocol/batchSettlement'
import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'
import { readIsolated } from './isolation.ts'
import { type Lane, laneOf } from './lanes.ts'
import {
  type AwaitedPayment,
  findFullWallet,
  type NextBatchSize,
  type QueuedKind,
  type QueuedPayment,
  type QueueGroup,
  readAwaited,
  readGreatest,
  readGroups,
  readMostUrgent,
  readNextBatchSize,
  readSubmission,
  readWaiting,
  type WaitingInGroup,
} from './queue.ts'
import { createCostRecorder } from './settlingCost.ts'
import { returnDeferred } from './stages.ts'
import { firedTrigger, type TriggerSettings, type WaitingPayments } from './triggers.ts'

/** Payments for which a trigger has fired, the most urgent first; each `high_value` payment is a separate batch. */
export type DueBatch = { lane: Lane; group: QueueGroup; trigger: Trigger; payments: QueuedPayment[] }

export type DueSettings = {
  triggers: TriggerSettings
  priorityFeePerGas: bigint | null
  maxFeePerGas: bigint
  gasTokenUsd: bigint
}

export type DueBatchesOptions = {
  settings: DueSettings
  /** The wallet that would send the transaction, for an estimate of its cost. */
  from: Address
  /** Number of batches to skip; 0 starts with the most urgent payments. */
  page?: number
  /** Returns whether a batch of a lane may begin now. If it may not, the lane's payments aren't read. Default: every lane may. */
  mayBegin?: (lane: Lane) => boolean
  now: Date
}

/**
 * A group with its waiting payments. If a payment's seller may still void it, the payment counts for the triggers only if it was accepted at or
 * before `acceptedBy`.
 */
type Look = { group: QueueGroup; acceptedBy: Date; waiting: WaitingInGroup }

/** Maximum share of a process's time for unsuccessful scans of all provider wallets. After a scan that took 1 s, the next one waits for 10 s. */
const scanShare = 0.1
/** Maximum age in ms of the list of groups, that is, the delay for the first payment of a new group. */
const groupsAgeMs = 1_000
/** Maximum number of payments in an isolated batch, so that it stays below the gas limit even if each payment uses its maximum gas. */
const maxIsolated = 20

/**
 * Reads the due batches of a network, for the keeper that claims them and the gateway that publishes them. It locks nothing: the payments
 * may no longer be available when they are claimed.
 */
export function createDueBatches(sql: Queryable, served: ServedNetwork) {
  const scope = { chainId: served.network.chainId, token: served.token }
  const recordCost = createCostRecorder(sql, scope.chainId)
  const noneFullUntil = new Map<Address, number>()
  let groups: QueueGroup[] = []
  let groupsReadAt = 0

  async function knownGroups(): Promise<QueueGroup[]> {
    if (groups.length === 0 || performance.now() - groupsReadAt >= groupsAgeMs) {
      groupsReadAt = performance.now()
      groups = await readGroups(sql, scope)
    }
    return groups
  }

  /** Creates the search for a provider wallet with enough waiting payments. After a long search without success, it pauses. */
  function createBackoffScan(
    group: QueueGroup,
    which: Parameters<typeof findFullWallet>[3],
  ): QueueReads['findFullWallet'] {
    return async (threshold) => {
      const began = performance.now()
      if (began < (noneFullUntil.get(group.feeRecipient) ?? 0)) return null
      const full = await findFullWallet(sql, group, threshold, which)
      const ended = performance.now()
      if (!full) noneFullUntil.set(group.feeRecipient, ended + (ended - began) / scanShare)
      return full
    }
  }

  /**
   * Reads due batches of payments that callers wait for. They are due once `windowMs` is over or a batch is full. Payers with code go in separate
   * batches.
   */
  async function readFacilitated(group: QueueGroup, now: Date, windowMs: number): Promise<DueBatch[]> {
    const kinds = await Promise.all(
      [false, true].map((hasCode) => readAwaited(sql, group, { hasCode, limit: mostPayments })),
    )
    const isOver = (payments: readonly AwaitedPayment[]) =>
      payments.length === mostPayments || firstDue(payments) + windowMs <= now.getTime()
    return kinds
      .filter((payments) => payments.length > 0 && isOver(payments))
      .toSorted((a, b) => firstDue(a) - firstDue(b))
      .map((payments) => ({ lane: 'facilitator', group, trigger: 'submission', payments }))
  }

  /** Reads an overview of each group's waiting payments, which decides what else must be read. */
  function lookAt(options: DueBatchesOptions): Promise<Look[]> {
    const { settings, now } = options
    const { highValue, minAgeMs } = settings.triggers
    const acceptedBy = new Date(now.getTime() - minAgeMs)
    const read = async (group: QueueGroup) => {
      return { group, acceptedBy, waiting: await readWaiting(sql, group, { highValue, acceptedBy, now }) }
    }
    return knownGroups().then((known) => Promise.all(known.map(read)))
  }

  async function readGroup(
    { group, acceptedBy, waiting }: Look,
    options: DueBatchesOptions,
  ): Promise<DueBatch[]> {
    const { settings, from, page = 0, mayBegin = () => true, now } = options
    const { highValue, windowMs } = settings.triggers
    const { extremes } = waiting
    const [facilitated, isolated] = await Promise.all([
      page === 0 && waiting.isAwaited && mayBegin('facilitator') ? readFacilitated(group, now, windowMs) : [],
      page === 0 && waiting.hasIsolated && mayBegin('isolated')
        ? readIsolated(sql, group, now, maxIsolated)
        : [],
    ])
    const due: DueBatch[] = [...facilitated]
    const add = (lane: Lane, trigger: Trigger, payments: QueuedPayment[]) => {
      if (payments.length > 0) due.push({ lane, group, trigger, payments })
    }
    if (extremes && extremes.largestPayment >= highValue && mayBegin('high_value')) {
      const greatest = await readGreatest(sql, group, {
        threshold: highValue,
        limit: mostPayments + page,
        now,
      })
      add('high_value', 'high_value', greatest.slice(page))
    }
    const kinds = waiting.kinds.filter((kind) => mayBegin(laneOfKind(kind)))
    if (extremes && kinds.length > 0) {
      const reads = {
        findFullWallet: createBackoffScan(group, { below: highValue, acceptedBy }),
        recordCost,
        readSize: () => readNextBatchSize(sql, group, { limit: mostPayments, acceptedBy }),
      }
      const ordinary = { ...extremes, largestPayment: 0n }
      const trigger = await findDueTrigger(served, from, ordinary, settings, reads, now)
      if (trigger) {
        const parts = await Promise.all(
          kinds.map(async (kind) => {
            const limit = kind.isTab ? mostTabs : mostPayments
            const which = { ...kind, now, acceptedBy, below: highValue, limit, skip: page * limit }
            return { lane: laneOfKind(kind), payments: await readMostUrgent(sql, group, which) }
          }),
        )
        const [tabs, others] = [true, false].map((is) => parts.filter(({ lane }) => (lane === 'tab') === is))
        for (const { lane, payments } of others ?? []) add(lane, trigger, payments)
        // Payers with code and payers without code go in separate batches. The batch that has waited longer goes first.
        const byAge = tabs?.toSorted((a, b) => firstAccepted(a.payments) - firstAccepted(b.payments))
        for (const { lane, payments } of byAge ?? []) add(lane, trigger, payments)
      }
    }
    add('isolated', 'time', isolated)
    return due
  }

  return async function readDueBatches(options: DueBatchesOptions): Promise<DueBatch[]> {
    const { mayBegin = () => true } = options
    let looks = await lookAt(options)
    if (looks.some(({ waiting }) => waiting.hasDeferred)) {
      await returnDeferred(sql, scope, options.now)
      looks = await lookAt(options)
    }
    const due: DueBatch[] = []
    const submitted = mayBegin('submission') ? await readSubmission(sql, scope) : []
    const ofSubmitted = looks.find(({ group }) => group.feeRecipient === submitted[0]?.feeRecipient)
    if (ofSubmitted)
      due.push({ lane: 'submission', group: ofSubmitted.group, trigger: 'submission', payments: submitted })
    for (const look of looks) due.push(...(await readGroup(look, options)))
    return due
  }
}

function laneOfKind({ isTab, hasCode }: QueuedKind): Lane {
  return laneOf({ isTab, hasCode, isHighValue: false, isIsolated: false })
}

function firstAccepted(payments: readonly QueuedPayment[]): number {
  return Math.min(...payments.map(({ acceptedAt }) => acceptedAt.getTime()))
}

function firstDue(payments: readonly AwaitedPayment[]): number {
  return Math.min(...payments.map(({ dueAt }) => dueAt.getTime()))
}

export type ReadDueBatches = ReturnType<typeof createDueBatches>

/** Queries of the queue that run only if their result is needed. */
type QueueReads = {
  /** Finds a provider wallet with enough waiting payments, by amount or by number. */
  findFullWallet: (threshold: {
    amount: bigint
    count: number
  }) => Promise<Pick<WaitingPayments, 'paymentCount' | 'amount'> | null>
  /** Records the current cost of settling. */
  recordCost: (cost: bigint, now: Date) => Promise<void>
  /** Reads the size of the next batch. */
  readSize: () => Promise<NextBatchSize>
}

/**
 * Finds the trigger that has fired, by the thresholds for the current cost of settling; null if none has.
 *
 * @param from the wallet that would send the transaction.
 */
async function findDueTrigger(
  served: ServedNetwork,
  from: Address,
  extremes: Omit<WaitingPayments, 'paymentCount' | 'amount'>,
  settings: DueSettings,
  { findFullWallet, recordCost, readSize }: QueueReads,
  now: Date,
): Promise<Trigger | null> {
  const { triggers } = settings
  const [cheap, dear] = [0n, triggers.raisedAboveCost + 1n]
  const urgent = firedTrigger({ ...extremes, paymentCount: 1, amount: 0n }, triggers, cheap, now)
  if (urgent === 'high_value' || urgent === 'expiry') return urgent

  const full = await findFullWallet(triggers)
  if (!full) return urgent
  const whenCheap = firedTrigger({ ...extremes, ...full }, triggers, cheap, now)
  if (firedTrigger({ ...extremes, ...full }, triggers, dear, now) === whenCheap) return whenCheap
  const cost = await costOfSettling(served, from, settings, await readSize())
  await recordCost(cost, now)
  if (cost <= triggers.raisedAboveCost) return whenCheap
  const fuller = await findFullWallet({ amount: triggers.raisedAmount, count: triggers.raisedCount })
  return fuller ? firedTrigger({ ...extremes, ...fuller }, triggers, dear, now) : urgent
}

async function costOfSettling(
  { network, deployment, client }: ServedNetwork,
  from: Address,
  settings: DueSettings,
  { pairs, singles, payees, ...tabs }: NextBatchSize,
): Promise<bigint> {
  const [{ usdPerToken }, fees] = await Promise.all([
    readGasTokenPrice(client, network, settings.gasTokenUsd),
    estimateFees(client, settings),
  ])
  return estimateSettlementCost(client, {
    network,
    contract: deployment.batchSettlement,
    from,
    shape: { pairs: Math.min(pairs, mostPairs), singles, payees, hasCode: false },
    tabs: { ...tabs, hasCode: false },
    gasPrice: fees.baseFeePerGas + fees.maxPriorityFeePerGas,
    usdPerToken,
  })
}
