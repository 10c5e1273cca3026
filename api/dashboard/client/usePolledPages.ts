import { useState } from 'preact/hooks'
import { type Polled, usePolled } from './usePolled.ts'

/**
 * As {@link usePolled}, for a list that grows by a page when the reader asks for more.
 *
 * @param read reads the first pages, as many as given
 */
export function usePolledPages<T>(
  read: (asked: { signal: AbortSignal; pages: number }) => Promise<T>,
  key: string,
): { polled: Polled<T>; showMore: () => void } {
  const [asked, setAsked] = useState({ key, pages: 1 })
  const pages = asked.key === key ? asked.pages : 1
  const polled = usePolled((signal) => read({ signal, pages }), key)
  return {
    polled,
    showMore: () => {
      setAsked({ key, pages: pages + 1 })
      polled.refresh()
    },
  }
}
