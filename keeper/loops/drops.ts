import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import { requestLookups } from '@tollkeeper/ledger/facts/record'
import { setHasCode } from '@tollkeeper/ledger/queue/queue'
import { deferPayments, releasePayments } from '@tollkeeper/ledger/queue/stages'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { Drop } from '../settler/plan.ts'
import type { Context } from './context.ts'
import { failPayment } from './failPayment.ts'
import { holdBack } from './holds.ts'
import { reconcileChosen } from './reconcile.ts'
import { noteTokenPaused } from './tokenPause.ts'

/** How long a payment is deferred when the chain and the index don't agree about it yet. */
const deferMs = 5_000
/** How long a payment is deferred while the token is paused. */
const pausedTokenMs = 60_000

/** Releases what a plan leaves out, with the reason of each. An item with one half still planned stays. */
export async function applyDrops(
  context: Context,
  tx: Queryable,
  row: { id: bigint },
  drops: readonly Drop[],
): Promise<void> {
  const { now } = context
  const leaving = drops.filter(({ isPartial }) => isPartial !== true)
  const by = <Reason extends Drop['reason']>(reason: Reason, among: readonly Drop[] = leaving) =>
    among.filter((drop): drop is Extract<Drop, { reason: Reason }> => drop.reason === reason)
  const later = (ms: number) => new Date(now().getTime() + ms)
  const kinds = by('payer_kind_differs')
  const ofKind = (hasCode: boolean) =>
    paymentsOf(kinds.filter((drop) => drop.hasCode === hasCode).map(itemOf))
  const used = paymentsOf(by('nonce_used').map(itemOf))

  const positions = leaving.map((drop) => drop.item.position)
  await releasePayments(tx, row.id, now(), positions)
  await requestLookups(tx, used, now())
  await deferPayments(tx, [...used, ...paymentsOf(by('deferred').map(itemOf))], later(deferMs))
  await holdBack(
    context,
    tx,
    by('held').flatMap(({ item, by: reason }) =>
      paymentsOf([item]).map((paymentId) => ({ paymentId, reason })),
    ),
  )
  const paused = by('token_paused')
  if (paused.length > 0) noteTokenPaused(context)
  await deferPayments(tx, paymentsOf(paused.map(itemOf)), later(pausedTokenMs))
  await setHasCode(tx, ofKind(true), true)
  await setHasCode(tx, ofKind(false), false)
  for (const { item, failure } of by('failed', drops))
    for (const paymentId of paymentsOf([item]))
      await failPayment(context, tx, { ...failure, paymentId, batchId: row.id, isFinal: false })
  await reconcileChosen(context, tx, paymentsOf(by('already_settled').map(itemOf)))
}

function itemOf({ item }: Drop): BatchItem {
  return item
}

export function paymentsOf(items: readonly BatchItem[]): string[] {
  return [...new Set(items.flatMap(({ paymentId }) => paymentId ?? []))]
}
