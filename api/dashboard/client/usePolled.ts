import { useContext, useEffect, useRef, useState } from 'preact/hooks'
import { GatewayError } from './gateway.ts'
import { EndContext } from './session.ts'

export type Polled<T> = {
  /** The last answer; undefined before the first. */
  data: T | undefined
  /** Why the last request failed; `data` is older then. */
  error: GatewayError | undefined
  readAt: number | undefined
  /** Reads now, or again after the read under way. */
  refresh: () => void
}

const usualMs = 4_000
const slowestMs = 60_000

/**
 * Polls while the tab is visible: at once when it becomes visible again, with growing pauses while requests fail.
 *
 * @param key identifies the data; a new key drops the old data
 * @param everyMs longer for data that cost the gateway much
 */
export function usePolled<T>(
  read: (signal: AbortSignal) => Promise<T>,
  key: string,
  everyMs = usualMs,
): Polled<T> {
  const end = useContext(EndContext)
  const [state, setState] = useState<{ key: string } & Omit<Polled<T>, 'refresh'>>({
    key,
    data: undefined,
    error: undefined,
    readAt: undefined,
  })
  const latest = useRef(read)
  latest.current = read
  const wake = useRef(() => {})

  useEffect(() => {
    const stop = new AbortController()
    const { signal } = stop
    let failures = 0
    // A refresh during a read asks for another read, since this one may have begun before the user's change.
    let isWanted = false
    let resume = () => {}
    wake.current = () => {
      isWanted = true
      resume()
    }

    const pause = (ms: number) =>
      new Promise<void>((resolve) => {
        if (isWanted) return resolve()
        const timer = setTimeout(resolve, ms)
        resume = () => {
          clearTimeout(timer)
          resolve()
        }
        signal.addEventListener('abort', resume, { once: true })
      })
    const untilVisible = () =>
      new Promise<void>((resolve) => {
        if (document.visibilityState === 'visible') return resolve()
        const look = () => document.visibilityState === 'visible' && resolve()
        document.addEventListener('visibilitychange', look, { signal })
        signal.addEventListener('abort', () => resolve(), { once: true })
      })

    const run = async () => {
      while (!signal.aborted) {
        isWanted = false
        try {
          const data = await latest.current(signal)
          failures = 0
          if (!signal.aborted) setState({ key, data, error: undefined, readAt: Date.now() })
        } catch (error) {
          if (signal.aborted) return
          if (!(error instanceof GatewayError)) throw error
          if (error.status === 401) return end('Your API key is no longer in force.')
          failures++
          setState((last) =>
            last.key === key ? { ...last, error } : { key, data: undefined, readAt: undefined, error },
          )
        }
        await pause(Math.min(everyMs * 2 ** failures, slowestMs))
        await untilVisible()
      }
    }
    void run()

    // The data is old when the tab becomes visible again, so it is read at once.
    const onShown = () => document.visibilityState === 'visible' && wake.current()
    document.addEventListener('visibilitychange', onShown, { signal })
    addEventListener('online', onShown, { signal })
    return () => stop.abort()
  }, [key, end, everyMs])

  const current = state.key === key ? state : { data: undefined, error: undefined, readAt: undefined }
  return { data: current.data, error: current.error, readAt: current.readAt, refresh: () => wake.current() }
}
