import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { OnBadRow } from '@tollkeeper/runtime/stepBack'

/** For tests in which no row may fail. A failed row makes the loop's step and the test fail. */
export const noBadRows: OnBadRow = (_step, error) => {
  throw error
}

/** Collects the rows that failed, by step. */
export function collectBadRows() {
  const bad: { step: string; row: Record<string, unknown> }[] = []
  const onBadRow: OnBadRow = (step, _error, row) => void bad.push({ step, row })
  return { bad, onBadRow }
}

/**
 * Makes writes of chosen rows fail permanently, as if the rows violated a constraint.
 *
 * @param when SQL condition on `old` and `new` under which the write fails.
 * @param errcode SQLSTATE or name of the error, such as `query_canceled` for a statement that took too long.
 * @returns a function that allows the writes again.
 */
export async function refuseWrites(
  sql: Queryable,
  table: string,
  on: 'insert' | 'update' | 'delete',
  when: string,
  errcode = 'check_violation',
): Promise<() => Promise<void>> {
  const name = `refuse_${table.replace('.', '_')}`
  await sql.unsafe(`
    create or replace function ${name}() returns trigger language plpgsql as $$
      begin raise exception 'refused for a test' using errcode = '${errcode}'; end $$;
    create trigger ${name} before ${on} on ${table} for each row when (${when}) execute function ${name}()`)
  return async () => {
    await sql.unsafe(`drop trigger ${name} on ${table}`)
  }
}
