import { toolPrefix } from '@tollkeeper/sdk/protocol/toolResource'
import { Refusal } from '../http/refusal.ts'

/*
 * Finds the registered endpoint of a path. Servers read paths differently: whether `%2F` is a slash, `/A` is `/a`, or `//` is `/`. A caller
 * who finds such a difference could be charged for one endpoint and served another. So a path that servers may split differently is
 * refused, and a segment that only resembles a literal matches nothing.
 */

/** One segment of a registered path, or all following segments. */
type RoutePart = { kind: 'literal'; text: string; loose: string } | { kind: 'parameter' } | { kind: 'rest' }

/** A registered URL's host and path, as {@link parseRoute} reads them. */
export type Route = {
  /** The host as {@link hostOf} returns it. */
  host: string
  /** Path without a slash at the end. */
  path: string
  /** Equal for two routes that match the same paths, or that some server may consider the same. */
  shape: string
  parts: readonly RoutePart[]
  /** Whether the route is an MCP tool's, which no HTTP path ever matches. */
  isTool: boolean
}

/** Maximum number of segments of a path, so that no path makes a lookup expensive. */
const maxSegments = 32
const parameterPattern = /^:[A-Za-z_]\w*$/
/**
 * Characters that are not allowed in a decoded segment: slashes, backslashes, control characters, matrix parameters, double encoding, dot
 * segments.
 */
const structural = /[/\\;\p{Cc}]|%[\da-f]{2}|^\.{1,2}$/u

/** Returns the text by which the endpoint of a URL is found: its path, on any origin; for an MCP tool the whole name. */
export function pathOf({ pathname, href }: URL): string {
  return isTool(href) ? href : pathname
}

/** Returns the host of a registered URL, with the port if it isn't the scheme's default; '' for an MCP tool, which may be on any server. */
export function hostOf({ host, href }: URL): string {
  return isTool(href) ? '' : host
}

function isTool(path: string): boolean {
  return path.startsWith(toolPrefix)
}

/**
 * Parses the path of an endpoint's URL: `:name` matches one segment, `*` at the end matches all that follow, or none.
 *
 * @throws {Refusal} `invalid_field`
 */
export function parseRoute(url: URL): Route {
  const { href } = url
  const pathname = pathOf(url)
  const segments = readSegments(pathname)
  if (segments === undefined)
    throw invalid(
      `servers may read the path ${pathname} differently; remove dot segments, empty segments, ";" and encoded slashes`,
    )
  if (/\/:\w+\?$/.test(href)) throw invalid('a :name cannot be optional; register the shorter path as well')
  const parts = segments.map(({ text, loose }, index): RoutePart => {
    if (text === '*' && index === segments.length - 1) return { kind: 'rest' }
    if (parameterPattern.test(text)) return { kind: 'parameter' }
    if (text.startsWith(':') || text.includes('*')) {
      throw invalid(`expected :name for one segment or * for the end of the path, got ${text}`)
    }
    return { kind: 'literal', text, loose }
  })
  const shape = parts.map((part) => (part.kind === 'literal' ? part.loose : part.kind === 'rest' ? '*' : ':'))
  const start = isTool(pathname) ? toolPrefix : '/'
  const path = start + segments.map(({ text }) => text).join('/')
  return { host: hostOf(url), path, shape: start + shape.join('/'), parts, isTool: isTool(pathname) }
}

/** Returns whether some path matches both routes, so that only their hosts distinguish them. */
export function overlaps(
  one: Pick<Route, 'parts' | 'isTool'>,
  other: Pick<Route, 'parts' | 'isTool'>,
): boolean {
  if (one.isTool !== other.isTool) return false
  for (let index = 0; ; index++) {
    const [a, b] = [one.parts[index], other.parts[index]]
    if (a?.kind === 'rest' || b?.kind === 'rest') return true
    if (a === undefined || b === undefined) return a === b
    if (a.kind === 'literal' && b.kind === 'literal' && a.loose !== b.loose) return false
  }
}

/** Segments that match any text in other routers: `{id}`, `[id]`, `<id>`, and parts such as `file.{ext}`. */
const otherParameter = /^\[.*\]$|[{}<>]/

/**
 * Parses the path of a URL that is to be registered, like {@link parseRoute}. Also rejects text that no request path contains: the
 * parameter notations of other routers, a query and a fragment.
 *
 * @throws {Refusal} `invalid_field`
 */
export function parseNewRoute(url: URL): Route {
  const route = parseRoute(url)
  if (route.isTool) return route
  if (url.search !== '' || url.hash !== '')
    throw invalid(`an endpoint is found by its path: register it without ${url.search}${url.hash}`)
  for (const segment of decodeURIComponent(url.pathname).split('/')) {
    if (otherParameter.test(segment)) {
      const name = segment.replace(/\W+/g, '') || 'name'
      throw invalid(`${segment} would match only itself; write :${name} for any one segment`)
    }
  }
  return route
}

/**
 * Returns whether other routes match every path of a route, as `/a` and `/a/:b/*` do with `/a/*`. This happens only to routes that end in
 * `*`, because only `:name` and `*` match a segment that isn't a literal.
 *
 * @param others the shapes of routes for the same method, or for any method.
 */
