import type { Failure } from '@tollkeeper/chain/failures'
import { readRecordHead, requestLookups } from '@tollkeeper/ledger/facts/record'
import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { setHasCode } from '@tollkeeper/ledger/queue/queue'
import { deferPayments, type Ending, holdPayments, reopenPayments } from '@tollkeeper/ledger/queue/stages'
import {
  type ChainFacts,
  type Decided,
  decideFinalizations,
} from '@tollkeeper/ledger/results/decideFinalization'
import { type OpenPayment, readChosenPayments, writeEndings } from '@tollkeeper/ledger/results/finalizations'
import { unvoidPayments } from '@tollkeeper/ledger/results/voids'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { GasHold } from '../settler/gasPolicy.ts'
import type { Context } from './context.ts'

/** Time in ms for which a payment is held back because of gas cost. */
const holdMs = 15_000

/** A payment that isn't settled now, and the reason. */
export type PaymentMove = { paymentId: string } & (
  | { reason: 'already_settled' }
  /** Its nonce is used or cancelled on chain. The index doesn't show yet by whom. */
  | { reason: 'nonce_used' }
  /** According to the index it was settled or used elsewhere, or it expires soon. */
  | { reason: 'unsettleable' }
  /** Its batch is mined and didn't settle the payment, for a reason that isn't the payment's fault. */
  | { reason: 'unsettled' }
  /** Its batch reverted, possibly before the contract tried the payment. */
  | { reason: 'untried' }
  | { reason: 'deferred' }
  | { reason: 'token_paused' }
  | { reason: 'payer_kind_differs'; hasCode: boolean }
  | { reason: 'held'; by: GasHold }
  /** `isFinal`: no later attempt can succeed. */
  | { reason: 'failed'; failure: Pick<Failure, 'code' | 'detail'>; isFinal?: boolean }
)

/** The consequences for a payment that follow from the reason alone. Other consequences follow from further fields of the move. */
type Consequence = {
  /** Time in ms for which the payment isn't tried again. */
  deferMs?: number
  /** A look-up of who used the payment's nonce is requested. */
  isLookedUp?: true
  /** The payment is reconciled with the record, which may already have its final result. */
  isReconciled?: true
}

const consequences: Record<PaymentMove['reason'], Consequence> = {
  already_settled: { isReconciled: true },
  unsettled: { isReconciled: true },
  // The chain and the index don't agree about the nonce yet.
  nonce_used: { isLookedUp: true, deferMs: 5_000 },
  unsettleable: { deferMs: 15_000 },
  deferred: { deferMs: 5_000 },
  token_paused: { deferMs: 60_000 },
  untried: {},
  payer_kind_differs: {},
  held: {},
  failed: {},
}

/**
 * Moves payments that aren't settled now to the stages that follow from their reasons.
 *
 * @param batchId the batch in which they failed; null if they weren't in a batch
 */
export async function movePayments(
  context: Context,
  tx: Queryable,
  moves: readonly PaymentMove[],
  batchId: bigint | null,
): Promise<void> {
  if (moves.length === 0) return
  const { now } = context
  const idsWhere = (has: (consequence: Consequence, move: PaymentMove) => unknown) => [
    ...new Set(
      moves.filter((move) => has(consequences[move.reason], move)).map(({ paymentId }) => paymentId),
    ),
  ]
  const lookedUp = idsWhere(({ isLookedUp }) => isLookedUp)
  await requestLookups(tx, lookedUp, now())
  for (const ms of new Set(moves.flatMap(({ reason }) => consequences[reason].deferMs ?? []))) {
    const until = new Date(now().getTime() + ms)
    const deferred = idsWhere(({ deferMs }) => deferMs === ms)
    await deferPayments(tx, deferred, until)
  }
  for (const hasCode of [true, false]) {
    const ofKind = idsWhere((_, move) => move.reason === 'payer_kind_differs' && move.hasCode === hasCode)
    await setHasCode(tx, ofKind, hasCode)
  }
  await holdBack(context, tx, moves)
  for (const move of moves) if (move.reason === 'failed') await failPayment(context, tx, move, batchId)
  const reconciled = idsWhere(({ isReconciled }) => isReconciled)
  await reconcileChosen(context, tx, reconciled)
}

