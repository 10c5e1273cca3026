import { useContext, useEffect, useRef, useState } from 'preact/hooks'
import { GatewayError, type Pages } from './gateway.ts'
import { EndContext } from './session.ts'

type Read<T> = {
  /** The last answer; undefined before the first. */
  data: T | undefined
  /** Why the last request failed; `data` is older then. */
  error: GatewayError | undefined
  readAt: number | undefined
}

export type Polled<T> = Read<T> & {
  /** Reads now, or again once the read that is under way has ended. */
  refresh: () => void
}

const nothing = { data: undefined, error: undefined, readAt: undefined }
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
  const [state, setState] = useState<Read<T> & { key: string }>({ key, ...nothing })
  const latest = useRef(read)
  latest.current = read
  const refresh = useRef(() => {})

  useEffect(() => {
    const stop = new AbortController()
    const { signal } = stop
    let failures = 0
    let timer: ReturnType<typeof setTimeout> | undefined
    let isReading = false
    // A refresh during a read asks for another read after it: this one may have begun before what the user has just changed.
    let isWanted = false

    const run = async () => {
      clearTimeout(timer)
      isReading = true
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
        setState((last) => ({ ...(last.key === key ? last : { key, ...nothing }), error }))
      }
      isReading = false
      if (signal.aborted) return
      if (isWanted) look()
      else timer = setTimeout(look, Math.min(everyMs * 2 ** failures, slowestMs))
    }
    const look = () => {
      if (isReading) isWanted = true
      else if (document.visibilityState === 'visible') void run()
    }
    refresh.current = look
    void run()

    // The data is old when the tab becomes visible again, so it is read at once.
    document.addEventListener('visibilitychange', look, { signal })
    addEventListener('online', look, { signal })
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [key, end, everyMs])

  const { data, error, readAt } = state.key === key ? state : nothing
  return { data, error, readAt, refresh: () => refresh.current() }
}

/** As {@link usePolled}, for a list that grows by a page when the reader asks for `more`, where there is any. */
export function usePolledPages<T extends { hasMore: boolean }>(
  read: (asked: Required<Pages>) => Promise<T>,
  key: string,
): Polled<T & { more: (() => void) | undefined }> {
  const [asked, setAsked] = useState({ key, pages: 1 })
  const pages = asked.key === key ? asked.pages : 1
  const polled = usePolled((signal) => read({ signal, pages }), key)
  const showMore = () => {
    setAsked({ key, pages: pages + 1 })
    // Once it is rendered, and asks for so many.
    queueMicrotask(polled.refresh)
  }
  const { data } = polled
  return { ...polled, data: data && { ...data, more: data.hasMore ? showMore : undefined } }
}
