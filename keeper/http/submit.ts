import { hash } from 'node:crypto'
import type { Address } from 'viem'
import type { GasMeter } from '#chain/gasShares'
import type { PayersWithCode } from '#chain/payerCode'
import type { ServedNetwork } from '#chain/servedNetworks'
import { reserveTogether } from '#ledger/acceptance/acceptance'
import type { Candidate, Verdict } from '#ledger/acceptance/acceptPayments'
import { toCandidate } from '#ledger/acceptance/door'
import { pairTransfers } from '#ledger/acceptance/pairTransfers'
import type { Payers } from '#ledger/acceptance/payers'
import {
  findPayments,
  findTriedInVain,
  type KnownAuthorization,
  nameOf,
  readReplaced,
  SubmissionConflict,
  storeSubmission,
} from '#ledger/acceptance/submissions'
import { coverSubmission } from '#ledger/queue/gasDraws'
import type { Database } from '#ledger/store/database'
import type { Logger } from '#process/log'
import type { RateLimiter } from '#process/rateLimiter'
import { BaseError } from '#protocol/errors'
import { encodePayload } from '#protocol/payload'
import { effectiveRate, minimumPrice, splitPrice } from '#protocol/tier'
import type { Checkpoint } from '../settings/checkpoints.ts'
import type { SubmitLimits } from '../settings/settings.ts'
import { answerOf, isLetGo, refusalOf, type SubmitAnswer } from './answer.ts'
import { isDecided, type SettlementWatch } from './facilitator/settlementWatch.ts'
import { judgeLocally, judgeOnChain, refuseFailures, type TransferFailure } from './judgeTransfers.ts'
import { parseSubmission, type Submission } from './parseSubmission.ts'
import { admitCaller, priceSubmission, requireValues, type SubmitCaller } from './submitRules.ts'

export type SubmitDependencies = {
  sql: Database
  networks: readonly ServedNetwork[]
  platformWallets: readonly Address[]
  /** By network name: which payers have code, and what gas costs and may cost. */
  payersWithCode: ReadonlyMap<string, PayersWithCode>
  gas: ReadonlyMap<string, { meter: GasMeter; gasPerFee: bigint; gasAllowance: bigint }>
  /** What is known of the payers, by chain. */
  payers: ReadonlyMap<number, Payers>
  watch: SettlementWatch
  rateLimiter: RateLimiter
  limits: SubmitLimits
  now: () => Date
  /** Milliseconds that a caller is kept waiting for its hash. */
  timeoutMs: number
  /** Tells the workers that there is something to do. */
  wake: () => void
  checkpoint: Checkpoint
  log: Logger
}

/**
 * Settles signed transfers (SPEC.md 4.2), all or none, and answers with the transaction that carries them.
 *
 * The gas is ours, so everything that could waste it is refused before the chain is asked, and what we have tried in vain
 * is not tried again.
 *
 * @throws {BaseError} with the code that the answer is to carry; nothing was sent then.
 */
export async function submitTransfers(
  dependencies: SubmitDependencies,
  body: unknown,
  caller: SubmitCaller,
): Promise<SubmitAnswer> {
  const { sql, networks, checkpoint } = dependencies
  const providerId = await admitCaller(dependencies, caller)
  const mayHaveCode = providerId !== null
  const submission = parseSubmission(networks, body)
  const { transfers, key } = submission
  requireValues(transfers)

  const known = await findPayments(sql, scopeOf(submission), transfers)
  requireTheirs(submission, known)
  const isUnderWay = transfers.every((one) => {
    const payment = known.get(nameOf(one))
    return payment !== undefined && payment.ended !== 'failed' && !isLooseOf(payment, key)
  })
  if (!isUnderWay) {
    const feeOf = pairFees(dependencies, submission)
    const withCode = await judge(dependencies, submission, mayHaveCode, feeOf)
    await checkpoint('before-submission-recorded')
    await store(dependencies, submission, { known, feeOf, withCode, providerId })
    await checkpoint('after-submission-recorded')
  }
  dependencies.wake()
  const answer = await waitForAnswer(dependencies, submission, mayHaveCode)
  await checkpoint('before-submission-answer')
  return answer
}

