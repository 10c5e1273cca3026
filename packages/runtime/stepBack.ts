import { failedDependency, isTimeLimit } from './dependencies.ts'
import { describeError, type Logger } from './log.ts'

/** Reports a row with which a loop's step failed: its log line and its metric. `row` names it. */
export type OnBadRow = (step: string, error: unknown, row: Record<string, unknown>) => void

/** Reports bad rows by log lines alone. */
export function logBadRow(log: Logger): OnBadRow {
  return (step, err, row) => {
    log.error({ err, step, ...row }, 'a row could not be processed and will be tried again later')
  }
}

/** Distinguishes a row that fails from a database that is down. */
type RowOptions = {
  /**
   * Asks the database (`select 1`) after a time limit ended the work for a single row. If it throws, the row isn't at fault. Without
   * this function the row is at fault, because the message about the limit came from the database itself.
   */
  ask?: () => Promise<unknown>
}

/** After this many rows in a row that ended in a time limit, the database as a whole is too slow, and the step fails. */
const maxSlowRows = 5

/**
 * Returns a function that reports the row that an error belongs to.
 *
 * That function throws if the row isn't at fault: a dependency is down, or the database is too slow for any row.
 */
function createJudge<Row>(onBadRow: (error: unknown, row: Row) => void, { ask }: RowOptions) {
  let slow = 0
  return {
    succeeded: () => {
      slow = 0
    },
    async failed(error: unknown, row: Row): Promise<void> {
      const isSlow = isTimeLimit(error)
      if (!isSlow && failedDependency(error) !== undefined) throw error
      if (isSlow) await ask?.()
      slow = isSlow ? slow + 1 : 0
      onBadRow(error, row)
      if (slow >= maxSlowRows) throw error
    },
  }
}

/**
 * Does the work for each row. A row that fails is reported, and the others go on: strangers create most rows, so none of them may stop
 * a loop. A row that ends in a time limit of the database also counts as failed.
 *
 * @returns the rows that failed.
 * @throws if a dependency failed, because then no row is at fault.
 */
export async function forEachRow<Row>(
  rows: readonly Row[],
  work: (row: Row) => Promise<unknown>,
  onBadRow: (error: unknown, row: Row) => void,
  options: RowOptions = {},
): Promise<Row[]> {
  const failed: Row[] = []
  const judge = createJudge(onBadRow, options)
  for (const row of rows) {
    try {
      await work(row)
      judge.succeeded()
    } catch (error) {
      await judge.failed(error, row)
      failed.push(row)
    }
  }
  return failed
}

/**
 * Does the work for all rows together, or for `chunk` rows at a time. If a row of a chunk is at fault, the work is done for each row of
 * the chunk alone. If the database ended the work because it took too long, the chunk is halved, down to a single row, which then
 * counts as failed. Later chunks grow again. A chunk whose connection was lost is halved as well if `ask` shows that the database is up,
 * because a transaction that reaches its limit between two statements loses its connection.
 *
 * @param work has no effect if it throws.
 * @returns the rows that failed.
 * @throws if a dependency failed. The work for earlier chunks stays.
 */
export async function allOrEach<Row>(
  rows: readonly Row[],
  work: (rows: readonly Row[]) => Promise<unknown>,
  onBadRow: (error: unknown, row: Row) => void,
  { chunk = rows.length, ask }: RowOptions & { chunk?: number } = {},
): Promise<Row[]> {
  const failed: Row[] = []
  const judge = createJudge(onBadRow, { ...(ask && { ask }) })
  let size = chunk
  /** The end of the chunk that was halved last: chunks grow again after it. */
  let halvedTo = 0
  let alone = 0
  for (let at = 0; at < rows.length; ) {
    const own = rows.slice(at, at + (alone > 0 ? 1 : size))
    try {
      await work(own)
      judge.succeeded()
    } catch (error) {
      if (own.length > 1) {
        const dependency = failedDependency(error)
        if (dependency === undefined) alone = own.length
        else {
          if (!isTimeLimit(error)) {
            if (dependency !== 'database' || ask === undefined) throw error
            await ask()
          }
          size = Math.ceil(own.length / 2)
          halvedTo = Math.max(halvedTo, at + own.length)
        }
        continue
      }
      await judge.failed(error, own[0] as Row)
      failed.push(...own)
    }
    at += own.length
    alone = Math.max(0, alone - own.length)
    if (at >= halvedTo) size = Math.min(size * 2, chunk)
  }
  return failed
}

/**
 * Takes the parts of a loop's step one after the other. A part that fails keeps no other from being taken.
 *
 * @param parts by name.
 * @throws {PartsFailed} once all were taken, if any failed.
 */
export async function takeParts(parts: Readonly<Record<string, () => Promise<unknown>>>): Promise<void> {
  const failures: PartFailure[] = []
  for (const [name, part] of Object.entries(parts)) {
    try {
      await part()
    } catch (error) {
      // The parts of a part have their own names.
      if (error instanceof PartsFailed)
        failures.push(...error.failures.map((one) => ({ ...one, part: `${name}, ${one.part}` })))
      else failures.push({ part: name, error })
    }
  }
  if (failures.length > 0) throw new PartsFailed(failures)
}

type PartFailure = { part: string; error: unknown }

/** Some parts of a loop's step failed. Its message describes each failure in one line, fit for a log. */
export class PartsFailed extends AggregateError {
  override readonly name = 'PartsFailed'
  readonly failures: readonly PartFailure[]

  constructor(failures: readonly PartFailure[]) {
    super(
      failures.map(({ error }) => error),
      failures.map(({ part, error }) => `${part}: ${describeError(error)}`).join('; '),
    )
    this.failures = failures
    // Where each part failed, rather than where the failures were collected.
    this.stack = failures.map(({ error }) => (error instanceof Error ? error.stack : '')).join('\n')
  }
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
