import { hash } from 'node:crypto'
import { countThatFit } from '@tollkeeper/chain/gas'
import type { GasShare } from '@tollkeeper/chain/gasShares'
import { requireStanding } from '@tollkeeper/ledger/acceptance/acceptance'
import type { Candidate } from '@tollkeeper/ledger/acceptance/acceptPayments'
import { PresentedRefused, refuseWhere } from '@tollkeeper/ledger/acceptance/checkSignatures'
import { type Checked, checkPresented, toCandidate } from '@tollkeeper/ledger/acceptance/door'
import { pairTransfers } from '@tollkeeper/ledger/acceptance/pairTransfers'
import {
  findPayments,
  type KnownAuthorization,
  nameOf,
  readReplaced,
  SubmissionConflict,
  storeSubmission,
} from '@tollkeeper/ledger/acceptance/submissions'
import { isOutOfGasMoney } from '@tollkeeper/ledger/batches/leases'
import { giveUpUnsent } from '@tollkeeper/ledger/outcomes/voids'
import { coverSubmission } from '@tollkeeper/ledger/queue/gasDraws'
import { isReservedStage } from '@tollkeeper/ledger/queue/stages'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { encodePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { effectiveRate, minimumPrice, splitPrice } from '@tollkeeper/sdk/protocol/tier'
import {
  answerOf,
  isLetGo,
  isUndecided,
  pendingAnswer,
  refusalOf,
  type SubmitAnswer,
  toRefusal,
} from './answer.ts'
import { type HttpContext, networkOf } from './context.ts'
import { isDecided, isUsedUp } from './facilitator/settlementWatch.ts'
import { parseSubmission, type Submission } from './parseSubmission.ts'
import { admitCaller, priceSubmission, requireOpen, requireValues, type SubmitCaller } from './submitRules.ts'

/**
 * Settles signed transfers (conformance 4.2), all or none, and answers with their transaction.
 *
 * The gas is ours. So whatever could waste it is refused before the chain is asked, and an authorization that we tried in vain
 * isn't tried again.
 *
 * @throws {BaseError} with the answer's code; then nothing was sent.
 */
export async function submitTransfers(
  context: HttpContext,
  body: unknown,
  caller: SubmitCaller,
): Promise<SubmitAnswer> {
  const { sql, checkpoint } = context
  const providerId = await admitCaller(context, caller)
  const mayHaveCode = providerId !== null
  const submission = parseSubmission(context.served, body)
  const { transfers, key } = submission
  requireValues(transfers)

  const known = await findPayments(sql, scopeOf(submission), transfers)
  requireTheirs(submission, known)
  const isUnderWay = transfers.every((one) => {
    const payment = known.get(nameOf(one))
    return payment !== undefined && (payment.ended !== 'failed' || payment.isOut) && !isLetGo(payment, key)
  })
  if (!isUnderWay) {
    if ([...known.values()].some(({ isOut }) => isOut)) throw pendingAnswer()
    const judged = await requireOpen(sql, submission, providerId, (one) => !isNew(known, one))
      .then(() => judge(context, submission, known, mayHaveCode))
      .catch((error: unknown) => {
        if (error instanceof PresentedRefused && [...known.values()].some(({ maySettle }) => maySettle))
          throw pendingAnswer()
        throw (error instanceof PresentedRefused && toRefusal(error.failures)) || error
      })
    await checkpoint('before-submission-recorded')
    await store(context, submission, known, { ...judged, providerId })
    await checkpoint('after-submission-recorded')
  }
  context.wake()
  const answer = await waitForAnswer(context, submission, mayHaveCode)
  await checkpoint('before-submission-answer')
  return answer
}

function scopeOf({ served }: Submission) {
  return { chainId: served.network.chainId, token: served.token }
}

/** Whether a transfer has no payment yet, or only one of a failed submission. */
function isNew(known: ReadonlyMap<string, KnownAuthorization>, transfer: SignedAuthorization): boolean {
  const payment = known.get(nameOf(transfer))
  return payment === undefined || (payment.isSubmission && payment.ended === 'failed')
}

/** Refuses other transfers under a known nonce: what was accepted is what gets settled. */
function requireTheirs({ transfers, key }: Submission, known: ReadonlyMap<string, KnownAuthorization>): void {
  for (const [index, transfer] of transfers.entries()) {
    const payment = known.get(nameOf(transfer))
    if (!payment) continue
    const { paymentId, recipient, value, stage, submission, ended } = payment
    const details = { transfer: index, paymentId }
    if (ended === 'voided') throw new BaseError('payment_voided', undefined, { details })
    if (isReservedStage(stage) || recipient !== transfer.to || value !== transfer.value)
      throw new BaseError('payment_replayed', undefined, { details })
    if (isLetGo(payment, key) && submission !== null)
      throw new BaseError('payment_replayed', 'A transfer is being settled already, in another company', {
        details,
      })
  }
}

function pairFees({ platformWallets }: HttpContext, { transfers }: Submission): (number | null)[] {
  return pairTransfers(transfers, (address) => platformWallets.some((wallet) => wallet === address))
}

/** The new transfers of a submission as payments, and the cost of its transaction. */
type Accepted = { candidates: Candidate[]; cost: GasShare }

/**
 * Judges a submission that has passed the door.
 *
 * @throws {PresentedRefused|BaseError} for transfers that can't be settled now.
 */
async function judge(
  context: HttpContext,
  submission: Submission,
  known: ReadonlyMap<string, KnownAuthorization>,
  mayHaveCode: boolean,
): Promise<Accepted> {
  const { now, signatures } = context
  const { served, transfers } = submission
  const network = networkOf(context, served)
  const seconds = BigInt(Math.floor(now().getTime() / 1000))
  refuseWhere(transfers, ({ validAfter, validBefore }) => {
    if (validAfter >= seconds)
      return {
        code: 'authorization_not_yet_valid',
        detail: `valid after ${validAfter}, and the keeper's clock says ${seconds}: is the payer's clock ahead?`,
      }
    if (validBefore > seconds) return null
    const detail = `valid before ${validBefore}, and the keeper's clock says ${seconds}: is the payer's clock behind?`
    return { code: 'authorization_expired', detail }
  })
  refuseWhere(transfers, (one) =>
    known.get(nameOf(one))?.isTriedInVain ? { code: 'settlement_failed', detail: triedInVain } : null,
  )
  const feeOf = pairFees(context, submission)
  const presented = await checkPresented(transfers, network, {
    ...signatures,
    asksNonces: true,
    asksPayees: true,
    mayHaveCode,
    admit: (hasCode) => requireFit(transfers, feeOf, hasCode),
  })
  const candidates = toCandidates(context, submission, { known, feeOf, presented })
  const replaced = await readReplaced(context.sql, [...known.values()])
  return {
    candidates: await requireStanding(candidates, network.payers, { presented, replaced }),
    cost: await priceSubmission(network.meter, presented, feeOf),
  }
}

const triedInVain = 'A transaction of ours tried it, and it failed: sign another authorization'

/** Requires that a submission fits into one transaction, because its answer names one. */
function requireFit(
  transfers: readonly SignedAuthorization[],
  feeOf: readonly (number | null)[],
  hasCode: boolean,
): void {
  const items = transfers.flatMap(({ to }, index) =>
    feeOf[index] === null ? [{ isPair: feeOf.includes(index), recipient: to }] : [],
  )
  if (countThatFit(items, hasCode) === items.length) return
  throw new BaseError('payload_too_large', 'The transfers need more gas than one transaction may have')
}

type Judged = {
  known: ReadonlyMap<string, KnownAuthorization>
  feeOf: readonly (number | null)[]
  presented: readonly Checked[]
}

/** A submission's transfers that are new, or that failed before, as payments. */
function toCandidates(
  { now, platformWallet }: HttpContext,
  submission: Submission,
  { known, feeOf, presented }: Judged,
): Candidate[] {
  const isNewAt = (index: number) => presented[index] === undefined || isNew(known, presented[index])
  const acceptedAt = now().getTime()
  return presented.flatMap((provider, index): Candidate[] => {
    const isFee = feeOf[index] !== null && isNewAt(feeOf[index] ?? 0)
    if (!isNewAt(index) || isFee) return []
    const of = feeOf.indexOf(index)
    const fee = of >= 0 && isNewAt(of) ? presented[of] : undefined
    const feeAmount = fee?.value ?? 0n
    const price = provider.value + feeAmount
    const both = fee ? ([provider, fee] as const) : ([provider] as const)
    const terms = {
      source: 'submission' as const,
      requestId: null,
      providerId: null,
      endpointId: null,
      first: { stage: 'waiting' as const },
      ...scopeOf(submission),
      payee: provider.to,
      feeRecipient: fee?.to ?? platformWallet,
      splitter: null,
      providerAmount: provider.value,
      feeAmount,
      price,
      tier: price < minimumPrice ? 'ultra-micro' : splitPrice(price).tier,
      effectiveRate: effectiveRate(price, feeAmount),
      resource: '',
      idempotencyKey: null,
      challengedAt: acceptedAt,
      acceptedAt,
      requestHash: hash('sha256', both.map(encodePayload).join('\n')),
    }
    return [toCandidate(terms, both)]
  })
}

/** Stores the new payments of a submission, and makes all of it due: all, or nothing. */
async function store(
  context: HttpContext,
  { key, served }: Submission,
  known: ReadonlyMap<string, KnownAuthorization>,
  { candidates, cost, providerId }: Accepted & { providerId: string | null },
): Promise<void> {
  const { sql, now, gasAllowance: common } = context
  const { gasPerFee } = networkOf(context, served)
  const paid = { cost, gasPerFee, providerId, common }
  await sql
    .begin(async (tx) => {
      const verdicts = await storeSubmission(tx, { key, candidates, known: [...known.values()] }, now())
      if (verdicts.includes('over_limit')) throw new BaseError('insufficient_balance')
      if (verdicts.includes('replayed')) throw new BaseError('payment_replayed')
      await coverSubmission(tx, key, paid, now())
    })
    .catch((error: unknown) => {
      if (!(error instanceof SubmissionConflict)) throw error
      throw new BaseError('payment_replayed', 'A transfer is being settled already, in another company', {
        cause: error,
      })
    })
}

async function waitForAnswer(
  context: HttpContext,
  submission: Submission,
  mayHaveCode: boolean,
): Promise<SubmitAnswer> {
  const { sql, watch, submitTimeoutMs, now } = context
  const { transfers, key } = submission
  const payments = await findPayments(sql, scopeOf(submission), transfers)
  const until = performance.now() + submitTimeoutMs
  const ids = [...new Set([...payments.values()].map(({ paymentId }) => paymentId))]
  const submitted = new Set([...payments.values()].flatMap((one) => (one.isSubmission ? one.paymentId : [])))
  const seen = await Promise.all(
    ids.map(async (id) => {
      const one = await watch.wait(
        id,
        until,
        (one) => isDecided(one) || one.txHash !== null || isLetGo(one, key),
      )
      // A transfer that its payer took back is given up before the caller hears so, or a reorg would bring it back.
      const isTakenBack = one && isUsedUp(one) && !one.isLost && submitted.has(id)
      return isTakenBack && (await giveUpUnsent(sql, id, now())) ? watch.wait(id, 0) : one
    }),
  )
  const progress = new Map(seen.flatMap((one) => (one ? [[one.paymentId, one] as const] : [])))
  const watched = transfers.map((transfer) => {
    const payment = payments.get(nameOf(transfer))
    return { half: payment?.half ?? 0, progress: payment && progress.get(payment.paymentId) }
  })
  // A no is given only once it stays true, even after a reorg.
  if (watched.some((one) => isUndecided(one, key))) throw pendingAnswer(watched)
  const isGivenUp = seen.some(
    (one) =>
      one &&
      ((one.ended === 'failed' && one.state !== 'settled') || one.ended === 'voided' || isLetGo(one, key)),
  )
  if (!isGivenUp) {
    const isUnfunded = await isOutOfGasMoney(sql, submission.served.network.chainId)
    return answerOf(watched, isUnfunded)
  }
  // All of it is given up for the fault of one: only the chain says whose it is.
  const blamed = await judge(context, submission, payments, mayHaveCode).then(
    () => [],
    (error: unknown) => {
      if (error instanceof PresentedRefused) return error.failures
      throw error
    },
  )
  throw refusalOf(watched, blamed)
}
