import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Env, Hono } from 'hono'
import { answerProblem } from './problem.ts'

/** Answers 405 with `Allow` on every path that was added before, for all methods without a route there. */
export function refuseOtherMethods<Environment extends Env>(app: Hono<Environment>): void {
  const methods = new Map<string, Set<string>>()
  for (const { path, method } of app.routes) {
    // Middleware is for all methods.
    if (method !== 'ALL') methods.set(path, (methods.get(path) ?? new Set()).add(method))
  }
  for (const [path, known] of methods) {
    const allow = [...known, ...(known.has('GET') ? ['HEAD'] : [])].toSorted().join(', ')
    app.all(path, (c) => {
      c.header('Allow', allow)
      return answerProblem(c, new BaseError('method_not_allowed', `${path} takes ${allow}`))
    })
  }
}
