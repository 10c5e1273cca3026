import type { Address } from 'viem'
import type { Failure } from '#chain/failures'
import { transactionGasCap } from '#chain/gas'
import { type At, pinBlock } from '#chain/head'
import { diagnose, isNonceSpent, simulateBatch } from '#chain/simulate'
import type { BatchRow } from '#ledger/batches'
import { readIndexedHead } from '#ledger/indexedHead'
import { type BatchItem, readBatchItems } from '#ledger/items'
import type { Context } from './context.ts'
import { buildPlan, type Plan, type PlanEntry, type PlannedBatch, planEntry } from './plan.ts'

/** Why an item can't be settled in this batch. */
export type Drop =
  | { item: BatchItem; reason: 'done' }
  /** Spent on chain, and the index doesn't say by whom yet. */
  | { item: BatchItem; reason: 'spent' }
  /** Its payer has code, and the batch's others have none, or the other way round. */
  | { item: BatchItem; reason: 'other_class'; hasCode: boolean }
  | { item: BatchItem; reason: 'failed'; failure: Failure }
  /** Not its fault: the batch ran out of gas before it, or the token is paused. */
  | { item: BatchItem; reason: 'put_off' }

export type Prepared = { plan: Plan | null; drops: Drop[] }

/**
 * Asks the chain, on one block that the index has seen or a later one, what a batch would do, and leaves out what would
 * fail.
 *
 * Nothing is written. An RPC that fails throws: it says nothing about any payment.
 */
export async function prepareBatch(context: Context, batch: BatchRow, wallet: Address): Promise<Prepared> {
  const { sql, checkpoint } = context
  await checkpoint('before-simulation')
  const items = await readBatchItems(sql, batch.id)
  const indexed = await readIndexedHead(sql, context.served.network.chainId)
  const prepared = await prepareItems(context, batch, items, wallet, indexed?.blockNumber)
  await checkpoint('after-simulation')
  return prepared
}

/**
 * The same for items that come from anywhere.
 *
 * @param notBefore The oldest block whose state may judge them.
 */
export async function prepareItems(
  context: Pick<Context, 'served' | 'payersWithCode'>,
  batch: PlannedBatch,
  items: readonly BatchItem[],
  wallet: Address,
  notBefore = 0n,
): Promise<Prepared> {
  const { served } = context
  const drops: Drop[] = []
  const wanted: PlanEntry[] = []
  for (const item of items) {
    const entry = planEntry(item, batch)
    if (entry) wanted.push(entry)
    else drops.push({ item, reason: 'done' })
  }

  const withCode = await context.payersWithCode(wanted.map((entry) => entry.settlement.authorization.from))
  const first = wanted[0]
  if (!first) return { plan: null, drops }
  // What was asked for together goes together, budgeted for the dearest of it.
  const isDirect = batch.trigger === 'direct'
  const hasCode = isDirect ? withCode.size > 0 : withCode.has(first.settlement.authorization.from)
  const [same, others] = partition(
    wanted,
    (entry) => isDirect || withCode.has(entry.settlement.authorization.from) === hasCode,
  )
  drops.push(...others.map(({ item }): Drop => ({ item, reason: 'other_class', hasCode: !hasCode })))

  const at = await pinBlock(served.client, notBefore)
  let entries = same
  // Each round drops at least one entry; two are the rule: what failed, and the rest going through.
  while (entries.length > 0) {
    const plan = buildPlan(batch, entries, hasCode)
    const call = {
      from: wallet,
      to: served.deployment.batchSettlement,
      calldata: plan.calldata,
      gas: transactionGasCap,
    }
    const simulation = await simulateBatch(served.client, call, at)
    if (simulation.status === 'reverted')
      throw new Error(`the simulated batch reverted: ${simulation.reason}`)
    const outcomes = simulation.status === 'outcomes' ? simulation.outcomes : null
    const judged = await Promise.all(
      entries.map(async (entry, index) => judge(context, wallet, entry, outcomes?.[index] ?? null, at)),
    )
    drops.push(...judged.flatMap((one) => one.drop ?? []))
    const kept = judged.flatMap((one) => one.keep ?? [])
    if (
      outcomes &&
      kept.length === entries.length &&
      kept.every((entry, index) => entry === entries[index])
    ) {
      return { plan, drops }
    }
    entries = kept
  }
  return { plan: null, drops }
}

type Judged = { keep?: PlanEntry; drop?: Drop }

/** What to do with one entry, given what the simulation made of it (null: the batch as a whole settled nothing). */
async function judge(
  context: Pick<Context, 'served'>,
  wallet: Address,
  entry: PlanEntry,
  outcome: { provider: string; fee: string } | null,
  at: At,
): Promise<Judged> {
  const { item, settlement } = entry
  const { authorization, fee } = settlement
  if (outcome?.provider === 'settled' && (!fee || outcome.fee === 'settled')) return { keep: entry }
  if (outcome?.provider === 'not_tried') return { drop: { item, reason: 'put_off' } }

  // The provider's half goes through, the fee's doesn't: the provider isn't made to wait for it.
  if (outcome?.provider === 'settled' && fee) {
    const single = { item, settlement: { authorization } }
    if (outcome.fee === 'not_tried') return { keep: single }
    const drop = await explain(context, wallet, item, fee, outcome.fee, at)
    return drop.reason === 'failed' ? { keep: single, drop } : { keep: single }
  }
  return { drop: await explain(context, wallet, item, authorization, outcome?.provider ?? 'unknown', at) }
}

async function explain(
  context: Pick<Context, 'served'>,
  wallet: Address,
  item: BatchItem,
  authorization: PlanEntry['settlement']['authorization'],
  outcome: string,
  at: At,
): Promise<Drop> {
  const { client, token } = context.served
  if (outcome === 'used' || (await isNonceSpent(client, token, authorization, at)))
    return { item, reason: 'spent' }
  const failure = await diagnose(client, token, wallet, authorization, at)
  if (failure?.owner === 'race') return { item, reason: 'spent' }
  if (failure?.owner === 'token') return { item, reason: 'put_off' }
  if (failure) return { item, reason: 'failed', failure }
  // Alone it would go through, and in the batch it failed: others of the same payer came first and took the balance.
  if (outcome === 'failed') {
    const detail = 'the balance does not cover what this payer owes in one batch'
    return { item, reason: 'failed', failure: { owner: 'payment', code: 'insufficient_balance', detail } }
  }
  return { item, reason: 'put_off' }
}

function partition<Element>(
  elements: Element[],
  test: (element: Element) => boolean,
): [Element[], Element[]] {
  return [elements.filter(test), elements.filter((element) => !test(element))]
}
