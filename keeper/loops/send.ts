import type { Hex } from 'viem'
import { type BroadcastResult, broadcast } from '#chain/broadcast'
import { type Lease, requireLease } from '#ledger/leases'
import { markTried, type Offer } from '#ledger/transactions'
import type { Context } from './context.ts'

/** Hands out a transaction that is stored already, for the first time or again. */
export async function sendStored(
  context: Context,
  lease: Lease,
  transaction: { hash: Hex; raw: Hex; kind: string },
): Promise<BroadcastResult> {
  const { sql, served, metrics, log, checkpoint } = context
  const { hash, raw, kind } = transaction
  await checkpoint('before-broadcast')
  const result = await broadcast(served.clients, raw, hash)
  await checkpoint('after-broadcast')
  metrics.broadcasts.inc({
    network: served.network.name,
    kind,
    result: result.status === 'rejected' ? result.code : result.status,
  })
  await sql.begin(async (tx) => {
    await requireLease(tx, lease)
    await markTried(tx, hash, result.status === 'sent')
  })
  await checkpoint('after-broadcast-recorded')
  if (result.status !== 'sent') {
    const { status, reason } = result
    log.warn({ hash, wallet: lease.address, status, reason }, 'no node has confirmed to have the transaction')
  }
  return result
}

/** Hands a stored transaction out again, if that was last done long enough ago. */
export async function resendIfDue(
  context: Context,
  lease: Lease,
  transaction: Pick<Offer, 'hash' | 'raw' | 'kind' | 'triedAgoMs'>,
): Promise<BroadcastResult | null> {
  const { triedAgoMs } = transaction
  if (triedAgoMs !== null && triedAgoMs < context.settings.rebroadcastAfterMs) return null
  return sendStored(context, lease, transaction)
}
