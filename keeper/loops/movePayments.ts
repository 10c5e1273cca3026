import type { Failure } from '@tollkeeper/chain/failures'
import { readRecordHead, requestLookups } from '@tollkeeper/ledger/facts/record'
import { type OpenPayment, readChosenPayments, writeEndings } from '@tollkeeper/ledger/outcomes/conclusions'
import {
  type ChainFacts,
  type Decided,
  decideConclusions,
} from '@tollkeeper/ledger/outcomes/decideConclusion'
import { unvoidPayments } from '@tollkeeper/ledger/outcomes/voids'
import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { setHasCode } from '@tollkeeper/ledger/queue/queue'
import { deferPayments, type Ending, holdPayments, reopenPayments } from '@tollkeeper/ledger/queue/stages'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { GasHold } from '../settler/gasPolicy.ts'
import type { Context } from './context.ts'

/** How long a payment is left alone when nothing pays for its gas. */
const holdMs = 15_000

/** Why a payment isn't settled now. */
export type PaymentMove = { paymentId: string } & (
  | { reason: 'already_settled' }
  /** Used or cancelled on chain; the index doesn't say yet by whom. */
  | { reason: 'nonce_used' }
  /** The index says that it was settled or used elsewhere, or that it is about to expire. */
  | { reason: 'unsettleable' }
  /** Its batch is mined and didn't settle it, for no reason of its own. */
  | { reason: 'unsettled' }
  /** Its batch reverted, perhaps before it was tried. */
  | { reason: 'untried' }
  | { reason: 'deferred' }
  | { reason: 'token_paused' }
  | { reason: 'payer_kind_differs'; hasCode: boolean }
  | { reason: 'held'; by: GasHold }
  /** `isFinal`: no later attempt can succeed. */
  | { reason: 'failed'; failure: Pick<Failure, 'code' | 'detail'>; isFinal?: boolean }
)

/** What follows for a payment. What isn't said here, the move says itself. */
type Consequence = {
  /** For how many ms it isn't tried. */
  deferMs?: number
  /** Who used its nonce is looked up. */
  isLookedUp?: true
  /** The record may show its end already. */
  isReconciled?: true
}

const consequences: Record<PaymentMove['reason'], Consequence> = {
  already_settled: { isReconciled: true },
  unsettled: { isReconciled: true },
  // The chain and the index don't agree about it yet.
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
 * Moves payments that aren't settled now to where their reasons lead.
 *
 * @param batchId the batch in which they failed; null: they weren't in one.
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

/** Holds payments until gas is cheaper. If it is too expensive for all of them, that is no reason of their own. */
async function holdBack({ now }: Context, tx: Queryable, moves: readonly PaymentMove[]): Promise<void> {
  const at = now()
  await holdPayments(tx, heldOf(moves), { until: new Date(at.getTime() + holdMs), now: at })
}

/** Counts the payments that were held back. Call it after the transaction that moved them has committed. */
export function countHolds({ served, metrics }: Context, moves: readonly PaymentMove[]): void {
  for (const { reason } of heldOf(moves)) metrics.holds.inc({ network: served.network.name, reason })
}

function heldOf(moves: readonly PaymentMove[]) {
  return moves.flatMap((move) =>
    move.reason === 'held' && move.by !== 'gas_price' ? { paymentId: move.paymentId, reason: move.by } : [],
  )
}

/** Counts a failure of a payment that is still ours to fail, logs it, and notifies its provider if it must. */
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

/** Reads how far the record has come; null if there is none. */
export async function readChainFacts({
  sql,
  served,
  finalityBlocks,
}: Context): Promise<(ChainFacts & { blockNumber: bigint }) | null> {
  const head = await readRecordHead(sql, served.network.chainId)
  return head && { ...head, safeBlock: head.blockNumber - finalityBlocks }
}

/** Reconciles payments that have just left a batch with the record, but leaves out what needs a call to the chain. */
export async function reconcileChosen(
  context: Context,
  tx: Queryable,
  paymentIds: readonly string[],
): Promise<void> {
  if (paymentIds.length === 0) return
  const chain = await readChainFacts(context)
  if (chain === null) return
  const decided = decideConclusions(await readChosenPayments(tx, paymentIds), chain)
  await writeConclusions(
    context,
    tx,
    decided.filter(({ conclusion }) => !('ifUnused' in conclusion && conclusion.ifUnused)),
  )
}

/** Ends or reopens payments as decided. */
export async function writeConclusions(
  context: Context,
  tx: Queryable,
  decided: readonly Decided<OpenPayment>[],
): Promise<void> {
  const { now, log } = context
  const endings: Ending[] = []
  const reopened: string[] = []
  const taken: string[] = []
  for (const { payment, conclusion } of decided) {
    const { paymentId } = payment
    switch (conclusion.action) {
      case 'leave':
        break
      case 'spend':
        endings.push({ paymentId, kind: 'spent', code: null, isFinal: false })
        break
      case 'conclude': {
        const kind = payment.ended === 'failed' ? 'failed' : 'settled'
        endings.push({ paymentId, kind, code: conclusion.code, isFinal: true })
        break
      }
      case 'wipe':
        endings.push({ paymentId, kind: 'voided', code: null, isFinal: true })
        break
      case 'fail': {
        const { code, detail } = conclusion
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
        log.warn({ payment: paymentId }, 'a reorg gave a part of the payment back')
        break
      case 'unvoid':
        taken.push(paymentId)
        log.error(
          { payment: paymentId },
          'a voided payment was settled by its provider: it counts again, its fee is claimed',
        )
    }
  }
  await writeEndings(tx, endings, now())
  await reopenPayments(tx, reopened)
  if (taken.length > 0) await unvoidPayments(tx, taken)
}
