import type { OnBadRow } from '@tollkeeper/runtime/stepBack'

/** For tests in which no row may fail: the loop's step then fails, and with it the test. */
export const noBadRows: OnBadRow = (_step, error) => {
  throw error
}

/** Keeps which rows failed, by step. */
export function collectBadRows() {
  const bad: { step: string; row: Record<string, unknown> }[] = []
  const onBadRow: OnBadRow = (step, _error, row) => void bad.push({ step, row })
  return { bad, onBadRow }
}
