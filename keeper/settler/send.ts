import { type BroadcastResult, broadcast } from '#chain/broadcast'
import type { SettlerContext } from './context.ts'
import type { Offer, OpenBatch, SignedTransaction } from './journal.ts'

/** Hands out a transaction that is stored already, for the first time or again. */
export async function sendStored(
  { served, metrics, log, checkpoint, address }: SettlerContext,
  { markTried }: Pick<OpenBatch, 'markTried'>,
  { hash, raw, kind }: Pick<SignedTransaction, 'hash' | 'raw' | 'kind'>,
): Promise<BroadcastResult> {
  await checkpoint('before-broadcast')
  const result = await broadcast(served.clients, raw, hash)
  await checkpoint('after-broadcast')
  metrics.broadcasts.inc({
    network: served.network.name,
    kind,
    result: result.status === 'rejected' ? result.code : result.status,
  })
  await markTried(hash, result.status === 'sent')
  await checkpoint('after-broadcast-recorded')
  if (result.status !== 'sent') {
    const { status, reason } = result
    log.warn({ hash, wallet: address, status, reason }, 'no node has confirmed to have the transaction')
  }
  return result
}

/** Hands a stored transaction out again, if that was last done long enough ago. */
export async function resendIfDue(
  context: SettlerContext,
  journal: Pick<OpenBatch, 'markTried'>,
  offer: Offer,
): Promise<BroadcastResult | null> {
  const { triedAgoMs } = offer
  if (triedAgoMs !== null && triedAgoMs < context.settings.rebroadcastAfterMs) return null
  return sendStored(context, journal, offer)
}

/** Every node refuses it for want of gas money: the balance went between the look at it and the broadcast. */
export function isUnfunded(result: BroadcastResult | null): boolean {
  return result?.status === 'rejected' && result.code === 'insufficient_gas_funds'
}
