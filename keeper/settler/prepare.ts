import type { Failure } from '@tollkeeper/chain/failures'
import { bumpFees, type Fees, priceAt } from '@tollkeeper/chain/fees'
import { countSweepsThatFit, estimateBatchGas, gasCutOf } from '@tollkeeper/chain/gas'
import type { At } from '@tollkeeper/chain/head'
import { postingGasLimit } from '@tollkeeper/chain/postingGas'
import { areNoncesSpent, diagnose, isPaused, simulateBatch } from '@tollkeeper/chain/simulate'
import { readWalletState } from '@tollkeeper/chain/walletState'
import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import type { Offer } from '@tollkeeper/ledger/batches/transactions'
import type { PaymentOutcome } from '@tollkeeper/sdk/protocol/batchSettlement'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { providerOfSplit } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import { requireFunds, type SettlerContext } from './context.ts'
import type { GasControl } from './gasControl.ts'
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

/** `at_fee_cap`: the fee of the last offer for the nonce can't be raised. `before` is that offer if it belongs to another batch. */
type Preparation =
  | { status: 'at_fee_cap'; before: Offer | undefined }
  | (Offerable & {
      status: 'ready'
      /** The items that the plan leaves out. */
      dropped: readonly Drop[]
      /** The code of the reason why a batch that must settle as a whole can't be settled; null if it can, or if the batch may be settled in part. */
      refused: string | null
    })

/** The part of a batch that is kept, and the items that are left out, each with its reason. */
type Sifted<Kept> = { kept: Kept; dropped: Drop[] }

/** The sender of the transaction and its offer. The simulation uses the same gas price and gas limit. */
type Signer = { address: Address; gasPrice?: bigint; fees: Fees; balance: bigint }

/** Gas limit for diagnosing one transfer. It covers the maximum gas that a payer's code gets in a batch, and the token's own gas. */
export const diagnosisGas = 1_000_000n

/**
 * Reads the wallet, and determines by the state of one block which part of a batch can be settled now, and the fee to offer for it. It sends nothing.
 *
 * @param setAside wei of the balance that other transactions in flight may cost
 * @throws {Unfunded} if the wallet can't pay for it
 */
export async function prepareBatch(
  context: SettlerContext,
  open: OpenBatch,
  setAside: bigint,
): Promise<Preparation> {
  const { served, address, settings, metrics, journal } = context
  const { batch, offers } = open
  const [items, notBefore] = await Promise.all([open.readItems(), context.readNotBefore()])
  const [state] = await Promise.all([
    readWalletState(served, address, settings, notBefore),
    // Fills the cache in parallel with the other reads, for prepareItems.
    context.payersWithCode(payersOf(items)),
  ])
  const { at, fees: prices } = state
  const labels = { network: served.network.name, wallet: address }
  metrics.walletBalance.set(labels, Number(state.balance / 10n ** 9n) / 1e9)
  // Create the series at 0: Prometheus sees no increase in a series whose first value isn't 0, so alerts would miss that value.
  metrics.spentEther.inc(labels, 0)
  metrics.signerFailures.inc({ ...labels, code: 'signer_mismatch' }, 0)
  // The nonce may have been offered before by another batch, which is closed: its nonce is free again after a reorg, or if no node had
  // accepted its transaction. A new offer for the same nonce must be higher.
  const [own] = offers
  const nonce = own?.nonce ?? firstFree(state.nonce, await journal.readNonces(state.nonce))
  const [before] = own ? [] : await journal.readOffers({ from: nonce, below: nonce + 1 })
  const offered = own ?? before
  const fees = offered ? bumpFees(offered, prices, settings.maxFeePerGas) : prices
  if (!fees) return { status: 'at_fee_cap', before }
  const gasPrice = priceAt(fees, prices.baseFeePerGas)
  const balance = state.balance > setAside ? state.balance - setAside : 0n
  const signer: Signer = { address, fees, balance, ...(gasPrice !== undefined && { gasPrice }) }
  // Leaves out payments that must be held back because of gas cost. Payments that were sent before are offered again at any cost.
  const { kept, dropped } = await prepareItems(context, open, items, signer, at, own === undefined)
  const offerable = { status: 'ready', nonce, fees, balance } as const
  // POST /submit settles all of its transfers, or none.
  const refused = batch.lane === 'submission' && !own ? refusalOfWhole(items, dropped) : null
  if (!kept || refused !== null) return { ...offerable, plan: null, dropped, refused }
  return { ...offerable, plan: await addSweeps(context, open, kept, offerable), dropped, refused }
}

