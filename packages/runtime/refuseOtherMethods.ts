import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Env, Hono } from 'hono'
import { answerProblem } from './problem.ts'

/** Responds with 405 and `Allow` to every method that has no route, on each path that has a route already. */
export function refuseOtherMethods<Environment extends Env>(app: Hono<Environment>): void {
  const methods = new Map<string, Set<string>>()
  for (const { path, method } of app.routes) {
    // Skip middleware, which is registered for all methods.
    if (method !== 'ALL') methods.set(path, (methods.get(path) ?? new Set()).add(method))
  }
  for (const [path, known] of methods) {
    const allow = [...known, ...(known.has('GET') ? ['HEAD'] : [])].toSorted().join(', ')
    app.all(path, (c) => {
      c.header('Allow', allow)
      return answerProblem(c, new BaseError('method_not_allowed', `${path} supports ${allow}`))
    })
  }
}
