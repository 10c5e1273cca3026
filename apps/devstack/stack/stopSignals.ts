/** Exit status with which a shell reports SIGINT: 128 + SIGINT. */
export const interruptedStatus = 130

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const parentLookMs = 1000

/**
 * Calls `stop` at the first Ctrl-C, SIGTERM, closed terminal, or death of the `npm` that started us. At a second such event, calls
 * `stop` again, with `urgent`, to stop immediately.
 */
export function onStopSignal(stop: (urgent: boolean) => void): void {
  let count = 0
  const listener = () => stop(++count > 1)
  for (const signal of signals) process.on(signal, listener)

  // npm passes signals on, but if npm itself is killed, this process would continue without a parent.
  if (process.env.npm_lifecycle_event === undefined) return
  const parent = process.ppid
  const look = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(look)
    listener()
  }, parentLookMs)
  look.unref()
}
