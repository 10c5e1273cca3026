import type { Database } from '@tollkeeper/ledger/store/database'

/** Returns a database that counts the statements sent through it, except those of transactions. */
export function countStatements(sql: Database): { sql: Database; count: () => number } {
  let sent = 0
  const counted = new Proxy(sql, {
    apply(target, self, args) {
      const query: unknown = Reflect.apply(target as never, self, args)
      // Only a statement is awaited; a fragment of one is not.
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
