import { estimateFees } from '@tollkeeper/chain/feeEstimate'
import { mostPairs, mostPayments, mostTabs } from '@tollkeeper/chain/gas'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { estimateSettlementCost, readGasTokenPrice } from '@tollkeeper/chain/settlementCost'
import type { Trigger } from '@tollkeeper/sdk/protocol/settlement'
import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'
import type { Lane } from './lanes.ts'
import { readQuarantined } from './quarantine.ts'
import {
  type AwaitedPayment,
  findFullWallet,
  type NextBatchSize,
  type QueuedPayment,
  type QueueGroup,
  readAwaited,
  readExtremes,
  readGreatest,
  readGroups,
  readMostUrgent,
  readNextBatchSize,
  readSubmission,
} from './queue.ts'
import { createCostRecorder } from './settlingCost.ts'
import { returnDeferred } from './stages.ts'
import { firedTrigger, type TriggerSettings, type WaitingPayments } from './triggers.ts'

/** Payments for which a trigger has fired, the most urgent first; each `high_value` one is a batch by itself. */
export type DueBatch = { lane: Lane; group: QueueGroup; trigger: Trigger; payments: QueuedPayment[] }

export type DueSettings = {
  triggers: TriggerSettings
  priorityFeePerGas: bigint | null
  maxFeePerGas: bigint
  gasTokenUsd: bigint
}

export type DueBatchesOptions = {
  settings: DueSettings
  /** Who would send the transaction, for an estimate of its cost. */
  from: Address
  /** How many batches further down the queue to begin; 0: with the most urgent payments. */
  page?: number
  now: Date
}

/** Largest share of the time that we spend on looking at all provider wallets in vain. */
const scanShare = 0.1
/** How long the first payment of a new group may wait to be noticed. */
const groupsAgeMs = 1_000
/** How many payments of a quarantined batch fit under the gas cut when each burns all it may. */
const mostQuarantined = 20

/**
 * Reads what is due on a network, for the keeper that claims it and the gateway that publishes it. It locks
 * and promises nothing: the payments may be gone when they are claimed.
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

  /** Looks for a full wallet, but rests for a while after it looked at very many in vain. */
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

  /** Awaited payments are due once their window is over, or a batch is full. Payers with code go by themselves. */
  async function readFacilitated(group: QueueGroup, now: Date, windowMs: number): Promise<DueBatch[]> {
    const kinds = await Promise.all(
      [false, true].map((hasCode) => readAwaited(sql, group, { hasCode, limit: mostPayments })),
    )
    const isOver = (payments: readonly AwaitedPayment[]) =>
      payments.length === mostPayments || firstDue(payments) + windowMs <= now.getTime()
    return kinds
      .filter((payments) => payments.length > 0 && isOver(payments))
      .toSorted((a, b) => firstDue(a) - firstDue(b))
      .map((payments) => ({ lane: 'facilitator', group, trigger: 'direct', payments }))
  }

  async function readGroup(group: QueueGroup, options: DueBatchesOptions): Promise<DueBatch[]> {
    const { settings, from, page = 0, now } = options
    const { highValue, minAgeMs, windowMs } = settings.triggers
    const acceptedBy = new Date(now.getTime() - minAgeMs)
    const [extremes, facilitated, quarantined] = await Promise.all([
      readExtremes(sql, group, { highValue, acceptedBy, now }),
      page === 0 ? readFacilitated(group, now, windowMs) : [],
      page === 0 ? readQuarantined(sql, group, now, mostQuarantined) : [],
    ])
    const due: DueBatch[] = [...facilitated]
    const add = (lane: Lane, trigger: Trigger, payments: QueuedPayment[]) => {
      if (payments.length > 0) due.push({ lane, group, trigger, payments })
    }
    if (extremes && extremes.largestPayment >= highValue) {
      const greatest = await readGreatest(sql, group, {
        threshold: highValue,
        limit: mostPayments + page,
        now,
      })
      add('high_value', 'high_value', greatest.slice(page))
    }
    if (extremes) {
      const reads = {
        findFullWallet: createBackoffScan(group, { below: highValue, acceptedBy }),
        recordCost,
        readSize: () => readNextBatchSize(sql, group, { limit: mostPayments, acceptedBy }),
      }
      const ordinary = { ...extremes, largestPayment: 0n }
      const trigger = await findDueTrigger(served, from, ordinary, settings, reads, now)
      if (trigger) {
        const readUrgent = (isTab: boolean, hasCode: boolean) => {
          const limit = isTab ? mostTabs : mostPayments
          const which = { now, acceptedBy, isTab, hasCode, below: highValue }
          return readMostUrgent(sql, group, { ...which, limit, skip: page * limit })
        }
        const [shared, code, ...tabs] = await Promise.all([
          readUrgent(false, false),
          readUrgent(false, true),
          readUrgent(true, false),
          readUrgent(true, true),
        ])
        add('shared', trigger, shared)
        add('code', trigger, code)
        // Whichever waits longer goes first: payers with code, or those without.
        for (const payments of tabs.toSorted((a, b) => firstAccepted(a) - firstAccepted(b)))
          add('tab', trigger, payments)
      }
    }
    add('quarantined', 'time', quarantined)
    return due
  }

  return async function readDueBatches(options: DueBatchesOptions): Promise<DueBatch[]> {
    await returnDeferred(sql, scope, options.now)
    const due: DueBatch[] = []
    const submitted = await readSubmission(sql, scope)
    const groups = await knownGroups()
    const group = groups.find(({ feeRecipient }) => feeRecipient === submitted[0]?.feeRecipient)
    if (group) due.push({ lane: 'direct', group, trigger: 'direct', payments: submitted })
    for (const one of groups) due.push(...(await readGroup(one, options)))
    return due
  }
}

function firstAccepted(payments: readonly QueuedPayment[]): number {
  return Math.min(...payments.map(({ acceptedAt }) => acceptedAt.getTime()))
}

function firstDue(payments: readonly AwaitedPayment[]): number {
  return Math.min(...payments.map(({ dueAt }) => dueAt.getTime()))
}

export type ReadDueBatches = ReturnType<typeof createDueBatches>

/** Queries of the queue that run only if their answer matters. */
type QueueReads = {
  /** Finds a provider wallet with enough waiting payments, by amount or by number. */
  findFullWallet: (threshold: {
    amount: bigint
    count: number
  }) => Promise<Pick<WaitingPayments, 'paymentCount' | 'amount'> | null>
  /** Records what settling would cost now. */
  recordCost: (cost: bigint, now: Date) => Promise<void>
  /** Reads the size of the next batch. */
  readSize: () => Promise<NextBatchSize>
}

/**
 * The trigger that has fired, by the thresholds for the current price of settling; null if none has.
 *
 * @param from who would send the transaction.
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
    readGasTokenPrice(client, network.ethUsdFeed, settings.gasTokenUsd),
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
