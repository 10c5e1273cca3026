import type { PayerState } from '@tollkeeper/chain/chainReads'
import { failedDependency, isRowFault } from '@tollkeeper/runtime/dependencies'
import { createGroupCommit } from '@tollkeeper/runtime/groupCommit'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Address } from 'viem'
import type { Database } from '../store/database.ts'
import { createDatabaseClock } from '../store/databaseClock.ts'
import { acceptPayments, type Candidate, type Verdict } from './acceptPayments.ts'
import { type PresentedFailure, refuse } from './checkSignatures.ts'
import type { Checked } from './door.ts'
import type { Allowance, Payers } from './payers.ts'

// A commit costs the same for few and many, so a few payments wait for the group under way. With many, one group prepares
// while another waits for the disk.
const maxGroup = 48
const groupsInFlight = 3
const beside = { items: 16, afterMs: 20 }
// Half a second's work of a small machine with one api. Whoever would wait longer should try again.
const maxWaiting = 1_000

/**
 * Stores a candidate and reserves its payer's balance for it.
 *
 * @param state what the chain just said of the payer, if it was asked: then its balance isn't read again.
 * @throws {BaseError} `payer_in_debt`, `payer_quarantined`, `payer_blacklisted`, `token_paused`, `insufficient_balance` or `payer_limit_exceeded`;
 * `gas_not_covered`; `overloaded` where too many wait.
 */
export type Accept = (
  candidate: Candidate,
  payers: Payers,
  state?: PayerState,
  /** Until when its caller waits, by `performance.now()`: nobody is charged without hearing it. */
  deadlineMs?: number,
) => Promise<'accepted' | 'replayed'>

export function createAccept(database: Database): Accept {
  const acceptance = createGroupCommit<Candidate, Verdict>({
    commit: (candidates) => acceptPayments(database, candidates),
    maxItems: maxGroup,
    concurrency: groupsInFlight,
    beside,
    maxWaiting,
    // Keys are free, so one key may not keep the others waiting.
    callerOf: ({ providerId, facilitation, payee }) => facilitation?.providerId ?? providerId ?? payee,
    isItemFault: isRowFault,
  })

  /**
   * Where the database's answer was lost, perhaps after the commit, the same candidate is submitted again: the lock on the payer's
   * row waits for a commit under way, and after that commit the candidate finds itself.
   */
  async function submit(candidate: Candidate): Promise<Verdict> {
    try {
      return await acceptance.submit(candidate)
    } catch (error) {
      if (failedDependency(error) !== 'database') throw error
      const verdict = await acceptance.submit(candidate).catch((again: unknown) => {
        // Nobody knows whether it is stored. `overloaded` would say that it isn't.
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

/** Accepts nothing in as many sessions as can work at a time, so that each is open and has its plans. */
export async function warmSessions(database: Database): Promise<void> {
  await Promise.all(Array.from({ length: groupsInFlight }, () => acceptPayments(database, [])))
}

/** Reserves a payer's balance for a candidate that `submit` stores. */
export function reserveWith(submit: (candidate: Candidate) => Promise<Verdict>): Accept {
  return async (candidate, payers, state) => {
    const needed = candidate.providerAmount + candidate.feeAmount
    let allowance = await payers.allowance(candidate.payer, state)
    // What can't fit is refused without a write. For the rest the database decides.
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
  if (verdict === 'gas_not_covered') throw new BaseError('gas_not_covered')
  if (verdict === 'late') throw tooLate()
  return verdict
}

/** Refuses what came in time but would be answered too late: it isn't accepted. */
export function tooLate(): BaseError {
  return new BaseError('dependency_unavailable', 'It came too late for its caller, and is not accepted')
}

/**
 * Reserves the payers' balances for payments that are stored together, or not at all.
 *
 * @param presented all that is to be settled with them, known payments included.
 * @returns the candidates, with the most that their payers' totals may reach.
 * @throws {PresentedRefused} names all that a payer presented who can't pay.
 */
export async function requireStanding(
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

/** Whether the allowance covers an amount, as of when it was read. */
function covers({ limit, available, unsettled, debt, blockedBy }: Allowance, needed: bigint): boolean {
  if (debt > 0n || blockedBy !== undefined) return false
  return limit === null || unsettled + needed <= available
}

/** Why a payer can buy nothing at any price; undefined: it can buy. */
export function standingRefusal({ debt, blockedBy }: Allowance): BaseError | undefined {
  if (blockedBy !== undefined) return new BaseError(blockedBy)
  if (debt === 0n) return undefined
  return new BaseError(
    'payer_in_debt',
    `${formatUsdc(debt)} USDC of payments that were served are owed: they were cancelled, or could not be settled`,
    { details: { debt: debt.toString() } },
  )
}

/** Why an allowance doesn't cover an amount. */
export function refusalFor(allowance: Allowance, needed: bigint): BaseError {
  const { by, available, unsettled } = allowance
  const refusal = standingRefusal(allowance)
  if (refusal) return refusal
  const details = {
    needed: needed.toString(),
    [by === 'cap' ? 'cap' : 'balance']: available.toString(),
    unsettled: unsettled.toString(),
  }
  if (by === 'cap') return new BaseError('payer_limit_exceeded', undefined, { details })
  return new BaseError(
    'insufficient_balance',
    `Insufficient USDC balance: ${formatUsdc(available)} USDC there, ${formatUsdc(unsettled)} of it promised, ` +
      `${formatUsdc(needed)} needed`,
    { details },
  )
}
