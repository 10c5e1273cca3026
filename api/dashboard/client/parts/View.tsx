import type { ComponentChildren } from 'preact'
import { useEffect } from 'preact/hooks'
import { explain } from '../explain.ts'
import { writeDistance } from '../format.ts'
import type { GatewayError } from '../gateway.ts'
import { useNow } from '../useNow.ts'
import type { Polled } from '../usePolled.ts'

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
  children: (data: T) => ComponentChildren
}

/** A page over polled data, which shows the data's age and errors. */
export function View<T>({ title, actions, below, polled, children }: ViewProps<T>) {
  useTitle(title)
  const { data, error } = polled
  return (
    <>
      <header class="line view-head">
        <h1>{title}</h1>
        {actions}
        <Freshness polled={polled} />
      </header>
      {below}
      {data === undefined ? (
        error ? (
          <Failed error={error} retry={polled.refresh} />
        ) : (
          <Loading />
        )
      ) : (
        <>
          {error && <Stale error={error} retry={polled.refresh} />}
          {children(data)}
        </>
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

export function Loading() {
  return (
    <p class="loading" role="status">
      Reading…
    </p>
  )
}

function Failed({ error, retry }: { error: GatewayError; retry: () => void }) {
  const { title, text } = explain(error)
  return (
    <div role="alert">
      <Empty title={title} isTrouble>
        <p>{text}</p>
        <button type="button" onClick={retry}>
          Try again
        </button>
      </Empty>
    </div>
  )
}

function Stale({ error, retry }: { error: GatewayError; retry: () => void }) {
  const { title } = explain(error)
  return (
    <div class="box busy line" role="alert">
      <p>{title}. What you see was read before.</p>
      <button type="button" class="quiet end" onClick={retry}>
        Try again
      </button>
    </div>
  )
}

/** Shown in place of data that is missing or couldn't be read. */
export function Empty(props: { title: string; isTrouble?: boolean; children?: ComponentChildren }) {
  const { title, isTrouble = false, children } = props
  return (
    <div class={isTrouble ? 'panel empty trouble' : 'panel empty'}>
      <h2>{title}</h2>
      {children}
    </div>
  )
}
