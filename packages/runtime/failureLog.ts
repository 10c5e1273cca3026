import type { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { describeError, type Logger } from './log.ts'

/** Interval in ms in which only the first failure of each kind is logged. Further failures are only counted. */
const quietMs = 10_000

/**
 * Creates a log of failed requests. An internal error is logged as `error`, with its stack. If a dependency is down or the
 * process is overloaded, many requests fail in the same way, so one `warn` line every ten seconds names the dependency, the
 * reason, and the number of failures since the previous line. Rejections are logged as `debug`.
 *
 * @param now returns a time in ms
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