function scopeOf({ served }: Submission) {
  return { chainId: served.network.chainId, token: served.token }
}

/** Whether a payment waits, and not yet as a part of this submission. */
function isLooseOf({ stage, submission }: KnownAuthorization, key: string): boolean {
  return stage !== null && stage !== 'claimed' && stage !== 'sent' && submission !== key
}

/** The nonce of what is known is spoken for: what was accepted is what gets settled. */
function requireTheirs({ transfers, key }: Submission, known: ReadonlyMap<string, KnownAuthorization>): void {
  for (const [index, transfer] of transfers.entries()) {
    const payment = known.get(nameOf(transfer))
    if (!payment) continue
    const { paymentId, recipient, value, stage, submission, ended } = payment
    const details = { transfer: index, paymentId }
    if (ended === 'voided') throw new BaseError('payment_voided', undefined, { details })
    if (stage === 'reserved' || recipient !== transfer.to || value !== transfer.value)
      throw new BaseError('payment_replayed', undefined, { details })
    if (isLooseOf(payment, key) && submission !== null)
      throw new BaseError('payment_replayed', 'A transfer is being settled already, in another company', {
        details,
      })
  }
}

function pairFees({ platformWallets }: SubmitDependencies, { transfers }: Submission): (number | null)[] {
  return pairTransfers(transfers, (address) => platformWallets.some((wallet) => wallet === address))
}

/** @throws {BaseError} for what can't be settled now. */
async function judge(
  dependencies: SubmitDependencies,
  submission: Submission,
  mayHaveCode: boolean,
  feeOf: readonly (number | null)[],
): Promise<ReadonlySet<Address>> {
  refuseFailures(await findFailures(dependencies, submission, mayHaveCode, feeOf))
  return payersOf(dependencies, submission)(submission.transfers.map(({ from }) => from))
}

/** The cheapest questions first: our memory, the processor, our tables, the chain. */
async function findFailures(
  dependencies: SubmitDependencies,
  submission: Submission,
  mayHaveCode: boolean,
  feeOf: readonly (number | null)[],
): Promise<readonly TransferFailure[]> {
  const { served, transfers } = submission
  const { failures, unsigned } = await judgeLocally(served, transfers, {
    ...{ now: dependencies.now(), mayHaveCode },
  })
  if (failures.length > 0) return failures

  const tried = await findTriedInVain(dependencies.sql, scopeOf(submission), transfers)
  const detail = 'A transaction of ours tried it, and it failed: sign another authorization'
  const inVain = transfers.flatMap((one, transfer): TransferFailure[] =>
    tried.has(nameOf(one)) ? [{ transfer, code: 'settlement_failed', detail }] : [],
  )
  if (inVain.length > 0) return inVain
  const payersWithCode = payersOf(dependencies, submission)
  return judgeOnChain({ served, payersWithCode }, transfers, { unsigned, feeOf, mayHaveCode })
}

function payersOf({ payersWithCode }: SubmitDependencies, { served }: Submission): PayersWithCode {
  const codes = payersWithCode.get(served.network.name)
  if (!codes) throw new Error(`no payers of ${served.network.name} are known`)
  return codes
}

type Judged = {
  known: ReadonlyMap<string, KnownAuthorization>
  feeOf: readonly (number | null)[]
  withCode: ReadonlySet<Address>
  providerId: string | null
}

