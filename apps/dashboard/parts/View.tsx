import type { ComponentChildren } from 'preact'
import { useEffect } from 'preact/hooks'
import { explain } from '../display/explain.ts'
import { writeDistance } from '../display/format.ts'
import { useNow } from '../display/useNow.ts'
import type { Polled } from '../gateway/usePolled.ts'

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Tollkeeper`
  }, [title])
}

type ViewProps<T> = {
  title: string
  /** Beside the title. */
  actions?: ComponentChildren
  /** Under the title, also while there is nothing to show. */
  below?: ComponentChildren
  polled: Polled<T>
  /** What stands in the place of `children` where the data has no rows. */
  none?: ComponentChildren
  children: (data: T) => ComponentChildren
}

/** A page over polled data, which shows the data's age and errors. */
export function View<T>({ title, actions, below, polled, none, children }: ViewProps<T>) {
  useTitle(title)
  const { data, error, refresh } = polled
  const trouble = error && explain(error)
  const again = (name?: string) => (
    <button type="button" class={name} onClick={refresh}>
      Try again
    </button>
  )
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
              <p>{trouble.title}. What you see was read before.</p>
              {again('quiet end')}
            </div>
          )}
          {none && (data as { rows?: unknown[] }).rows?.length === 0 ? none : children(data)}
        </>
      ) : trouble ? (
        <div role="alert">
          <Empty title={trouble.title} isTrouble more={again()}>
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

export function Loading({ children = 'Reading…' }: { children?: ComponentChildren }) {
  return (
    <p class="loading" role="status">
      {children}
    </p>
  )
}

type EmptyProps = {
  title: string
  isTrouble?: boolean
  children?: ComponentChildren
  more?: ComponentChildren
}

/** In the place of what there is none of, or of what went wrong: why, in a paragraph, and what may be under it. */
export function Empty({ title, isTrouble = false, children, more }: EmptyProps) {
  return (
    <div class={isTrouble ? 'panel empty trouble' : 'panel empty'}>
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {more}
    </div>
  )
}
