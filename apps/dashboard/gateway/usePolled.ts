import { useContext, useEffect, useRef, useState } from 'preact/hooks'
import { GatewayError, type Pages } from './gateway.ts'
import { EndContext } from './session.ts'

type Read<T> = {
  /** The last response; undefined before the first. */
  data: T | undefined
  /** The reason why the last request failed. `data` is then from an earlier response. */
  error: GatewayError | undefined
  readAt: number | undefined
}

export type Polled<T> = Read<T> & {
  /** Reads now. If a read is in progress, reads again when it has ended. */
  refresh: () => void
}

const nothing = { data: undefined, error: undefined, readAt: undefined }
/** Interval in ms between reads of data that may change at any moment. */
export const usualMs = 4_000
const slowestMs = 60_000

/** Interval in ms between reads of final data, which only a rare event such as a deep reorg changes. */
export const finalMs = 60_000

/** Interval in ms between reads, or a function that returns the interval for the newest data. */
export type Every<T> = number | ((data: T) => number)

/**
 * Polls while the tab is visible: immediately when it becomes visible again, and with growing pauses while requests fail.
 *
 * @param key identifies the data; a new key discards the old data
 * @param every a longer interval for data that is final, or expensive for the gateway to read
 */
export function usePolled<T>(
  read: (signal: AbortSignal) => Promise<T>,
  key: string,
  every: Every<T> = usualMs,
): Polled<T> {
  const end = useContext(EndContext)
  const [state, setState] = useState<Read<T> & { key: string }>({ key, ...nothing })
  const latest = useRef(read)
  latest.current = read
  const interval = useRef(every)
  interval.current = every
  const refresh = useRef(() => {})

  useEffect(() => {
    const stop = new AbortController()
    const { signal } = stop
    let failures = 0
    let timer: ReturnType<typeof setTimeout> | undefined
    let isReading = false
    // If a refresh is requested during a read, read again afterwards: the current read may have begun before the user's change.
    let isWanted = false
    let pauseMs = usualMs
    const pauseAfter = (data: T) =>
      typeof interval.current === 'number' ? interval.current : interval.current(data)

    const run = async () => {
      clearTimeout(timer)
      isReading = true
      isWanted = false
      try {
        const data = await latest.current(signal)
        failures = 0
        pauseMs = pauseAfter(data)
        if (!signal.aborted) setState({ key, data, error: undefined, readAt: Date.now() })
      } catch (error) {
        if (signal.aborted) return
        if (!(error instanceof GatewayError)) throw error
        if (error.status === 401) return end('Your API key is no longer valid.')
        failures++
        setState((last) => ({ ...(last.key === key ? last : { key, ...nothing }), error }))
      }
      isReading = false
      if (signal.aborted) return
      if (isWanted) look()
      else timer = setTimeout(look, Math.min(pauseMs * 2 ** failures, slowestMs))
    }
    const look = () => {
      if (isReading) isWanted = true
      else if (document.visibilityState === 'visible') void run()
    }
    refresh.current = look
    void run()

    // The data is old when the tab becomes visible again, so read immediately.
    document.addEventListener('visibilitychange', look, { signal })
    addEventListener('online', look, { signal })
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [key, end])

  const { data, error, readAt } = state.key === key ? state : nothing
  return { data, error, readAt, refresh: () => refresh.current() }
}

/** Polls a list like {@link usePolled}. `more` adds a page to the list, if there is another one. */
export function usePolledPages<T extends { hasMore: boolean }>(
  read: (asked: Required<Pages>) => Promise<T>,
  key: string,
  every?: Every<T>,
): Polled<T & { more: (() => void) | undefined }> {
  const [asked, setAsked] = useState({ key, pages: 1 })
  const pages = asked.key === key ? asked.pages : 1
  const polled = usePolled((signal) => read({ signal, pages }), key, every)
  const showMore = () => {
    setAsked({ key, pages: pages + 1 })
    // Refresh only after the next render, in which `read` gets the new number of pages.
    queueMicrotask(polled.refresh)
  }
  const { data } = polled
  return { ...polled, data: data && { ...data, more: data.hasMore ? showMore : undefined } }
}
