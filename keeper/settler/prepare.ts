import type { Failure } from '@tollkeeper/chain/failures'
import { bumpFees, type Fees, priceAt } from '@tollkeeper/chain/fees'
import { countSweepsThatFit, estimateBatchGas } from '@tollkeeper/chain/gas'
import type { At } from '@tollkeeper/chain/head'
import { areNoncesSpent, diagnose, isPaused, simulateBatch } from '@tollkeeper/chain/simulate'
import { readWalletState } from '@tollkeeper/chain/walletState'
import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import type { Offer } from '@tollkeeper/ledger/batches/transactions'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { PaymentOutcome } from '@tollkeeper/sdk/protocol/settlement'
import { providerOfSplit } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import { requireFunds, type SettlerContext } from './context.ts'
import type { OpenBatch } from './journal.ts'
import {
  buildPlan,
  type Drop,
  gasRequestOf,
  type PaymentsPlan,
  type Plan,
  type PlanEntry,
  type PlannedBatch,
  planEntry,
  planPayments,
  refusalOfWhole,
} from './plan.ts'
import type { Offerable } from './send.ts'

/** `at_fee_cap`: nothing may be added to the last offer for the nonce, which is `before` if it was another batch's. */
type Preparation =
  | { status: 'at_fee_cap'; before: Offer | undefined }
  | (Offerable & {
      status: 'ready'
      /** What the plan leaves out. */
      dropped: readonly Drop[]
      /** Why a batch that settles as a whole isn't; null: it is, or it may be settled in part. */
      refused: string | null
    })

/** What may go on of a batch, and what is left out, each with its reason. */
type Sifted<Kept> = { kept: Kept; dropped: Drop[] }

/** Who will send the transaction, and its offer: the simulation sees the same gas price and gas limit. */
type Signer = { address: Address; gasPrice?: bigint; fees: Fees; balance: bigint }

/** Gas to diagnose one transfer: the most that its payer's code may use in a batch, and the token's own. */
export const diagnosisGas = 1_000_000n

/**
 * Reads the wallet, and asks the chain, as of one block, what of a batch can be settled now and what to offer for it. It sends nothing.
 *
 * @throws {Unfunded} if the wallet can't pay for it.
 */
export async function prepareBatch(context: SettlerContext, open: OpenBatch): Promise<Preparation> {
  const { served, address, settings, metrics, journal } = context
  const { batch, offers } = open
  const [items, notBefore] = await Promise.all([open.readItems(), context.readNotBefore()])
  const [state] = await Promise.all([
    readWalletState(served, address, settings, notBefore),
    // Asked for now, the answers travel with the others; prepareItems finds them in the cache.
    context.payersWithCode(payersOf(items)),
  ])
  const { balance, at, fees: prices } = state
  metrics.walletBalance.set(
    { network: served.network.name, wallet: address },
    Number(balance / 10n ** 9n) / 1e9,
  )
  // An ended batch's nonce comes back after a reorg, or if no node had taken it. The offer for a nonce only rises.
  const [own] = offers
  const nonce = own?.nonce ?? state.nonce
  const [before] = own ? [] : await journal.readOffers({ from: nonce, below: nonce + 1 })
  const offered = own ?? before
  const fees = offered ? bumpFees(offered, prices, settings.maxFeePerGas) : prices
  if (!fees) return { status: 'at_fee_cap', before }
  const gasPrice = priceAt(fees, prices.baseFeePerGas)
  const signer: Signer = { address, fees, balance, ...(gasPrice !== undefined && { gasPrice }) }
  // A payment whose gas nothing pays for is left out; one that was sent before is offered again at any cost.
  const { kept, dropped } = await prepareItems(context, batch, items, signer, at, own === undefined)
  const offerable = { status: 'ready', nonce, fees, balance } as const
  // POST /submit settles all that was asked for, or nothing.
  const refused = batch.lane === 'direct' && !own ? refusalOfWhole(items, dropped) : null
  if (!kept || refused !== null) return { ...offerable, plan: null, dropped, refused }
  return { ...offerable, plan: await addSweeps(context, open, kept, offerable), dropped, refused }
}

/**
 * Adds sweeps of due splitters to a plan, as many as fit and its fees carry. Settling comes first, since a splitter's money
 * is safe. Only the contract's function for single authorizations sweeps.
 */
