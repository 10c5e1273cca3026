import { useEffect, useState } from 'preact/hooks'

/** The route in the URL's fragment: `#/payments/pay_…` is `['payments', 'pay_…']`. */
export type Route = string[]

export function parseRoute(hash: string): Route {
  return hash
    .replace(/^#\/?/, '')
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

export function href(...route: Route): string {
  return `#/${route.map(encodeURIComponent).join('/')}`
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash)
  useEffect(() => {
    const follow = () => setHash(location.hash)
    addEventListener('hashchange', follow)
    // It may have changed since the first look: an effect runs after the page was painted.
    follow()
    return () => removeEventListener('hashchange', follow)
  }, [])
  return parseRoute(hash)
}
