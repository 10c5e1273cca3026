import { encodePayload } from '#protocol/payload'
import { type BatchRow, closeBatch, lockBatch, setBatchState, setRemoteHash } from '../store/batches.ts'
import { readBatchItems } from '../store/items.ts'
import { type Lease, requireLease } from '../store/leases.ts'
import type { Context } from './context.ts'
import { readIndexState } from './indexState.ts'
import { prepareBatch } from './prepare.ts'
import { applyDrops } from './settle.ts'
import type { StepResult } from './worker.ts'

/** What was handed over and isn't on chain after this long can be claimed again. */
const giveUpMs = 10 * 60_000
const timeoutMs = 30_000

/**
 * Gives a claimed batch to another facilitator's `POST /submit`. That it was given away is stored before the request
 * leaves: whatever happens then, the same transfers are submitted again, which is the same submission there.
 */
export async function handOver(context: Context, lease: Lease, batch: BatchRow): Promise<void> {
  const { sql, served, now, checkpoint } = context
  const { plan, drops } = await prepareBatch(context, batch, served.deployment.batchSettlement)
  await checkpoint('before-handover')
  await sql.begin(async (tx) => {
    await requireLease(tx, lease)
    if (!(await lockBatch(tx, batch.id, 'claimed'))) return
    await applyDrops(context, tx, batch, drops, plan)
    if (plan) await setBatchState(tx, batch.id, 'handed_over')
    else await closeBatch(tx, batch.id, 'nothing_left', now())
  })
  if (plan) await followHandover(context, lease, { ...batch, state: 'handed_over' })
}

/** Submits a batch that was handed over until the other side has answered, then waits for the index to show it. */
export async function followHandover(context: Context, lease: Lease, batch: BatchRow): Promise<StepResult> {
  const { sql, served, settings, now, log } = context
  const isCurrent = (await readIndexState(context)).status === 'current'
  const items = await readBatchItems(sql, context.indexerSchema, batch.id)
  const isSettled =
    isCurrent && items.every(({ provider, fee }) => provider.state === 'settled' && fee?.state !== 'open')
  // An answer that was lost is asked for again, but not for what was settled meanwhile: that would be refused. Without a
  // facilitator of its own, a keeper that looks after another one's batch can only wait for the chain.
  if (batch.remoteHash === null && !isSettled && settings.facilitatorUrl !== null) {
    await submit(context, lease, batch, settings.facilitatorUrl)
    return 'idle'
  }
  if (!isCurrent) return 'idle'
  if (!isSettled && now().getTime() - batch.createdAt.getTime() < giveUpMs) return 'idle'
  await sql.begin(async (tx) => {
    await requireLease(tx, lease)
    if (!(await lockBatch(tx, batch.id, 'handed_over'))) return
    await closeBatch(tx, batch.id, isSettled ? 'settled' : 'released', now())
  })
  log.info(
    { batch: batch.batchId, hash: batch.remoteHash, network: served.network.name, isSettled },
    'handed-over batch closed',
  )
  return 'busy'
}

async function submit(context: Context, lease: Lease, batch: BatchRow, url: string): Promise<void> {
  const { sql, served, settings, now, log, checkpoint } = context
  const items = await readBatchItems(sql, context.indexerSchema, batch.id)
  const transfers = items.flatMap(({ provider, fee }) =>
    [provider, fee].flatMap((half) => (half?.state === 'open' ? [encodePayload(half.authorization)] : [])),
  )
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
  log.warn({ batch: batch.batchId, status: response.status, code }, 'the facilitator did not take the batch')
  // A refusal is definite; anything else may have been taken: the same submission is made again.
  if (response.status < 400 || response.status >= 500 || response.status === 429) return
  await sql.begin(async (tx) => {
    await requireLease(tx, lease)
    if (await lockBatch(tx, batch.id, 'handed_over')) await closeBatch(tx, batch.id, 'released', now())
  })
}