async function addSweeps(
  { served, gas }: SettlerContext,
  { batch, readSweeps }: OpenBatch,
  plan: Plan,
  { fees, balance }: { fees: Fees; balance: bigint },
): Promise<Plan> {
  // TabSettlement sweeps nothing.
  if (plan.contract === 'tabSettlement') return plan
  const single = plan.shape.pairs > 0 ? halvePair(batch, plan) : plan
  if (single === null) return plan
  const items = single.entries.map(({ item }) => item)
  const splitters = await readSweeps(items, countSweepsThatFit(single.shape))
  const requests = plan.entries.map((entry) => gasRequestOf(entry, plan.shape.hasCode))
  const later = single === plan ? 0n : estimateBatchGas({ ...single.shape, payees: 0 })
  for (let count = splitters.length; count > 0; count = Math.floor(count / 2)) {
    const sweeps = {
      factory: served.deployment.splitterFactory,
      splitters: splitters.slice(0, count),
    }
    const swept = planPayments(batch, single.entries, single.shape.hasCode, sweeps)
    if (balance < swept.gas * fees.maxFeePerGas) continue
    const added = estimateBatchGas(swept.shape) - estimateBatchGas(plan.shape) + later
    if (await gas.approveSweeps(requests, added)) return swept
  }
  return plan
}

/** The provider's half of a pair that is alone in its batch, whose fee goes in a later one; null: it isn't such a batch. */
function halvePair(batch: PlannedBatch, { entries, shape }: PaymentsPlan): PaymentsPlan | null {
  const [entry] = entries
  if (entry === undefined || entries.length > 1 || shape.hasCode || batch.lane !== 'shared') return null
  const { authorization } = entry.settlement
  return planPayments(batch, [{ item: entry.item, settlement: { authorization } }], false)
}

/**
 * Asks the chain what a batch would do, and leaves out what would fail.
 *
 * Nothing is written. If an RPC fails it throws, since that says nothing about any payment.
 *
 * @param at one block for all calls, which the index has seen, or a later one: see pinBlock.
 * @throws {Unfunded} before anything is simulated: nodes refuse to simulate what can't be paid for.
 */
async function prepareItems(
  context: Pick<SettlerContext, 'served' | 'payersWithCode' | 'gas'>,
  batch: PlannedBatch,
  items: readonly BatchItem[],
  signer: Signer,
  at: At,
  pays: boolean,
): Promise<Sifted<Plan | null>> {
  const { served } = context
  const dropped: Drop[] = []
  /** Notes what a step leaves out. */
  const keep = <Kept>(sifted: Sifted<Kept>): Kept => {
    dropped.push(...sifted.dropped)
    return sifted.kept
  }
  const open = keep(siftOpen(batch, items))
  if (open.length === 0) return { kept: null, dropped }
  const withCode = await context.payersWithCode(payersOf(items))
  const { hasCode, ...ofOneKind } = siftByKind(batch, open, withCode)
  const siftByGas = async (entries: PlanEntry[]) =>
    pays ? leaveUnpaidOut(context, batch, entries, withCode) : { kept: entries, dropped: [] }

  let entries = keep(await siftByGas(keep(ofOneKind)))
  // Each round drops at least one entry. Most often there are two: one finds failures, and in the other the rest passes.
  while (entries.length > 0) {
    const plan = buildPlan(batch, entries, hasCode)
    // An OP-stack chain adds the data's fee; if only that is missing, the nodes refuse the transaction, and it is released then.
    requireFunds(signer.balance, plan.gas * signer.fees.maxFeePerGas)
    const { passes, ...sifted } = await siftBySimulation(served, batch, plan, signer, at)
    const kept = keep(sifted)
    if (passes) return { kept: plan, dropped }
    // The remaining entries share what the others would have borne.
    entries = keep(await siftByGas(kept))
  }
  return { kept: null, dropped }
}

/** Leaves out items of which nothing is to be settled. */
function siftOpen(batch: PlannedBatch, items: readonly BatchItem[]): Sifted<PlanEntry[]> {
  const kept: PlanEntry[] = []
  const dropped: Drop[] = []
  for (const item of items) {
    const entry = planEntry(item, batch)
    if (entry) kept.push(entry)
    else dropped.push({ item, reason: 'already_settled' })
  }
  return { kept, dropped }
}

/** Leaves out entries whose gas nothing pays for. What the others have to draw is reserved. */
async function leaveUnpaidOut(
  { gas }: Pick<SettlerContext, 'gas'>,
  batch: PlannedBatch,
  entries: readonly PlanEntry[],
  withCode: ReadonlySet<Address>,
): Promise<Sifted<PlanEntry[]>> {
  const requests = entries.map((entry) =>
    gasRequestOf(entry, withCode.has(entry.settlement.authorization.from)),
  )
  const holds = await gas.approve(requests, { isWhole: batch.lane === 'direct' })
  return {
    kept: entries.filter((_, index) => !holds[index]),
    dropped: entries.flatMap(({ item }, index): Drop[] => {
      const by = holds[index]
      return by ? [{ item, reason: 'held', by }] : []
    }),
  }
}

