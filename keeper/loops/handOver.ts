import { type BatchRow, lockBatch, setBatchState, setRemoteHash } from '#ledger/batches'
import { type BatchItem, markHandedOver, readBatchItems } from '#ledger/items'
import { type Lease, requireLease } from '#ledger/leases'
import { deferPayments, requestChainLookup } from '#ledger/queue'
import { encodePayload } from '#protocol/payload'
import type { Context } from './context.ts'
import { endBatch } from './endBatch.ts'
import { readIndexState } from './indexState.ts'
import { prepareBatch } from './prepare.ts'
import { applyDrops } from './settle.ts'
import type { StepResult } from './worker.ts'

/** What was handed over and isn't on chain after this long can be claimed again. */
const giveUpMs = 10 * 60_000
/** What was refused isn't handed over again before that: the other side may be at work on a part of it. */
const refusedMs = 15_000
const timeoutMs = 30_000

/**
 * Gives a claimed batch to another facilitator's `POST /submit`. What is given away is stored before the request leaves:
 * whatever happens then, the same transfers are submitted again, which is the same submission there.
 */
export async function handOver(context: Context, lease: Lease, batch: BatchRow): Promise<void> {
  const { sql, served, checkpoint } = context
  const { plan, drops } = await prepareBatch(context, batch, served.deployment.batchSettlement)
  if (!plan) {
    await endBatch(context, batch, {
      from: 'claimed',
      lease,
      outcome: 'nothing_left',
      failure: 'authorization_used',
      before: (tx) => applyDrops(context, tx, batch, drops, null),
    })
    return
  }
  await checkpoint('before-handover')
  await sql.begin(async (tx) => {
    await requireLease(tx, lease)
    if (!(await lockBatch(tx, batch.id, 'claimed'))) return
    await applyDrops(context, tx, batch, drops, plan)
    for (const { item, settlement } of plan.entries) {
      const provider = settlement.authorization === item.provider.authorization
      await markHandedOver(tx, batch.id, item.position, {
        provider,
        fee: !provider || settlement.fee !== undefined,
      })
    }
    await setBatchState(tx, batch.id, 'handed_over')
  })
  await followHandover(context, lease, { ...batch, state: 'handed_over' })
}

/** Submits a batch that was handed over until the other side has answered, then waits for the index to show it. */
export async function followHandover(context: Context, lease: Lease, batch: BatchRow): Promise<StepResult> {
  const { sql, served, settings, log } = context
  const isCurrent = (await readIndexState(context)).status === 'current'
  const items = await readBatchItems(sql, batch.id)
  const states = items.flatMap((item) => handedHalves(item).map(({ state }) => state))
  const isOver = isCurrent && !states.includes('open')
  // An answer that was lost is asked for again, but not for what was settled meanwhile: that would be refused. Without a
  // facilitator of its own, a keeper that looks after another one's batch can only wait for the chain.
  if (batch.remoteHash === null && !isOver && settings.facilitatorUrl !== null) {
    await submit(context, lease, batch, settings.facilitatorUrl)
    return 'idle'
  }
  if (!isCurrent) return 'idle'
  if (!isOver && batch.ageMs < giveUpMs) {
    if (states.includes('settled')) await seekTheRest(context, items)
    return 'idle'
  }
  const isSettled = isOver && states.every((state) => state === 'settled')
  const from = 'handed_over'
  await endBatch(
    context,
    batch,
    isSettled
      ? { from, lease, outcome: 'settled' }
      : { from, lease, outcome: 'released', failure: 'put_off' },
  )
  log.info(
    { batch: batch.batchId, hash: batch.remoteHash, network: served.network.name, isSettled },
    'handed-over batch closed',
  )
  return 'busy'
}

/** The other side's transaction is there, and something of it isn't: strangers may have sent that straight to USDC. */
async function seekTheRest({ sql, now }: Context, items: readonly BatchItem[]): Promise<void> {
  for (const item of items) {
    const isOpen = handedHalves(item).some(({ state }) => state === 'open')
    if (isOpen && item.paymentId !== null) await requestChainLookup(sql, item.paymentId, now())
  }
}

/** What the other side was given of an item, provider first. */
function handedHalves({ provider, fee, handedOver }: BatchItem) {
  const given = handedOver ?? 3
  return [given & 1 ? provider : null, given & 2 ? fee : null].filter((half) => half !== null)
}

async function submit(context: Context, lease: Lease, batch: BatchRow, url: string): Promise<void> {
  const { sql, served, settings, now, log, checkpoint } = context
  const items = await readBatchItems(sql, batch.id)
  const transfers = items.flatMap(handedHalves).map(({ authorization }) => encodePayload(authorization))
  await checkpoint('before-handover-request')
  const response = await fetch(new URL('/submit', url), {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(settings.facilitatorKey ? { authorization: `Bearer ${settings.facilitatorKey}` } : {}),
    },
    body: JSON.stringify({ network: served.network.name, transfers }),
    signal: AbortSignal.timeout(timeoutMs),
  })
  await checkpoint('after-handover-request')
  const body: unknown = await response.json().catch(() => null)
  const hash = typeof body === 'object' && body !== null && 'txHash' in body ? body.txHash : null
  if (response.ok && typeof hash === 'string' && /^0x[0-9a-f]{64}$/.test(hash)) {
    await setRemoteHash(sql, batch.id, hash as `0x${string}`)
    await checkpoint('after-handover-recorded')
    log.info({ batch: batch.batchId, hash }, 'batch handed over')
    return
  }
  const code = typeof body === 'object' && body !== null && 'code' in body ? String(body.code) : 'no code'
  // A refusal is definite; anything else may have been taken: the same submission is made again, later and later.
  if (response.status < 400 || response.status >= 500 || response.status === 429) {
    throw new Error(`the facilitator answered ${response.status} (${code}) to batch ${batch.batchId}`)
  }
  log.warn({ batch: batch.batchId, status: response.status, code }, 'the facilitator refused the batch')
  const payments = items.flatMap(({ paymentId }) => paymentId ?? [])
  await endBatch(context, batch, {
    from: 'handed_over',
    lease,
    outcome: 'released',
    failure: 'put_off',
    before: (tx) => deferPayments(tx, payments, new Date(now().getTime() + refusedMs)),
  })
}
