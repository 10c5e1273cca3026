import type { PayerState } from '@tollkeeper/chain/chainReads'
import { failedDependency, isRowFault } from '@tollkeeper/runtime/dependencies'
import { createGroupCommit } from '@tollkeeper/runtime/groupCommit'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Address } from 'viem'
import { salesStopped } from '../registry/salesStop.ts'
import type { Database } from '../store/database.ts'
import { createDatabaseClock } from '../store/databaseClock.ts'
import { acceptPayments, type Candidate, type Verdict } from './acceptPayments.ts'
import { type PresentedFailure, refuse } from './checkSignatures.ts'
import type { Checked } from './door.ts'
import type { Allowance, Payers } from './payers.ts'

// A commit costs the same for few and many payments. If few payments arrive, they wait up to 20 ms for the group in progress, to share the next
// commit. If many arrive, up to three groups run at the same time: one is prepared while another waits for the disk.
const maxGroup = 48
const groupsInFlight = 3
const beside = { items: 16, afterMs: 20 }
// Maximum number of waiting payments: a small machine with one api stores them in half a second. Further callers get `overloaded` and should retry.
const maxWaiting = 1_000

/**
 * Stores a candidate and reserves its payer's balance for it.
 *
 * @param state the payer's state on chain, if it was just read. Its balance then isn't read again.
 * @throws {BaseError} `payer_in_debt`, `payer_blocked`, `payer_blacklisted`, `token_paused`, `insufficient_balance` or `payer_limit_exceeded`;
 * `sales_stopped`; `gas_not_covered`; `overloaded` if too many payments wait.
 */
export type Accept = (
  candidate: Candidate,
  payers: Payers,
  state?: PayerState,
  /**
   * Time until which the caller waits, by `performance.now()`. After it, the payment isn't accepted, because the caller would not receive the answer.
   */
  deadlineMs?: number,
) => Promise<'accepted' | 'replayed'>

export function createAccept(database: Database): Accept {
  const acceptance = createGroupCommit<Candidate, Verdict>({
    commit: (candidates) => acceptPayments(database, candidates),
    maxItems: maxGroup,
    concurrency: groupsInFlight,
    beside,
    maxWaiting,
    // Take turns among callers: API keys are free, so the payments of one key must not delay those of other keys.
    callerOf: ({ providerId, facilitation, payee }) => facilitation?.providerId ?? providerId ?? payee,
    isItemFault: isRowFault,
  })

  /**
   * Submits a candidate. If the database's answer was lost, perhaps after the commit, this function submits the same candidate again. The second
   * attempt waits for the lock on the payer's row, so it sees whether the first attempt was committed.
   */
  async function submit(candidate: Candidate): Promise<Verdict> {
    try {
      return await acceptance.submit(candidate)
    } catch (error) {
      if (failedDependency(error) !== 'database') throw error
      const verdict = await acceptance.submit(candidate).catch((again: unknown) => {
        // It is unknown whether the candidate is stored. `overloaded` would wrongly state that it isn't.
        throw again instanceof BaseError && again.code === 'overloaded' ? error : again
      })
      if (verdict === 'accepted') return verdict
      const [stored] = await database`select from payment where id = ${candidate.id}`
      return stored ? 'accepted' : verdict
    }
  }

  const accept = reserveWith(submit)
  const clock = createDatabaseClock(database)
  return async (candidate, payers, state, deadlineMs) => {
    if (deadlineMs === undefined) return accept(candidate, payers, state)
    return accept({ ...candidate, deadline: await clock.at(deadlineMs) }, payers, state)
  }
}

/** Accepts an empty group in each database session that groups will use, so that the first payments find open sessions and prepared query plans. */
export async function warmSessions(database: Database): Promise<void> {
  await Promise.all(Array.from({ length: groupsInFlight }, () => acceptPayments(database, [])))
}