/**
 * Holds payments back until gas is cheaper. Payments with the reason `gas_price` aren't marked as held, because that reason applies to the whole
 * network.
 */
async function holdBack({ now }: Context, tx: Queryable, moves: readonly PaymentMove[]): Promise<void> {
  const at = now()
  await holdPayments(tx, heldOf(moves), { until: new Date(at.getTime() + holdMs), now: at })
}

/** Counts held payments in the metrics. Call it after the transaction that moved them has committed. */
export function countHolds({ served, metrics }: Context, moves: readonly PaymentMove[]): void {
  for (const { reason } of heldOf(moves)) metrics.holds.inc({ network: served.network.name, reason })
}

function heldOf(moves: readonly PaymentMove[]) {
  return moves.flatMap((move) =>
    move.reason === 'held' && move.by !== 'gas_price' ? { paymentId: move.paymentId, reason: move.by } : [],
  )
}

/** Records, counts and logs a failure of a payment. Does nothing if the payment is already final. The ledger notifies the provider if needed. */
async function failPayment(
  { served, now, log, metrics }: Context,
  tx: Queryable,
  { paymentId, failure: { code, detail }, isFinal = false }: Extract<PaymentMove, { reason: 'failed' }>,
  batchId: bigint | null,
): Promise<void> {
  const attempts = await recordFailure(tx, { paymentId, batchId, code, detail, isFinal }, { now: now() })
  if (attempts === null) return
  metrics.attempts.inc({ network: served.network.name, result: code })
  log.warn({ payment: paymentId, code, detail, attempts }, 'a payment could not be settled')
}

/** Returns the record's head block and safe block, or null if there is no record yet. */
export async function readChainFacts({
  sql,
  served,
  finalityBlocks,
}: Context): Promise<(ChainFacts & { blockNumber: bigint }) | null> {
  const head = await readRecordHead(sql, served.network.chainId)
  return head && { ...head, safeBlock: head.blockNumber - finalityBlocks }
}

/** Finalizes or reopens payments that have just left a batch, as the record requires. It skips decisions that need a call to the chain. */
export async function reconcileChosen(
  context: Context,
  tx: Queryable,
  paymentIds: readonly string[],
): Promise<void> {
  if (paymentIds.length === 0) return
  const chain = await readChainFacts(context)
  if (chain === null) return
  const decided = decideFinalizations(await readChosenPayments(tx, paymentIds), chain)
  await writeFinalizations(
    context,
    tx,
    decided.filter(({ finalization }) => !('ifUnused' in finalization && finalization.ifUnused)),
  )
}

/** Writes the decided finalizations and reopenings of payments. */
export async function writeFinalizations(
  context: Context,
  tx: Queryable,
  decided: readonly Decided<OpenPayment>[],
): Promise<void> {
  const { now, log } = context
  const endings: Ending[] = []
  const reopened: string[] = []
  const taken: string[] = []
  for (const { payment, finalization } of decided) {
    const { paymentId } = payment
    switch (finalization.action) {
      case 'leave':
        break
      case 'spend':
        endings.push({ paymentId, kind: 'spent', code: null, isFinal: false })
        break
      case 'finalize': {
        const kind = payment.ended === 'failed' ? 'failed' : 'settled'
        endings.push({ paymentId, kind, code: finalization.code, isFinal: true })
        break
      }
      case 'wipe':
        endings.push({ paymentId, kind: 'voided', code: null, isFinal: true })
        break
      case 'fail': {
        const { code, detail } = finalization
        await failPayment(
          context,
          tx,
          { paymentId, reason: 'failed', failure: { code, detail }, isFinal: true },
          null,
        )
        break
      }
      case 'reopen':
        reopened.push(paymentId)
        log.warn({ payment: paymentId }, 'a reorg undid a part of the payment: it is open again')
        break
      case 'unvoid':
        taken.push(paymentId)
        log.error(
          { payment: paymentId },
          'the provider settled a voided payment: the payment is valid again, and its fee is claimed',
        )
    }
  }
  await writeEndings(tx, endings, now())
  await reopenPayments(tx, reopened)
  if (taken.length > 0) await unvoidPayments(tx, taken)
}
