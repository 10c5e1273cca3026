import type { ComponentChildren } from 'preact'
import { useEffect } from 'preact/hooks'
import { explain } from '../display/explain.ts'
import { writeDistance } from '../display/format.ts'
import { href, useRoute } from '../display/routing.ts'
import { useNow } from '../display/useNow.ts'
import type { Polled } from '../gateway/usePolled.ts'

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Tollkeeper`
  }, [title])
}

type ViewProps<T> = {
  title: string
  /** Actions next to the title. */
  actions?: ComponentChildren
  /** Content under the title, also while there is no data. */
  below?: ComponentChildren
  polled: Polled<T>
  /** Replaces `children` if the data has no rows. */
  none?: ComponentChildren
  children: (data: T) => ComponentChildren
}

/** A page that shows polled data, the data's age, and errors. */
export function View<T>({ title, actions, below, polled, none, children }: ViewProps<T>) {
  useTitle(title)
  const { data, error, refresh } = polled
  const [section = ''] = useRoute()
  const trouble = error && explain(error)
  const again = (name?: string) => (
    <button type="button" class={name} onClick={refresh}>
      Try again
    </button>
  )
  // These errors are permanent: repeating a request for a missing page, or one with an invalid filter, doesn't help.
  const isInVain = error !== undefined && [400, 404, 422].includes(error.status)
  const next = isInVain ? <a href={href(section)}>Go to the list</a> : again()
  return (
    <>
      <header class="line view-head">
        <h1>{title}</h1>
        {actions}
        <Freshness polled={polled} />
      </header>
      {below}
      {data !== undefined ? (
        <>
          {trouble && (
            <div class="box busy line" role="alert">
              <p>{trouble.title}. This page shows earlier data.</p>
              {again('quiet end')}
            </div>
          )}
          {none && (data as { rows?: unknown[] }).rows?.length === 0 ? none : children(data)}
        </>
      ) : trouble ? (
        <div role="alert">
          <Empty title={trouble.title} isTrouble more={next}>
            {trouble.text}
          </Empty>
        </div>
      ) : (
        <Loading />
      )}
    </>
  )
}

function Freshness<T>({ polled: { readAt, error } }: { polled: Polled<T> }) {
  const now = useNow()
  if (readAt === undefined) return null
  return (
    <p class={error ? 'line note late' : 'line note'}>
      <span class="dot" aria-hidden="true" />
      {error ? `As of ${writeDistance(now, Math.min(readAt, now))}` : 'Live'}
    </p>
  )
}

/** Shows a placeholder, in about the shape of the data, until the data is read. */
export function Loading({ children = 'Loading' }: { children?: ComponentChildren }) {
  return (
    <div class="skeleton" role="status">
      <span class="unseen">{children}</span>
      <i />
      <i />
      <i />
    </div>
  )
}

type EmptyProps = {
  title: string
  isTrouble?: boolean
  children?: ComponentChildren
  more?: ComponentChildren
}

/** An empty state or an error: the reason in a paragraph, and optional content under it. */
export function Empty({ title, isTrouble = false, children, more }: EmptyProps) {
  return (
    <div class={isTrouble ? 'panel empty trouble' : 'panel empty'}>
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {more}
    </div>
  )
}
