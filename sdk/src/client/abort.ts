// React Native has AbortController, but neither AbortSignal.timeout nor AbortSignal.any.

/** Returns a signal that fires after a time, with a `TimeoutError` as its reason. */
export function timeoutSignal(ms: number): AbortSignal {
  if ('timeout' in AbortSignal) return AbortSignal.timeout(ms)
  const controller = new AbortController()
  const reason = Object.assign(new Error(`No answer within ${ms} ms`), { name: 'TimeoutError' })
  setTimeout(() => controller.abort(reason), ms)
  return controller.signal
}

/** Returns a signal that fires with the first of both, and with its reason. */
export function eitherSignal(one: AbortSignal, other: AbortSignal): AbortSignal {
  if ('any' in AbortSignal) return AbortSignal.any([one, other])
  const controller = new AbortController()
  for (const signal of [one, other]) {
    const abort = () => controller.abort(signal.reason)
    if (signal.aborted) abort()
    else signal.addEventListener('abort', abort, { once: true })
  }
  return controller.signal
}