/** Stores what of a submission is new, and makes all of it due: all, or nothing. */
async function store(
  { sql, now, payers, platformWallets, gas }: SubmitDependencies,
  submission: Submission,
  { known, feeOf, withCode, providerId }: Judged,
): Promise<void> {
  const { served, transfers, key } = submission
  const [platformWallet] = platformWallets
  const payersOf = payers.get(served.network.chainId)
  const spending = gas.get(served.network.name)
  if (!platformWallet || !payersOf || !spending)
    throw new Error(`${served.network.name} is served without its payers`)
  const isNew = (index: number) => {
    const payment = transfers[index] && known.get(nameOf(transfers[index]))
    return payment === undefined || (payment.isSubmission && payment.ended === 'failed')
  }
  const acceptedAt = now().getTime()
  const candidates = transfers.flatMap((provider, index): Candidate[] => {
    const isFee = feeOf[index] !== null && isNew(feeOf[index] ?? 0)
    if (!isNew(index) || isFee) return []
    const of = feeOf.indexOf(index)
    const fee = of >= 0 && isNew(of) ? transfers[of] : undefined
    const feeAmount = fee?.value ?? 0n
    const price = provider.value + feeAmount
    const presented = fee ? ([provider, fee] as const) : ([provider] as const)
    const terms = {
      ...{ source: 'submission' as const, requestId: null, providerId: null, endpointId: null },
      first: { stage: 'waiting' as const },
      ...scopeOf(submission),
      ...{ payee: provider.to, feeRecipient: fee?.to ?? platformWallet, splitter: null },
      ...{ providerAmount: provider.value, feeAmount, price },
      tier: price < minimumPrice ? 'ultra-micro' : splitPrice(price).tier,
      effectiveRate: effectiveRate(price, feeAmount),
      ...{ resource: '', idempotencyKey: null, challengedAt: acceptedAt, acceptedAt },
      requestHash: hash('sha256', presented.map(encodePayload).join('\n')),
    }
    return [toCandidate(terms, presented, { hasCode: withCode.has(provider.from), acceptedBlocks: [] })]
  })
  const held = [...known.values()]
  const cost = await priceSubmission(spending.meter, transfers, feeOf, withCode)
  const paid = { cost, gasPerFee: spending.gasPerFee, providerId, common: spending.gasAllowance }
  const storeAll = (limited: Candidate[]) =>
    sql.begin(async (tx) => {
      const verdicts = await storeSubmission(tx, { key, candidates: limited, known: held }, now())
      const refused = verdicts.find((verdict) => verdict !== 'accepted')
      if (refused) throw new NotAllAccepted(verdicts)
      await coverSubmission(tx, key, paid, now())
      return verdicts
    })
  const storeOrRefuse = (limited: Candidate[]) =>
    storeAll(limited).catch((error: unknown) => {
      if (error instanceof NotAllAccepted) return error.verdicts
      if (!(error instanceof SubmissionConflict)) throw error
      throw new BaseError('payment_replayed', 'A transfer is being settled already, in another company', {
        cause: error,
      })
    })
  await reserveTogether(candidates, payersOf, storeOrRefuse, await readReplaced(sql, held))
}

/** Rolls back what was stored of a submission that isn't accepted as a whole. */
class NotAllAccepted extends Error {
  override name = 'NotAllAccepted'
  readonly verdicts: Verdict[]

  constructor(verdicts: Verdict[]) {
    super('not all of the submission was accepted')
    this.verdicts = verdicts
  }
}

async function waitForAnswer(
  dependencies: SubmitDependencies,
  submission: Submission,
  mayHaveCode: boolean,
): Promise<SubmitAnswer> {
  const { sql, watch, timeoutMs } = dependencies
  const { transfers, key } = submission
  const payments = await findPayments(sql, scopeOf(submission), transfers)
  const until = performance.now() + timeoutMs
  const ids = [...new Set([...payments.values()].map(({ paymentId }) => paymentId))]
  const seen = await Promise.all(
    ids.map((id) =>
      watch.wait(id, until, (one) => isDecided(one) || one.txHash !== null || isLetGo(one, key)),
    ),
  )
  const progress = new Map(seen.flatMap((one) => (one ? [[one.paymentId, one] as const] : [])))
  const watched = transfers.map((transfer) => {
    const payment = payments.get(nameOf(transfer))
    return { half: payment?.half ?? 0, progress: payment && progress.get(payment.paymentId) }
  })
  const isGivenUp = seen.some(
    (one) => one && (one.ended === 'failed' || one.ended === 'voided' || isLetGo(one, key)),
  )
  if (!isGivenUp) return answerOf(watched)
  // All of it is given up for the fault of one: only the chain says whose it is.
  const feeOf = pairFees(dependencies, submission)
  throw refusalOf(watched, await findFailures(dependencies, submission, mayHaveCode, feeOf))
}