export function isShadowed(shape: string, others: ReadonlySet<string>): boolean {
  if (!shape.endsWith('/*')) return false
  let path = shape.slice(0, -2)
  for (let segments = path.split('/').length - 1; segments <= maxSegments; segments++) {
    if (!others.has(path || '/')) return false
    path += '/:'
    if (others.has(`${path}/*`)) return true
  }
  return true
}

function invalid(message: string): Refusal {
  return new Refusal('invalid_field', `url: ${message}`, { details: { field: 'url' } })
}

type Segment = {
  /** The segment as received, with percent-encoding in upper case. */
  text: string
  /** The segment as the most tolerant server would read it, encoded so that it is neither `*` nor `:`. */
  loose: string
}

/** @returns undefined for a path that servers may split differently */
function readSegments(pathname: string): Segment[] | undefined {
  if (pathname === '/') return []
  const start = isTool(pathname) ? toolPrefix : '/'
  const texts = pathname.slice(start.length).replace(/\/$/, '').split('/')
  if (texts.length > maxSegments) return undefined
  const segments: Segment[] = []
  for (const text of texts) {
    const folded = fold(text)
    if (folded === undefined || folded === '' || structural.test(folded)) return undefined
    const loose = encodeURIComponent(folded).replaceAll('*', '%2A')
    segments.push({ text: text.replace(/%[\da-f]{2}/gi, (byte) => byte.toUpperCase()), loose })
  }
  return segments
}

/** Decodes text as the most tolerant server would: a full-width dot is a dot, `℀` is `a/c`. Undefined if the text isn't UTF-8. */
function fold(text: string): string | undefined {
  try {
    return decodeURIComponent(text).normalize('NFKC').toLowerCase().normalize('NFKC')
  } catch {
    return undefined
  }
}

export type RouteTable<T> = {
  size: number
  /** Returns whether anything is registered on a host. */
  hasHost(host: string): boolean
  /**
   * Finds the most specific route of a path on one host, or on each host. Read from the left, a literal segment takes precedence over
   * `:name`, and `:name` over `*`, so the longer of two routes that end in `*` is found.
   *
   * @param choose picks one of the endpoints that have the same shape and host, for example by the request's method
   * @param host null: any host
   */
  find(pathname: string, choose: (registered: readonly T[]) => T | undefined, host?: string | null): T[]
}

type Node<T> = {
  literals: Map<string, Node<T>>
  parameter: Node<T> | undefined
  /** The endpoints whose path ends at this node, keyed by host. `rest` has the endpoints whose path ends here with `*`. */
  here: Map<string, T[]>
  rest: Map<string, T[]>
}

/** Maximum number of steps of a lookup. Only routes that were chosen to make lookups expensive need more steps. */
const maxSteps = 1_000

export function createRouteTable<T extends { route: Route }>(entries: readonly T[]): RouteTable<T> {
  const [paths, tools] = [emptyNode<T>(), emptyNode<T>()]
  const hosts = new Set(entries.filter(({ route }) => !route.isTool).map(({ route }) => route.host))
  for (const entry of entries) {
    let node = entry.route.isTool ? tools : paths
    for (const part of entry.route.parts) {
      if (part.kind === 'rest') continue
      let next = part.kind === 'literal' ? node.literals.get(part.loose) : node.parameter
      next ??= emptyNode<T>()
      if (part.kind === 'literal') node.literals.set(part.loose, next)
      else node.parameter = next
      node = next
    }
    const ends = entry.route.parts.at(-1)?.kind === 'rest' ? node.rest : node.here
    const { host } = entry.route
    ends.set(host, [...(ends.get(host) ?? []), entry])
  }

  return {
    size: entries.length,
    hasHost: (host) => hosts.has(host),
    find(pathname, choose, host = null) {
      const segments = readSegments(pathname)
      if (segments === undefined) return []
      const asked = isTool(pathname) ? { from: tools, host: '' } : { from: paths, host }
      const wanted = asked.host === null ? hosts.size : 1
      /** The first endpoint found for each host is its most specific. */
      const found = new Map<string, T>()
      function take(ends: Node<T>['here']): void {
        for (const one of asked.host === null ? ends.keys() : [asked.host]) {
          const chosen = found.has(one) ? undefined : choose(ends.get(one) ?? [])
          if (chosen !== undefined) found.set(one, chosen)
        }
      }
      let steps = 0
      function search(node: Node<T>, depth: number): void {
        if (found.size === wanted || ++steps > maxSteps) return
        const segment = segments?.[depth]
        if (segment === undefined) {
          take(node.here)
          take(node.rest)
          return
        }
        const literal = node.literals.get(segment.loose)
        if (literal) search(literal, depth + 1)
        if (node.parameter) search(node.parameter, depth + 1)
        take(node.rest)
      }
      search(asked.from, 0)
      if (steps > maxSteps) return []
      const all = [...found.values()]
      // If a route matches only tolerantly, a strict server would serve another resource for this path. No match is safe then, not even a
      // less specific route or a route of another host.
      return all.every(({ route }) => hasLiterals(route, segments)) ? all : []
    },
  }
}

function emptyNode<T>(): Node<T> {
  return { literals: new Map(), parameter: undefined, here: new Map(), rest: new Map() }
}

/** Returns whether the path contains exactly the route's literals, not only text that resembles them. */
function hasLiterals({ parts }: Route, segments: readonly Segment[]): boolean {
  return parts.every((part, index) => part.kind !== 'literal' || part.text === segments[index]?.text)
}