/**
 * Simulates a plan, and leaves out what fails.
 *
 * @returns `passes`: all of the plan goes as it is.
 */
async function siftBySimulation(
  served: SettlerContext['served'],
  batch: PlannedBatch,
  { contract, entries, calldata, gas }: Plan,
  signer: Signer,
  at: At,
): Promise<Sifted<PlanEntry[]> & { passes: boolean }> {
  const call = { from: signer.address, to: served.deployment[contract], calldata, gas, ...priceOf(signer) }
  const simulation = await simulateBatch(served.client, call, at)
  if (simulation.status === 'reverted') throw new Error(`the simulated batch reverted: ${simulation.reason}`)
  if (simulation.status === 'payee_refused') {
    const sifted = leavePayeeOut(batch, entries, simulation.account)
    if (sifted.dropped.length === 0) throw new Error(`nothing of the batch pays ${simulation.account}`)
    return { ...sifted, passes: false }
  }
  const outcomes = simulation.status === 'outcomes' ? simulation.outcomes : null
  const causes = await readCauses(served, entries, outcomes, at)
  const sifted = await judgeAll({ served, signer, causes, at }, entries, outcomes)
  const isUnchanged =
    sifted.kept.length === entries.length && sifted.kept.every((entry, index) => entry === entries[index])
  return { ...sifted, passes: outcomes !== null && isUnchanged }
}

/**
 * Leaves out the tabs that pay an account which the token doesn't let be paid in any way: with one of them, no other tab would settle. They
 * are tried again like other failed payments, in case the token's issuer relents, and the payer owes nothing for it.
 */
export function leavePayeeOut(
  { feeRecipient }: Pick<PlannedBatch, 'feeRecipient'>,
  entries: readonly PlanEntry[],
  account: Address,
): Sifted<PlanEntry[]> {
  const pays = ({ item }: PlanEntry) =>
    feeRecipient === account || item.tab?.lines.some(({ split }) => providerOfSplit(split) === account)
  const detail = `the token refuses every way to pay ${account}`
  const failure: Failure = { owner: 'payment', code: 'account_blacklisted', detail }
  return {
    kept: entries.filter((entry) => !pays(entry)),
    dropped: entries.filter(pays).map(({ item }): Drop => ({ item, reason: 'failed', failure })),
  }
}

export function payersOf(items: readonly BatchItem[]): Address[] {
  return items.map(({ provider }) => provider.authorization.from)
}

/**
 * Separates payers with code, each with the most gas that it may use, so that none burns another's gas.
 * Quarantined items go with them, since their payers may have code only while the batch is mined.
 */
function siftByKind(
  batch: PlannedBatch,
  entries: PlanEntry[],
  withCode: ReadonlySet<Address>,
): Sifted<PlanEntry[]> & { hasCode: boolean } {
  const isIsolated = ({ item, settlement }: PlanEntry) =>
    item.isQuarantined === true || withCode.has(settlement.authorization.from)
  // A submission goes together, with enough gas for its most expensive payment.
  if (batch.lane === 'direct') return { kept: entries, dropped: [], hasCode: entries.some(isIsolated) }
  const hasCode = entries[0] !== undefined && isIsolated(entries[0])
  const dropped = entries
    .filter((entry) => isIsolated(entry) !== hasCode)
    .map(({ item }): Drop => ({ item, reason: 'payer_kind_differs', hasCode: !hasCode }))
  return { kept: entries.filter((entry) => isIsolated(entry) === hasCode), dropped, hasCode }
}

function priceOf({ gasPrice }: Signer): { gasPrice?: bigint } {
  return gasPrice === undefined ? {} : { gasPrice }
}

type Causes = { isPaused: boolean; spent: ReadonlySet<SignedAuthorization> }

/** Looks for one cause of many refusals, with one query for all of them. */
async function readCauses(
  { client, token }: SettlerContext['served'],
  entries: readonly PlanEntry[],
  outcomes: readonly PaymentOutcome[] | null,
  at: At,
): Promise<Causes> {
  const refused = entries.flatMap(({ settlement: { authorization, fee } }, index) => {
    const outcome = outcomes?.[index]
    if (outcome?.provider !== 'settled') return [authorization]
    return fee && outcome.fee !== 'settled' ? [fee] : []
  })
  if (refused.length === 0) return { isPaused: false, spent: new Set() }
  const [paused, spent] = await Promise.all([
    isPaused(client, token, at),
    areNoncesSpent(client, token, refused, at),
  ])
  return { isPaused: paused, spent: new Set(refused.filter((_, index) => spent[index])) }
}

