/** 128 + SIGINT, as a shell reports it. */
export const interruptedStatus = 130

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const parentLookMs = 1000

/**
 * Calls `stop` at the first Ctrl-C, SIGTERM, closed terminal, or death of the `npm` that started us. A second
 * one calls it again, as more urgent.
 *
 * @returns a function that stops listening
 */
export function onStopSignal(stop: (urgent: boolean) => void): () => void {
  let count = 0
  const listener = () => stop(++count > 1)
  for (const signal of signals) process.on(signal, listener)

  // npm passes signals on, but if it is killed, this process would go on without a parent.
  const parent = process.ppid
  const look = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(look)
    listener()
  }, parentLookMs)
  look.unref()
  if (process.env.npm_lifecycle_event === undefined) clearInterval(look)

  return () => {
    clearInterval(look)
    for (const signal of signals) process.off(signal, listener)
  }
}
