import type { Sql } from 'postgres'

/** What we use of a query of postgres.js 3.4.9, beyond its types. */
type Executable = {
  options: { onexecute?: () => boolean }
}

/**
 * A pool whose connections send a statement only after the one before it was answered.
 *
 * By default, postgres.js sends a statement right behind one that has no parameters, or is prepared. Two programs then give a statement
 * the answer to another one:
 *
 * - PgBouncer returns a session to its pool when a statement ends, although it has passed on the first half of the next one (Parse,
 *   Describe, Flush: https://github.com/pgbouncer/pgbouncer/issues/759). Another client then reads which types that half described,
 *   and serializes its own parameters by them.
 * - postgres.js itself, if it repeats a statement whose prepared plan has changed while others are under way on the connection.
 *
 * Neither happens within a transaction: the pooler keeps its session, and a statement that fails isn't repeated there.
 *
 * `onexecute` decides whether the connection may take another statement: postgres.js calls it after it has sent a statement, and
 * treats the connection as full unless the result is true.
 */
export function oneAtATime<Types extends Record<string, unknown>>(sql: Sql<Types>): Sql<Types> {
  const isolate = <Result>(result: Result): Result => {
    // Fragments and identifiers pass through here as well. They are never executed.
    if (isQuery(result)) result.options.onexecute = () => false
    return result
  }
  return new Proxy(sql, {
    apply: (target, self, args) => isolate(Reflect.apply(target, self, args)),
    get(target, key) {
      const value: unknown = Reflect.get(target, key)
      if (key !== 'unsafe' || typeof value !== 'function') return value
      return (...args: unknown[]) => isolate(Reflect.apply(value, target, args))
    },
  })
}

function isQuery(value: unknown): value is Executable {
  return value instanceof Promise && 'options' in value
}
