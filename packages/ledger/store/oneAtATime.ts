import type { Sql } from 'postgres'

/** Undocumented members of a postgres.js 3.4.9 query that we use. */
type Executable = {
  options: { onexecute?: () => boolean }
  resolve: (result: unknown) => void
}

/**
 * Returns a pool whose connections send a statement only after the previous one was answered.
 *
 * By default, postgres.js doesn't wait for the answer to a statement that has no parameters or is prepared: it sends the next statement immediately.
 * In two cases, a statement then gets the answer to a different statement:
 *
 * - PgBouncer returns a session to its pool when a statement ends, although it has already passed on the first half of the next statement (Parse,
 *   Describe, Flush: https://github.com/pgbouncer/pgbouncer/issues/759). Another client then gets this session, receives the types that this half
 *   described, and serializes its own parameters by these types.
 * - postgres.js repeats a statement whose prepared plan has changed, while other statements are under way on the connection.
 *
 * Neither happens within a transaction: the pooler keeps its session, and a statement that fails isn't repeated there.
 *
 * `onexecute` decides whether the connection may take another statement: postgres.js calls it after it has sent a statement, and
 * treats the connection as full unless the result is true.
 *
 * This function also repairs results. If a statement fails midway, for example by a time limit after its first rows, postgres.js continues to count
 * from those rows. So the next result on the connection begins with that many holes: its first row would be undefined, as if nothing had been found.
 */
export function oneAtATime<Types extends Record<string, unknown>>(sql: Sql<Types>): Sql<Types> {
  return wrap(sql, (query) => {
    query.options.onexecute = () => false
    repair(query)
  })
}

/** Passes each query of `sql` to `prepare`, also the queries in transactions that `sql` begins. In a transaction, only results are repaired. */
function wrap<Tag extends object>(sql: Tag, prepare: (query: Executable) => void): Tag {
  const prepared = (result: unknown) => {
    // Fragments and identifiers come through here as well, but are never executed.
    if (isQuery(result)) prepare(result)
    return result
  }
  const inTransaction = (argument: unknown) =>
    typeof argument === 'function' ? (tx: object) => argument(wrap(tx, repair)) : argument
  return new Proxy(sql, {
    apply: (target, self, args) => prepared(Reflect.apply(target as () => unknown, self, args)),
    get(target, key) {
      const value: unknown = Reflect.get(target, key)
      if (typeof value !== 'function') return value
      if (key === 'unsafe') return (...args: unknown[]) => prepared(Reflect.apply(value, target, args))
      if (key === 'begin' || key === 'savepoint')
        return (...args: unknown[]) => Reflect.apply(value, target, args.map(inTransaction))
      return value
    },
  })
}

function repair(query: Executable): void {
  const { resolve } = query
  query.resolve = (result) => resolve(withoutHoles(result))
}

/** Moves the rows of a result to its beginning. */
function withoutHoles(result: unknown): unknown {
  if (!Array.isArray(result) || result.length === 0 || 0 in result) return result
  let holes = 0
  while (holes < result.length && !(holes in result)) holes++
  result.copyWithin(0, holes)
  result.length -= holes
  return result
}

function isQuery(value: unknown): value is Executable {
  return value instanceof Promise && 'options' in value
}
