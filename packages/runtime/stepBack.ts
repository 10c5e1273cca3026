import { failedDependency, isTimeLimit } from './dependencies.ts'
import { describeError, type Logger } from './log.ts'

/** Reports a row on which a loop's step failed, by a log line and a metric. `row` identifies the row. */
export type OnBadRow = (step: string, error: unknown, row: Record<string, unknown>) => void

/** Reports failed rows only in the log. */
export function logBadRow(log: Logger): OnBadRow {
  return (step, err, row) => {
    log.error({ err, step, ...row }, 'a row could not be processed and will be tried again later')
  }
}

/** How the step finds out whether a row or the database is at fault. */
type RowOptions = {
  /**
   * Asks the database (`select 1`) after the work for a single row reached a time limit. If this function throws, the database is down, and the row
   * isn't at fault. Default: the row is at fault, because only a database that is up can report a time limit.
   */
  ask?: () => Promise<unknown>
}

/** If this many consecutive rows end in a time limit, the database as a whole counts as too slow, and the step fails. */
const maxSlowRows = 5

/**
 * Creates a function that reports the row to which an error belongs.
 *
 * That function throws if the row isn't at fault, because a dependency is down or the database is too slow for any row.
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
 * Processes each row. If a row fails, reports it and continues with the next row. Strangers create most rows, so no single row may
 * stop a loop. A row that reaches a time limit of the database also counts as failed.
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
 * Processes all rows together, or `chunk` rows at a time.
 *
 * - If a row of a chunk is at fault, the rows of that chunk are processed one by one.
 * - If the database ended the work because it took too long, the chunk is halved, if necessary down to a single row, which then
 *   counts as failed. Later chunks grow again.
 * - A chunk whose connection was lost is also halved if `ask` shows that the database is up, because a transaction that reaches
 *   its time limit between two statements loses its connection.
 *
 * @param work must have no effect if it throws.
 * @returns the rows that failed.
 * @throws if a dependency failed. The work for earlier chunks isn't undone.
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
  /** The position where the last halved chunk ended. After it, chunks grow again. */
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
 * Runs the parts of a loop's step in order. If one fails, the others still run.
 *
 * @param parts by name.
 * @throws {PartsFailed} after all have run, if any failed.
 */
export async function takeParts(parts: Readonly<Record<string, () => Promise<unknown>>>): Promise<void> {
  const failures: PartFailure[] = []
  for (const [name, part] of Object.entries(parts)) {
    try {
      await part()
    } catch (error) {
      // If the failed part consists of further parts, report those parts instead.
      if (error instanceof PartsFailed)
        failures.push(...error.failures.map((one) => ({ ...one, part: `${name}, ${one.part}` })))
      else failures.push({ part: name, error })
    }
  }
  if (failures.length > 0) throw new PartsFailed(failures)
}

type PartFailure = { part: string; error: unknown }

/** Thrown if some parts of a loop's step failed. Its message describes each failure in one line, suitable for a log. */
export class PartsFailed extends AggregateError {
  override readonly name = 'PartsFailed'
  readonly failures: readonly PartFailure[]

  constructor(failures: readonly PartFailure[]) {
    super(
      failures.map(({ error }) => error),
      failures.map(({ part, error }) => `${part}: ${describeError(error)}`).join('; '),
    )
    this.failures = failures
    // Use the stack of each failure, instead of the place where the failures were collected.
    this.stack = failures.map(({ error }) => (error instanceof Error ? error.stack : '')).join('\n')
  }
}

/** Pause in ms after a row's first failure. It doubles with each further failure. */
const firstPauseMs = 5_000
const maxPauseMs = 600_000

/** Returns the pause in ms after this many failures of a row. */
export function pauseAfter(failures: number): number {
  return Math.min(firstPauseMs * 2 ** Math.min(failures - 1, 20), maxPauseMs)
}

/** Maximum number of remembered failures. Beyond this number, the oldest failures are forgotten, and their rows are tried again. */
const maxRows = 100_000

export type StepBack<Key> = {
  /**
   * Returns the rows that must not be tried yet. Exclude them when you select the next rows; otherwise they fill the front of the
   * queue.
   */
  waiting(): Key[]
  isWaiting(key: Key): boolean
  failed(key: Key): void
  succeeded(key: Key): void
}

/**
 * Tracks when each failed row may be tried again. The times are kept in memory: after a restart, every failed row is
 * tried once, which doesn't hold up the other rows for long.
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
