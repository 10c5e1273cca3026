/**
 * The timeout of one call. `AbortSignal.any` and `AbortSignal.timeout` aren't available everywhere, and the timer of `AbortSignal.timeout` can't be
 * stopped.
 */
export type Clock = {
  /** Fires at the timeout, or when the caller's signal fires. */
  signal: AbortSignal
  leftMs: () => number
  /** Waits for the given time, but at most until the timeout. @throws if the signal fires. */
  wait: (ms: number) => Promise<void>
  /** Stops the timer. @param isRead whether the response's body was read. If not, the caller's signal can still abort reading it. */
  stop: (isRead: boolean) => void
}

export function startClock(timeoutMs: number, callerSignal?: AbortSignal): Clock {
  const controller = new AbortController()
  const { signal } = controller
  const endsAt = Date.now() + timeoutMs
  const abort = () => controller.abort(callerSignal?.reason)
  const timer = setTimeout(() => controller.abort(), timeoutMs)
  if (callerSignal?.aborted) abort()
  else callerSignal?.addEventListener('abort', abort, { once: true })

  return {
    signal,
    leftMs: () => endsAt - Date.now(),
    wait: (ms) => waitFor(ms, signal),
    stop(isRead) {
      clearTimeout(timer)
      if (isRead) callerSignal?.removeEventListener('abort', abort)
    },
  }
}

/** Waits for the given time. @throws the signal's reason if the signal fires before that. */
export function waitFor(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', end)
      resolve()
    }, ms)
    if (signal?.aborted) end()
    else signal?.addEventListener('abort', end, { once: true })
  })
}
