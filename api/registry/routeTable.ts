import { toolPrefix } from '@tollkeeper/sdk/protocol/toolResource'
import { Refusal } from '../http/refusal.ts'

/*
 * Finds the registered endpoint of a path. Servers read paths differently: whether `%2F` is a slash, `/A` is `/a`, or `//`
 * is `/`. A caller who finds such a difference would have one endpoint charged and another one served. So a path that servers
 * may split differently is refused, and a segment that only reads like a literal matches nothing.
 */

/** One segment of a registered path, or all that follow. */
type RoutePart = { kind: 'literal'; text: string; loose: string } | { kind: 'parameter' } | { kind: 'rest' }

/** A registered path, as {@link parseRoute} reads it. */
export type Route = {
  /** Without a slash at the end. */
  path: string
  /** Equal for two routes that match the same paths, or that some server may take for the same. */
  shape: string
  parts: readonly RoutePart[]
  /** It is an MCP tool's, which no path of HTTP ever matches. */
  isTool: boolean
}

/** Most segments of a path, so that no path makes a look-up expensive. */
const maxSegments = 32
const parameterPattern = /^:[A-Za-z_]\w*$/
/** In a decoded segment: slashes, backslashes, control characters, matrix parameters, double encoding, dot segments. */
const structural = /[/\\;\p{Cc}]|%[\da-f]{2}|^\.{1,2}$/u

/** The text by which the endpoint of a URL is found: its path, on any origin; for an MCP tool the whole name. */
export function pathOf({ pathname, href }: URL): string {
  return isTool(href) ? href : pathname
}

function isTool(path: string): boolean {
  return path.startsWith(toolPrefix)
}

/**
 * Parses the path of an endpoint's URL: `:name` stands for one segment, `*` at the end for all that follow, or none.
 *
 * @throws {Refusal} `invalid_field`
 */
export function parseRoute(url: URL): Route {
  const { href } = url
  const pathname = pathOf(url)
  const segments = readSegments(pathname)
  if (segments === undefined) throw invalid(`${pathname} is a path that servers may read differently`)
  if (/\/:\w+\?$/.test(href)) throw invalid('a :name can not be left out; register the shorter path as well')
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
  return { path, shape: start + shape.join('/'), parts, isTool: isTool(pathname) }
}

/** Segments that stand for any text in other routers: `{id}`, `[id]`, `<id>`, and parts such as `file.{ext}`. */
const otherParameter = /^\[.*\]$|[{}<>]/

/**
 * Parses the path of a URL that is to be registered, as {@link parseRoute}. It refuses what would be registered as text that no request
 * has: the notations of other routers, a query and a fragment.
 *
 * @throws {Refusal} `invalid_field`
 */
export function parseNewRoute(url: URL): Route {
  const route = parseRoute(url)
  if (route.isTool) return route
  if (url.search !== '' || url.hash !== '')
    throw invalid(`an endpoint is found by its path, so register it without ${url.search}${url.hash}`)
  for (const segment of decodeURIComponent(url.pathname).split('/')) {
    if (otherParameter.test(segment)) {
      const name = segment.replace(/\W+/g, '') || 'name'
      throw invalid(`${segment} would match only itself; write :${name} for any one segment`)
    }
  }
  return route
}

/**
 * Whether others leave a route no path of its own, as `/a` and `/a/:b/*` do with `/a/*`. That happens only to routes that end in
 * `*`, because a segment that is no literal is matched only by `:name` and `*`.
 *
 * @param others the shapes of routes for the same method, or for any.
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
  /** As it came, with percent-encoding in upper case. */
  text: string
  /** As the most tolerant server would read it, encoded so that it is neither `*` nor `:`. */
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

/** As the most tolerant server reads it: a full-width dot is a dot, `℀` is `a/c`. Undefined if it isn't UTF-8. */
function fold(text: string): string | undefined {
  try {
    return decodeURIComponent(text).normalize('NFKC').toLowerCase().normalize('NFKC')
  } catch {
    return undefined
  }
}

export type RouteTable<T> = {
  size: number
  /**
   * The most specific route of a path: from the left, a literal segment goes before `:name`, and that before `*`, so the
   * longer of two that end in `*` is found.
   *
   * @param choose picks one of the endpoints that have one shape, for example by the request's method
   */
  find(pathname: string, choose: (registered: readonly T[]) => T | undefined): T | undefined
}

type Node<T> = {
  literals: Map<string, Node<T>>
  parameter: Node<T> | undefined
  /** The endpoints that end here, and those that end here with `*`. */
  here: T[]
  rest: T[]
}

/** Most steps of a look-up; only routes that somebody chose to make it expensive need more. */
const maxSteps = 1_000

export function createRouteTable<T extends { route: Route }>(entries: readonly T[]): RouteTable<T> {
  const [paths, tools] = [emptyNode<T>(), emptyNode<T>()]
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
    ;(entry.route.parts.at(-1)?.kind === 'rest' ? node.rest : node.here).push(entry)
  }

  return {
    size: entries.length,
    find(pathname, choose) {
      const segments = readSegments(pathname)
      if (segments === undefined) return undefined
      let steps = 0
      function search(node: Node<T>, depth: number): T | undefined {
        if (++steps > maxSteps) return undefined
        const segment = segments?.[depth]
        if (segment === undefined) return choose(node.here) ?? choose(node.rest)
        const literal = node.literals.get(segment.loose)
        return (
          (literal && search(literal, depth + 1)) ??
          (node.parameter && search(node.parameter, depth + 1)) ??
          choose(node.rest)
        )
      }
      const found = search(isTool(pathname) ? tools : paths, 0)
      if (found === undefined || steps > maxSteps) return undefined
      // A server that isn't as tolerant serves something else for this path, so no less specific route is taken either.
      return hasLiterals(found.route, segments) ? found : undefined
    },
  }
}

function emptyNode<T>(): Node<T> {
  return { literals: new Map(), parameter: undefined, here: [], rest: [] }
}

/** Whether the path has the very literals of the route, not only something that reads like them. */
function hasLiterals({ parts }: Route, segments: readonly Segment[]): boolean {
  return parts.every((part, index) => part.kind !== 'literal' || part.text === segments[index]?.text)
}
