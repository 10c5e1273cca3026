import type { Database } from '@tollkeeper/ledger/store/database'

/** Returns a database that counts the statements sent through it, except statements in transactions. */
export function countStatements(sql: Database): { sql: Database; count: () => number } {
  let sent = 0
  const counted = new Proxy(sql, {
    apply(target, self, args) {
      const query: unknown = Reflect.apply(target as never, self, args)
      // Count a statement when it is awaited: a fragment, which is part of another statement, is never awaited.
      if (query instanceof Promise) {
        const send = query.then.bind(query)
        Reflect.set(query, 'then', (...handlers: Parameters<typeof send>) => {
          sent += 1
          return send(...handlers)
        })
      }
      return query
    },
  })
  return { sql: counted, count: () => sent }
}