/** What is known for the whole batch when each of its entries is judged. */
type Inquiry = { served: SettlerContext['served']; signer: Signer; causes: Causes; at: At }

type Judged = { keep?: PlanEntry; drop?: Drop }

/**
 * Judges each entry, skipped ones last. A skipped entry's payer failed before it: either for want of balance, so that this
 * one fails too, because each payer's least comes first; or for a reason that says nothing of this one.
 */
async function judgeAll(
  inquiry: Inquiry,
  entries: readonly PlanEntry[],
  outcomes: readonly PaymentOutcome[] | null,
): Promise<Sifted<PlanEntry[]>> {
  const tried = await Promise.all(
    entries.map((entry, index) => {
      const outcome = outcomes?.[index] ?? null
      return outcome?.provider === 'skipped' ? null : judge(inquiry, entry, outcome)
    }),
  )
  const broke = new Map<Address, Failure>()
  for (const { drop } of tried.flatMap((one) => one ?? []))
    if (drop?.reason === 'failed' && drop.failure.code === 'insufficient_balance')
      broke.set(drop.item.provider.authorization.from, drop.failure)
  const judged = await Promise.all(
    tried.map(async (one, index): Promise<Judged> => {
      const entry = entries[index]
      if (one || !entry) return one ?? {}
      const { item, settlement } = entry
      const failure = broke.get(settlement.authorization.from)
      if (failure) return { drop: { item, reason: 'failed', failure } }
      const drop = await explain(inquiry, item, settlement.authorization, 'skipped')
      return drop.reason === 'deferred' ? { keep: entry } : { drop }
    }),
  )
  return { kept: judged.flatMap(({ keep }) => keep ?? []), dropped: judged.flatMap(({ drop }) => drop ?? []) }
}

/** Decides about one entry by its outcome in the simulation (null: the batch as a whole settled nothing). */
async function judge(
  inquiry: Inquiry,
  entry: PlanEntry,
  outcome: { provider: string; fee: string } | null,
): Promise<Judged> {
  const { item, settlement } = entry
  const { authorization, fee } = settlement
  if (outcome?.provider === 'settled' && (!fee || outcome.fee === 'settled')) return { keep: entry }
  if (outcome?.provider === 'not_tried') return { drop: { item, reason: 'deferred' } }

  // The provider's half passes and the fee doesn't, so the provider isn't made to wait for the fee.
  if (outcome?.provider === 'settled' && fee) {
    const single = { item, settlement: { authorization } }
    const drop: Drop =
      outcome.fee === 'not_tried'
        ? { item, reason: 'deferred' }
        : await explain(inquiry, item, fee, outcome.fee)
    return { keep: single, drop: { ...drop, isPartial: true } }
  }
  const provider = outcome?.provider ?? 'unknown'
  return { drop: await explain(inquiry, item, authorization, provider) }
}

async function explain(
  { served: { client, token }, signer, causes: { isPaused, spent }, at }: Inquiry,
  item: BatchItem,
  authorization: PlanEntry['settlement']['authorization'],
  outcome: string,
): Promise<Drop> {
  if (outcome === 'used' || spent.has(authorization)) return { item, reason: 'nonce_used' }
  if (outcome === 'expired') {
    const detail = 'its expiry is over'
    return { item, reason: 'failed', failure: { owner: 'payment', code: 'authorization_expired', detail } }
  }
  if (isPaused) return { item, reason: 'token_paused' }
  const failure = await diagnose(client, token, signer.address, authorization, at, {
    // With a price, the node's default limit would require more money than a wallet has.
    ...(signer.gasPrice !== undefined && { gasPrice: signer.gasPrice, gas: diagnosisGas }),
  })
  if (failure?.owner === 'race') return { item, reason: 'nonce_used' }
  if (failure?.owner === 'token') return { item, reason: 'deferred' }
  if (failure) return { item, reason: 'failed', failure }
  // It would pass alone but failed in the batch: others of its payer came first and took the balance.
  if (outcome === 'failed') {
    const detail = 'the balance does not cover what this payer owes in one batch'
    return { item, reason: 'failed', failure: { owner: 'payment', code: 'insufficient_balance', detail } }
  }
  return { item, reason: 'deferred' }
}
