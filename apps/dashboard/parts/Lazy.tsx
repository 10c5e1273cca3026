import type { ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { Route } from '../display/routing.ts'
import { Empty, Loading } from './View.tsx'

/** A page whose code the browser fetches when it is first needed. */
export type Page = ComponentType<{ route: Route }>
export type LoadPage = () => Promise<Page>

const fetched = new Map<LoadPage, Page>()

async function fetchPage(load: LoadPage): Promise<Page> {
  const page = fetched.get(load) ?? (await load())
  fetched.set(load, page)
  return page
}

/** Fetches pages while the browser is idle, so that they open without a request, even if the gateway has become unreachable. */
export function fetchWhenIdle(pages: readonly LoadPage[]): void {
  const whenIdle = globalThis.requestIdleCallback ?? ((then: () => void) => setTimeout(then, 500))
  whenIdle(() => {
    // If a page can't be fetched now, it is fetched again when it is opened, and the error is shown there.
    for (const load of pages) fetchPage(load).catch(() => {})
  })
}

/** Shows a page once it is fetched. */
export function Lazy({ load, route }: { load: LoadPage; route: Route }) {
  const [attempt, setAttempt] = useState(0)
  const [failed, setFailed] = useState<number>()
  const [Found, setFound] = useState<Page | undefined>(() => fetched.get(load))
  useEffect(() => {
    if (Found !== undefined) return
    fetchPage(load).then(
      (page) => setFound(() => page),
      () => setFailed(attempt),
    )
  }, [load, attempt, Found])
  if (Found !== undefined) return <Found route={route} />
  if (failed !== attempt) return <Loading />
  return (
    <Empty
      title="This page could not be fetched"
      isTrouble
      more={
        <button type="button" onClick={() => setAttempt(attempt + 1)}>
          Try again
        </button>
      }
    >
      The gateway may be unreachable. If it was updated since you opened this page, reload.
    </Empty>
  )
}
