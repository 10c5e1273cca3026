import { setTimeout as delay } from 'node:timers/promises'
import type { Address } from 'viem'
import type { PayersWithCode } from '#chain/payerCode'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { Database } from '#ledger/database'
import { pairTransfers } from '#ledger/pairTransfers'
import {
  findPayments,
  findTriedInVain,
  insertSubmission,
  readSubmission,
  TransferInProgress,
} from '#ledger/submissions'
import type { Logger } from '#process/log'
import type { RateLimiter } from '#process/rateLimiter'
import { BaseError } from '#protocol/errors'
import type { Checkpoint } from '../loops/context.ts'
import { answerOf, refusalOf, type SubmitAnswer } from './answer.ts'
import { judgeLocally, judgeOnChain, refuseFailures } from './judgeTransfers.ts'
import { nameOf, parseSubmission, type Submission } from './parseSubmission.ts'
import {
  admitCaller,
  countKeyless,
  requireWorthGas,
  type Standing,
  type SubmitCaller,
  type SubmitLimits,
} from './submitRules.ts'

export type SubmitDependencies = {
  sql: Database
  networks: readonly ServedNetwork[]
  platformWallets: readonly Address[]
  /** By network name: which payers have code. */
  payersWithCode: ReadonlyMap<string, PayersWithCode>
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
  const standing = await admitCaller(dependencies, caller)
  const submission = parseSubmission(networks, body)
  await requireWorthGas(dependencies, submission.served.network, submission.transfers, standing)

  const earlier = await readSubmission(sql, submission.key)
  if (earlier?.txHash && earlier.failureCode === null) return answerOf(sql, submission, earlier.txHash)
  if (!earlier || earlier.failureCode !== null) {
    const feeOf = pairFees(dependencies, submission)
    await judge(dependencies, submission, standing, feeOf)
    await checkpoint('before-submission-recorded')
    await store(dependencies, submission, feeOf)
    await checkpoint('after-submission-recorded')
  }
  dependencies.wake()
  const answer = await waitForAnswer(dependencies, submission)
  await checkpoint('before-submission-answer')
  return answer
}

function pairFees({ platformWallets }: SubmitDependencies, { transfers }: Submission): (number | null)[] {
  return pairTransfers(transfers, (address) => platformWallets.some((wallet) => wallet === address))
}

/** The cheapest questions first: our memory, the processor, our tables, the chain. */
async function judge(
  dependencies: SubmitDependencies,
  { served, transfers }: Submission,
  standing: Standing,
  feeOf: readonly (number | null)[],
): Promise<void> {
  const { sql, now, payersWithCode } = dependencies
  const { name, chainId } = served.network
  const mayHaveCode = standing !== 'keyless'
  const { failures, unsigned } = await judgeLocally(served, transfers, { now: now(), mayHaveCode })
  refuseFailures(failures)

  const tried = await findTriedInVain(sql, { chainId, token: served.token }, transfers)
  const detail = 'A transaction of ours tried it, and it failed: sign another authorization'
  refuseFailures(
    transfers.flatMap((one, transfer) =>
      tried.has(nameOf(one)) ? [{ transfer, code: 'settlement_failed', detail }] : [],
    ),
  )
  if (standing === 'keyless') countKeyless(dependencies)

  const codes = payersWithCode.get(name)
  if (!codes) throw new Error(`no payers of ${name} are known`)
  const question = { unsigned, feeOf, mayHaveCode }
  refuseFailures(await judgeOnChain({ served, payersWithCode: codes }, transfers, question))
}

async function store(
  { sql }: SubmitDependencies,
  { served, key, transfers }: Submission,
  feeOf: readonly (number | null)[],
): Promise<void> {
  const { chainId } = served.network
  const known = await findPayments(sql, { chainId, token: served.token }, transfers)
  for (const [index, transfer] of transfers.entries()) {
    const payment = known.get(nameOf(transfer))
    if (!payment) continue
    const details = { transfer: index, paymentId: payment.paymentId }
    if (payment.isVoided) throw new BaseError('payment_voided', undefined, { details })
    // The nonce is spoken for: what was accepted is what gets settled.
    if (payment.isReserved || payment.recipient !== transfer.to || payment.value !== transfer.value) {
      throw new BaseError('payment_replayed', undefined, { details })
    }
  }
  try {
    await sql.begin((tx) =>
      insertSubmission(tx, {
        key,
        chainId,
        token: served.token,
        transfers: transfers.map((authorization, index) => ({
          authorization,
          paymentId: known.get(nameOf(authorization))?.paymentId ?? null,
          feeOf: feeOf[index] ?? null,
        })),
      }),
    )
  } catch (error) {
    if (error instanceof TransferInProgress) {
      throw new BaseError('payment_replayed', 'A transfer is being settled already, in another company', {
        cause: error,
      })
    }
    throw error
  }
}

const pollMs = 50

async function waitForAnswer(
  { sql, now, timeoutMs }: SubmitDependencies,
  submission: Submission,
): Promise<SubmitAnswer> {
  const until = now().getTime() + timeoutMs
  for (;;) {
    const state = await readSubmission(sql, submission.key)
    if (state?.failureCode) throw await refusalOf(sql, submission, state, state.failureCode)
    if (state?.txHash) return answerOf(sql, submission, state.txHash)
    if (now().getTime() >= until) {
      throw new BaseError('dependency_unavailable', 'Not sent yet: ask again with the same transfers')
    }
    await delay(pollMs)
  }
}
