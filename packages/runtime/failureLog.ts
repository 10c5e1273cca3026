import type { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { describeError, type Logger } from './log.ts'

/** How long a line about a kind of failure speaks for the others of its kind. */
const quietMs = 10_000

/**
 * Logs failed requests. A fault of ours is an `error` with its stack. If a dependency is down or the process is overloaded, many requests
 * fail alike: a `warn` line every ten seconds says which, why, and how many had no line of their own. Refusals are `debug`.
 *
 * @param now milliseconds
 */
export function createFailureLog(log: Logger, now: () => number = () => performance.now()) {
  const kinds = new Map<string, { quietUntil: number; unlogged: number }>()

  return (error: BaseError, fields: Record<string, unknown>): void => {
    const { code, status, message, details, cause } = error
    if (code === 'internal_error') {
      log.error({ err: cause ?? error, ...fields }, message)
      return
    }
    if (status < 500) {
      log.debug({ code, ...fields }, message)
      return
    }
    const kind = `${code} ${details.dependency ?? ''}`
    const known = kinds.get(kind)
    if (known && now() < known.quietUntil) {
      known.unlogged += 1
      return
    }
    kinds.set(kind, { quietUntil: now() + quietMs, unlogged: 0 })
    const before = known?.unlogged ?? 0
    log.warn(
      {
        code,
        ...(details.dependency !== undefined && { dependency: details.dependency }),
        ...(cause !== undefined && { reason: describeError(cause) }),
        ...(before > 0 && { unlogged: before }),
        ...fields,
      },
      message,
    )
  }
}