/** Returns the lowest nonce, starting from the chain's next one, that no open batch has. So a gap before an open batch is filled first. */
function firstFree(nextNonce: number, taken: ReadonlySet<number>): number {
  let nonce = nextNonce
  while (taken.has(nonce)) nonce += 1
  return nonce
}

/**
 * Adds sweeps of due splitters to a plan, as many as fit and as the plan's fees cover. Payments come first, because a splitter's money is safe. Only
 * the contract's function for single authorizations can sweep.
 */
async function addSweeps(
  { served }: SettlerContext,
  { batch, gas, readSweeps }: OpenBatch,
  plan: Plan,
  { fees, balance }: { fees: Fees; balance: bigint },
): Promise<Plan> {
  // TabSettlement can't sweep.
  if (plan.contract === 'tabSettlement') return plan
  const single = plan.shape.pairs > 0 ? halvePair(batch, plan) : plan
  if (single === null) return plan
  const items = single.entries.map(({ item }) => item)
  const splitters = await readSweeps(items, countSweepsThatFit(single.shape, gasCutOf(served.network)))
  const requests = plan.entries.map((entry) => gasRequestOf(entry, plan.shape.hasCode))
  const later = single === plan ? 0n : estimateBatchGas({ ...single.shape, payees: 0 })
  for (let count = splitters.length; count > 0; count = Math.floor(count / 2)) {
    const sweeps = {
      factory: served.deployment.splitterFactory,
      splitters: splitters.slice(0, count),
    }
    const swept = await addPosting(served, planPayments(batch, single.entries, single.shape.hasCode, sweeps))
    if (balance < swept.gas * fees.maxFeePerGas) continue
    const added = estimateBatchGas(swept.shape) - estimateBatchGas(plan.shape) + later
    if (await gas.approveSweeps(requests, added)) return swept
  }
  return plan
}

/**
 * Returns a plan for only the provider's part of a pair that is alone in its batch. The pair's fee settles later. Returns null for any other batch.
 */
function halvePair(batch: PlannedBatch, { entries, shape }: PaymentsPlan): PaymentsPlan | null {
  const [entry] = entries
  if (entry === undefined || entries.length > 1 || shape.hasCode || batch.lane !== 'shared') return null
  const { authorization } = entry.settlement
  return planPayments(batch, [{ item: entry.item, settlement: { authorization } }], false)
}

/**
 * Simulates a batch on the chain, and leaves out items that would fail.
 *
 * It writes nothing. If an RPC fails, it throws, because the failure proves nothing about any payment.
 *
 * @param at the block whose state all calls read: the index's newest block or a later one, see `pinBlock`
 * @throws {Unfunded} before the simulation, because nodes refuse to simulate transactions that the sender can't pay for
 */
async function prepareItems(
  context: Pick<SettlerContext, 'served' | 'payersWithCode'>,
  { batch, gas }: Pick<OpenBatch, 'batch' | 'gas'>,
  items: readonly BatchItem[],
  signer: Signer,
  at: At,
  pays: boolean,
): Promise<Sifted<Plan | null>> {
  const { served } = context
  const dropped: Drop[] = []
  /** Collects the items that a step leaves out. */
  const keep = <Kept>(sifted: Sifted<Kept>): Kept => {
    dropped.push(...sifted.dropped)
    return sifted.kept
  }
  const open = keep(siftOpen(batch, items))
  if (open.length === 0) return { kept: null, dropped }
  const withCode = await context.payersWithCode(payersOf(items))
  const { hasCode, ...ofOneKind } = siftByKind(batch, open, withCode)
  const siftByGas = async (entries: PlanEntry[]) =>
    pays ? leaveUnpaidOut(gas, batch, entries, withCode) : { kept: entries, dropped: [] }

  let entries = keep(await siftByGas(keep(ofOneKind)))
  // Each round drops at least one entry. If there are failures, there are usually two rounds: the first finds them, and the second
  // passes with the remaining entries.
  while (entries.length > 0) {
    const plan = await addPosting(served, buildPlan(batch, entries, hasCode))
    // An OP-stack chain adds a fee for the data. If the wallet can't pay only that fee, the nodes refuse the transaction, and the batch
    // is released later.
    requireFunds(signer.balance, plan.gas * signer.fees.maxFeePerGas)
    const { passes, ...sifted } = await siftBySimulation(served, batch, plan, signer, at)
    const kept = keep(sifted)
    if (passes) return { kept: plan, dropped }
    // The remaining entries now share the gas that the dropped entries would have paid for.
    entries = keep(await siftByGas(kept))
  }
  return { kept: null, dropped }
}

