import { failedDependency } from './dependencies.ts'
import type { Logger } from './log.ts'

/** Reports a row with which a loop's step failed: its log line and its metric. `row` names it. */
export type OnBadRow = (step: string, error: unknown, row: Record<string, unknown>) => void

/** Reports bad rows by log lines alone. */
export function logBadRow(log: Logger): OnBadRow {
  return (step, err, row) => {
    log.error({ err, step, ...row }, 'a row could not be processed and will be tried again later')
  }
}

/**
 * Does the work for each row. A row that fails is reported, and the others go on: strangers create most rows, so none of them may stop
 * a loop.
 *
 * @returns the rows that failed.
 * @throws if a dependency failed, because then no row is at fault.
 */
export async function forEachRow<Row>(
  rows: readonly Row[],
  work: (row: Row) => Promise<unknown>,
  onBadRow: (error: unknown, row: Row) => void,
): Promise<Row[]> {
  const failed: Row[] = []
  for (const row of rows) {
    try {
      await work(row)
    } catch (error) {
      if (failedDependency(error) !== undefined) throw error
      onBadRow(error, row)
      failed.push(row)
    }
  }
  return failed
}

/**
 * Does the work for all rows together. If one of them is at fault, it is done for each row alone, as by {@link forEachRow}.
 *
 * @param work has no effect if it throws.
 * @returns the rows that failed.
 */
export async function allOrEach<Row>(
  rows: readonly Row[],
  work: (rows: readonly Row[]) => Promise<unknown>,
  onBadRow: (error: unknown, row: Row) => void,
): Promise<Row[]> {
  if (rows.length === 0) return []
  try {
    await work(rows)
    return []
  } catch (error) {
    if (failedDependency(error) !== undefined) throw error
    return forEachRow(rows, (row) => work([row]), onBadRow)
  }
}

/**
 * Takes the parts of a loop's step one after the other. A part that fails keeps no other from being taken.
 *
 * @throws the first part's error, once all were taken.
 */
export async function takeParts(...parts: readonly (() => Promise<unknown>)[]): Promise<void> {
  const failures: unknown[] = []
  for (const part of parts) await part().catch((error: unknown) => failures.push(error))
  if (failures.length > 0) throw failures[0]
}

/** Pause after a row's first failure. It doubles with each further one. */
const firstPauseMs = 5_000
const maxPauseMs = 600_000

/** The pause after this many failures of a row. */
export function pauseAfter(failures: number): number {
  return Math.min(firstPauseMs * 2 ** Math.min(failures - 1, 20), maxPauseMs)
}

/** The oldest failures beyond this number are forgotten, and their rows are tried again. */
const maxRows = 100_000

export type StepBack<Key> = {
  /** The rows that aren't to be tried yet: leave them out where the next rows are chosen, or they stay at the head. */
  waiting(): Key[]
  isWaiting(key: Key): boolean
  failed(key: Key): void
  succeeded(key: Key): void
}

/**
 * Keeps when each failed row is tried again. It is kept in memory: after a restart every row is tried once, which is enough to
 * let the others pass.
 */
export function createStepBack<Key>(now: () => number = Date.now): StepBack<Key> {
  const rows = new Map<Key, { failures: number; retryAt: number }>()
  const isWaiting = (key: Key) => (rows.get(key)?.retryAt ?? Number.NEGATIVE_INFINITY) > now()
  return {
    waiting: () => [...rows.keys()].filter(isWaiting),
    isWaiting,
    failed(key) {
      const failures = (rows.get(key)?.failures ?? 0) + 1
      rows.delete(key)
      rows.set(key, { failures, retryAt: now() + pauseAfter(failures) })
      const [oldest] = rows.keys()
      if (rows.size > maxRows) rows.delete(oldest as Key)
    },
    succeeded: (key) => void rows.delete(key),
  }
}
