// React Native has AbortController, but neither AbortSignal.timeout nor AbortSignal.any.

/**
 * A signal whose `end` stops its timer and removes its listeners. `end` is undefined for a signal of `AbortSignal.timeout` or `AbortSignal.any`,
 * because the runtime cleans up after such a signal itself.
 */
export type OwnSignal = AbortSignal & { end?: () => void }

/** Returns a signal that fires after a time, with a `TimeoutError` as its reason. */
export function timeoutSignal(ms: number): OwnSignal {
  if ('timeout' in AbortSignal) return AbortSignal.timeout(ms)
  const controller = new AbortController()
  const reason = Object.assign(new Error(`No response within ${ms} ms`), { name: 'TimeoutError' })
  const timer = setTimeout(() => controller.abort(reason), ms)
  return Object.assign(controller.signal, { end: () => clearTimeout(timer) })
}

/** Returns a signal that fires as soon as one of the two signals fires, with the reason of that signal. Its `end` also calls `own.end`. */
export function eitherSignal(own: OwnSignal, other: AbortSignal): OwnSignal {
  if ('any' in AbortSignal) return AbortSignal.any([own, other])
  const controller = new AbortController()
  const signals = [own, other]
  const end = () => {
    own.end?.()
    for (const signal of signals) signal.removeEventListener('abort', abort)
  }
  const abort = () => {
    end()
    controller.abort((own.aborted ? own : other).reason)
  }
  for (const signal of signals) signal.addEventListener('abort', abort)
  if (own.aborted || other.aborted) abort()
  return Object.assign(controller.signal, { end })
}
