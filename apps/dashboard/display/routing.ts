import { useEffect, useState } from 'preact/hooks'

/** The route in the URL's fragment: `#/payments/pay_…` is `['payments', 'pay_…']`. */
export type Route = string[]

/** A page's filters, from the fragment's query: `#/payments?status=failed` is `{ status: 'failed' }`. */
export type Search = Record<string, string>

export function parseRoute(hash: string): Route {
  const [path = ''] = hash.replace(/^#\/?/, '').split('?', 1)
  return path
    .split('/')
    .filter((part) => part !== '')
    .map((part) => {
      try {
        return decodeURIComponent(part)
      } catch {
        return part
      }
    })
}

/** Returns the query of a fragment, without its empty values. */
export function parseSearch(hash: string): Search {
  const at = hash.indexOf('?')
  if (at < 0) return {}
  const values = [...new URLSearchParams(hash.slice(at + 1))]
  return Object.fromEntries(values.filter(([, value]) => value !== ''))
}

export function href(...route: Route): string {
  return `#/${route.map(encodeURIComponent).join('/')}`
}

/** Returns a link with a query, like {@link href}; empty and undefined values are left out. */
export function hrefWith(route: Route, search: Record<string, string | undefined>): string {
  const values = Object.entries(search).filter((entry): entry is [string, string] => Boolean(entry[1]))
  return values.length === 0 ? href(...route) : `${href(...route)}?${new URLSearchParams(values)}`
}

/** Current routes of views whose routes have changed, by the first parts of the old routes. */
const moved: readonly (readonly [from: Route, to: Route])[] = [
  [['queue'], ['payouts', 'queue']],
  [['batches'], ['payouts', 'batches']],
  [['statement'], ['payouts', 'statement']],
  [['failures'], ['payments', 'failures']],
  [['setup', 'endpoints'], ['endpoints']],
  [['setup'], ['developers']],
]

/**
 * Returns the current route for an old one, so that bookmarks and links in mails keep working; undefined if the route never
 * changed.
 */
export function movedTo(route: Route): Route | undefined {
  const found = moved.find(([from]) => from.every((part, at) => route[at] === part))
  return found && [...found[1], ...route.slice(found[0].length)]
}

/** Returns the fragment. Renders the caller again when the fragment changes. */
function useHash(): string {
  const [hash, setHash] = useState(location.hash)
  useEffect(() => {
    const follow = () => setHash(location.hash)
    addEventListener('hashchange', follow)
    // An effect runs after the first paint, so the fragment may have changed since it was first read.
    follow()
    return () => removeEventListener('hashchange', follow)
  }, [])
  return hash
}

export function useRoute(): Route {
  return parseRoute(useHash())
}

/**
 * Returns the query of the fragment and a function that replaces it, so that a list's filters survive a reload and can be shared as a
 * link. The function keeps the route and adds an entry to the browser's history.
 */
export function useSearch(): [Search, (next: Record<string, string | undefined>) => void] {
  const hash = useHash()
  const replace = (next: Record<string, string | undefined>) => {
    location.hash = hrefWith(parseRoute(location.hash), next)
  }
  return [parseSearch(hash), replace]
}
