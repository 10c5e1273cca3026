import { keccak256 } from 'viem'
import { estimateFees } from '#chain/feeEstimate'
import { bumpFees, type Fees } from '#chain/fees'
import { readNonce } from '#chain/receipts'
import type { ServedNetwork } from '#chain/servedNetworks'
import { type BatchRow, lockBatch, releaseItem, setBatchState } from '#ledger/batches'
import type { Queryable } from '#ledger/database'
import { recordFailure } from '#ledger/failures'
import { type Lease, requireLease } from '#ledger/leases'
import { deferPayments, requestChainLookup, setPayerHasCode } from '#ledger/queue'
import { insertTransaction, type NewTransaction, readDearestBetween } from '#ledger/transactions'
import type { Context, SettlementWallet } from './context.ts'
import { endBatch } from './endBatch.ts'
import { findMissingFunds, isUnfunded, releaseUnfunded } from './funds.ts'
import type { Plan } from './plan.ts'
import { type Drop, prepareBatch } from './prepare.ts'
import { resendIfDue, sendStored } from './send.ts'

/** How long a payment is put off when the chain and the index don't agree about it yet. */
const putOffMs = 5_000

/**
 * Takes a claimed batch, of which nothing is signed yet, to its first broadcast: asks the chain, drops what would fail,
 * signs, stores the transaction, and only then sends it.
 */
export async function settleClaimed(
  context: Context,
  lease: Lease,
  wallet: SettlementWallet,
  batch: BatchRow,
): Promise<void> {
  const { sql, served, settings, log } = context
  const began = performance.now()
  const { plan, drops } = await prepareBatch(context, batch, wallet.address)
  // POST /submit has one hash to answer with: all that was asked for, or nothing.
  const isIncomplete = batch.trigger === 'direct' && drops.some((drop) => drop.reason !== 'done')
  if (!plan || isIncomplete) {
    await abandon(context, lease, batch, drops)
    return
  }

  const [nonce, current] = await Promise.all([
    readNonce(served.clients, wallet.address),
    estimateFees(served.client, settings),
  ])
  // Of a batch that is over: a reorg gave its nonce back, or no node had taken it. What is offered for a nonce only rises.
  const [before] = await readDearestBetween(sql, lease, { from: nonce, below: nonce + 1 })
  const fees = before ? bumpFees(before, current, settings.maxFeePerGas) : current
  if (before && !fees) await resendIfDue(context, lease, before)
  if (!fees) return
  const missing = await findMissingFunds(context, wallet.address, plan.gas, fees)
  if (missing) {
    await releaseUnfunded(context, lease, batch, missing)
    return
  }

  const transaction = await signPlan(context, wallet, batch, plan, nonce, fees, 'settle')
  await context.checkpoint('before-write-ahead')
  await sql.begin(async (tx) => {
    await requireLease(tx, lease)
    if (!(await lockBatch(tx, batch.id, 'claimed')))
      throw new Error(`batch ${batch.batchId} is not claimed any more`)
    await applyDrops(context, tx, batch, drops, plan)
    await insertTransaction(tx, transaction)
    await setBatchState(tx, batch.id, 'broadcast')
  })
  await context.checkpoint('after-write-ahead')
  log.info(
    {
      batch: batch.batchId,
      trigger: batch.trigger,
      wallet: wallet.address,
      hash: transaction.hash,
      payments: plan.entries.length,
    },
    'batch signed',
  )
  const sent = await sendStored(context, lease, transaction)
  context.metrics.triggerToBroadcast.observe(
    { network: served.network.name },
    (batch.ageMs + performance.now() - began) / 1000,
  )
  if (isUnfunded(sent)) await releaseUnfunded(context, lease, { ...batch, state: 'broadcast' }, null)
}

/** Signs a plan; the hash is known from here on, before anybody else has seen the bytes. */
export async function signPlan(
  { served }: Context,
  wallet: SettlementWallet,
  batch: BatchRow,
  plan: Plan,
  nonce: number,
  fees: Fees,
  kind: NewTransaction['kind'],
): Promise<NewTransaction> {
  const signed = await signTransaction(served, wallet, plan, nonce, fees, kind)
  return { ...signed, batchId: batch.id, chainId: served.network.chainId, wallet: wallet.address }
}

/** The same without a row of ours that it belongs to. */
export async function signTransaction(
  served: ServedNetwork,
  wallet: SettlementWallet,
  { calldata, gas }: Pick<Plan, 'calldata' | 'gas'>,
  nonce: number,
  { maxFeePerGas, maxPriorityFeePerGas }: Fees,
  kind: NewTransaction['kind'],
) {
  const raw = await wallet.sign({
    chainId: served.network.chainId,
    // A cancellation only uses the nonce up.
    to: kind === 'cancellation' ? wallet.address : served.deployment.batchSettlement,
    data: calldata,
    nonce,
    gas,
    maxFeePerGas,
    maxPriorityFeePerGas,
  })
  return { hash: keccak256(raw), nonce, kind, raw, gas, maxFeePerGas, maxPriorityFeePerGas }
}

/** Ends a batch of which nothing can be settled now. */
async function abandon(context: Context, lease: Lease, batch: BatchRow, drops: Drop[]): Promise<void> {
  await endBatch(context, batch, {
    from: 'claimed',
    lease,
    outcome: 'nothing_left',
    failure: failureOf(drops),
    before: (tx) => applyDrops(context, tx, batch, drops, null),
  })
  context.log.info({ batch: batch.batchId, dropped: drops.length }, 'nothing of the batch can be settled now')
}

function failureOf(drops: Drop[]): string {
  const failed = drops.find((drop) => drop.reason === 'failed')
  return failed
    ? failed.failure.code
    : drops.some((drop) => drop.reason === 'put_off')
      ? 'put_off'
      : 'authorization_used'
}

/** Lets go of what a plan leaves out, each for its reason. An item of which one half is still planned stays. */
export async function applyDrops(
  context: Context,
  tx: Queryable,
  batch: BatchRow,
  drops: Drop[],
  plan: Plan | null,
): Promise<void> {
  const { now, settings, metrics, served, log } = context
  const planned = new Set(plan?.entries.map((entry) => entry.item.position))
  const network = served.network.name
  for (const drop of drops) {
    const { position, paymentId } = drop.item
    if (!planned.has(position)) await releaseItem(tx, batch.id, position)
    if (paymentId === null) continue
    switch (drop.reason) {
      case 'done':
        break
      case 'spent':
        await requestChainLookup(tx, paymentId, now())
        await deferPayments(tx, [paymentId], new Date(now().getTime() + putOffMs))
        break
      case 'put_off':
        await deferPayments(tx, [paymentId], new Date(now().getTime() + putOffMs))
        break
      case 'other_class':
        await setPayerHasCode(tx, paymentId, drop.hasCode)
        break
      case 'failed': {
        const { code, detail } = drop.failure
        const attempts = await recordFailure(
          tx,
          { paymentId, batchId: batch.id, code, detail, isFinal: false },
          { now: now(), leadMs: settings.triggers.expiryLeadMs },
        )
        metrics.attempts.inc({ network, result: code })
        log.warn(
          { payment: paymentId, batch: batch.batchId, code, attempts },
          'settlement failed in the simulation',
        )
      }
    }
  }
}