/** Raises a plan's gas limit by the gas for posting its data to L1, on chains that charge for it as gas. */
async function addPosting<Planned extends Plan>(
  { client, network, deployment }: SettlerContext['served'],
  plan: Planned,
): Promise<Planned> {
  const { calldata: data, contract } = plan
  const posting = await postingGasLimit({ client, network }, { to: deployment[contract], data })
  return posting === 0n ? plan : { ...plan, gas: plan.gas + posting }
}

/** Leaves out items that have nothing left to settle. */
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

/** Leaves out entries whose gas neither their fees nor a draw covers. Reserves the draws of the remaining entries. */
async function leaveUnpaidOut(
  gas: GasControl,
  batch: PlannedBatch,
  entries: readonly PlanEntry[],
  withCode: ReadonlySet<Address>,
): Promise<Sifted<PlanEntry[]>> {
  const requests = entries.map((entry) =>
    gasRequestOf(entry, withCode.has(entry.settlement.authorization.from)),
  )
  const holds = await gas.approve(requests, { isWhole: batch.lane === 'submission' })
  return {
    kept: entries.filter((_, index) => !holds[index]),
    dropped: entries.flatMap(({ item }, index): Drop[] => {
      const by = holds[index]
      return by ? [{ item, reason: 'held', by }] : []
    }),
  }
}

/**
 * Simulates a plan, and leaves out entries that fail.
 *
 * @returns `passes`: whether the whole plan can be sent unchanged
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
    if (sifted.dropped.length === 0) throw new Error(`no tab of the batch pays ${simulation.account}`)
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
 * Leaves out the tabs that pay an account to which the token refuses every transfer. If one of these tabs stayed in the batch, the whole batch
 * would revert. The tabs that are left out are retried like other failed payments, in case the token's issuer unblocks the account, and their
 * payers incur no debt.
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
 * Separates payers with code from the others. Each payer with code gets the maximum gas that it may use, so that it can't burn the gas of
 * other payers. Isolated items are treated like items of payers with code, because their payers may have code only while the batch is mined.
 */
function siftByKind(
  batch: PlannedBatch,
  entries: PlanEntry[],
  withCode: ReadonlySet<Address>,
): Sifted<PlanEntry[]> & { hasCode: boolean } {
  const isIsolated = ({ item, settlement }: PlanEntry) =>
    item.isIsolated === true || withCode.has(settlement.authorization.from)
  // A submission stays together, and each of its payments gets as much gas as its most expensive one needs.
  if (batch.lane === 'submission') return { kept: entries, dropped: [], hasCode: entries.some(isIsolated) }
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

/** Reads the common causes of refusals (a paused token, used nonces) with one query for all refused entries. */
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

/** The facts about a whole batch by which each of its entries is judged. */
type Inquiry = { served: SettlerContext['served']; signer: Signer; causes: Causes; at: At }

type Judged = { keep?: PlanEntry; drop?: Drop }

/**
 * Judges each entry, and skipped entries last. The contract skips an entry if an earlier entry of the same payer failed. If the earlier entry
 * failed for lack of balance, the skipped entry fails as well, because each payer's smallest amount comes first. Any other reason doesn't
 * apply to the skipped entry.
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

/** Judges one entry by its outcome in the simulation. The outcome is null if the simulation reverted because nothing in the batch settled. */
async function judge(
  inquiry: Inquiry,
  entry: PlanEntry,
  outcome: { provider: string; fee: string } | null,
): Promise<Judged> {
  const { item, settlement } = entry
  const { authorization, fee } = settlement
  if (outcome?.provider === 'settled' && (!fee || outcome.fee === 'settled')) return { keep: entry }
  if (outcome?.provider === 'not_tried') return { drop: { item, reason: 'deferred' } }

  // The provider's authorization passes but the fee doesn't. The provider must not wait for the fee.
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
    const detail = 'the tab has expired'
    return { item, reason: 'failed', failure: { owner: 'payment', code: 'authorization_expired', detail } }
  }
  if (isPaused) return { item, reason: 'token_paused' }
  const failure = await diagnose(client, token, signer.address, authorization, at, {
    // If a price is set, the call needs a gas limit: at the node's default limit, it would need more money than a wallet has.
    ...(signer.gasPrice !== undefined && { gasPrice: signer.gasPrice, gas: diagnosisGas }),
  })
  if (failure?.owner === 'race') return { item, reason: 'nonce_used' }
  if (failure?.owner === 'token') return { item, reason: 'deferred' }
  if (failure) return { item, reason: 'failed', failure }
  // The transfer would succeed alone but failed in the batch, because earlier transfers of its payer used the balance.
  if (outcome === 'failed') {
    const detail = 'the balance does not cover all payments of this payer in one batch'
    return { item, reason: 'failed', failure: { owner: 'payment', code: 'insufficient_balance', detail } }
  }
  return { item, reason: 'deferred' }
}