/** Creates the function that checks a payer's balance and then stores the candidate with `submit`. */
export function reserveWith(submit: (candidate: Candidate) => Promise<Verdict>): Accept {
  return async (candidate, payers, state) => {
    const needed = candidate.providerAmount + candidate.feeAmount
    let allowance = await payers.allowance(candidate.payer, state)
    // If the cached allowance covers the amount, the database decides. If it doesn't, or if the database finds that the limit is exceeded, read the
    // allowance again.
    if (covers(allowance, needed)) {
      const verdict = await submit({ ...candidate, limit: allowance.limit })
      if (verdict !== 'over_limit') return requireStored(verdict)
    }
    allowance = await payers.freshAllowance(candidate.payer, state)
    if (!covers(allowance, needed)) throw refusalFor(allowance, needed)
    const verdict = await submit({ ...candidate, limit: allowance.limit })
    if (verdict === 'over_limit') throw refusalFor(allowance, needed)
    return requireStored(verdict)
  }
}

function requireStored(verdict: Exclude<Verdict, 'over_limit'>): 'accepted' | 'replayed' {
  if (verdict === 'stopped') throw salesStopped()
  if (verdict === 'gas_not_covered') throw new BaseError('gas_not_covered')
  if (verdict === 'late') throw tooLate()
  return verdict
}

/** Creates the error for a payment that is not accepted because its answer would come too late. */
export function tooLate(): BaseError {
  return new BaseError(
    'dependency_unavailable',
    'The caller’s time limit has passed, so the payment is not accepted',
  )
}

/**
 * Checks the payers of payments that are stored together or not at all.
 *
 * @param presented all authorizations that are to be settled together, including those of payments that are already stored.
 * @returns the candidates, each with its payer's limit.
 * @throws {PresentedRefused} that names all authorizations of a payer who can't pay.
 */
export async function requirePayersInGoodStanding(
  candidates: readonly Candidate[],
  payers: Payers,
  presented: readonly Checked[],
): Promise<Candidate[]> {
  const limits = new Map<Address, bigint | null>()
  const judge = async (payer: Address, own: readonly Checked[]): Promise<PresentedFailure[]> => {
    const needed = sumOf(
      candidates.flatMap((one) => (one.payer === payer ? [one.providerAmount, one.feeAmount] : [])),
    )
    const whole = sumOf(own.map(({ value }) => value))
    const allowance = await payers.freshAllowance(payer, own[0]?.state)
    limits.set(payer, allowance.limit)
    if (covers(allowance, needed) && (allowance.limit === null || whole <= allowance.available)) return []
    const { code, message } = refusalFor(allowance, needed > 0n ? needed : whole)
    return own.map((one) => ({ index: presented.indexOf(one), code, detail: message }))
  }
  const byPayer = [...Map.groupBy(presented, ({ from }) => from)]
  const failures = (await Promise.all(byPayer.map(([payer, own]) => judge(payer, own)))).flat()
  refuse(failures.toSorted((one, other) => one.index - other.index))
  return candidates.map((one) => ({ ...one, limit: limits.get(one.payer) ?? null }))
}

function sumOf(amounts: readonly bigint[]): bigint {
  return amounts.reduce((sum, amount) => sum + amount, 0n)
}

/** Returns whether the allowance covers an amount, at the time it was read. */
function covers({ limit, available, unsettled, debt, blockedBy }: Allowance, needed: bigint): boolean {
  if (debt > 0n || blockedBy !== undefined) return false
  return limit === null || unsettled + needed <= available
}

/** Returns the error of a payer who can buy nothing at any price; undefined if it can buy. */
export function refusalOfPayer({ debt, blockedBy }: Allowance): BaseError | undefined {
  if (blockedBy !== undefined) return new BaseError(blockedBy)
  if (debt === 0n) return undefined
  return new BaseError(
    'payer_in_debt',
    `${formatUsdc(debt)} USDC are owed for served payments that were cancelled or could not be settled`,
    { details: { debt: debt.toString() } },
  )
}

/** Returns the error for an amount that the allowance doesn't cover. */
export function refusalFor(allowance: Allowance, needed: bigint): BaseError {
  const { by, available, unsettled } = allowance
  const refusal = refusalOfPayer(allowance)
  if (refusal) return refusal
  const details = {
    needed: needed.toString(),
    [by === 'cap' ? 'cap' : 'balance']: available.toString(),
    unsettled: unsettled.toString(),
  }
  if (by === 'cap') return new BaseError('payer_limit_exceeded', undefined, { details })
  return new BaseError(
    'insufficient_balance',
    `Insufficient USDC balance: the wallet has ${formatUsdc(available)} USDC and owes ${formatUsdc(unsettled)} for earlier payments. ` +
      `This payment needs ${formatUsdc(needed)}`,
    { details },
  )
}
