import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  createRouteTable,
  isShadowed,
  overlaps,
  parseNewRoute,
  parseRoute,
  pathOf,
  type Route,
} from './routeTable.ts'

const route = (path: string) => parseRoute(new URL(`https://api.example${path}`))
const tableOf = (...paths: string[]) => createRouteTable(paths.map((path) => ({ path, route: route(path) })))
/** Finds the endpoint of a path. `new URL` normalizes the path, as for a real request. */
const find = (table: ReturnType<typeof tableOf>, path: string) =>
  table.find(new URL(`https://api.example${path}`).pathname, ([first]) => first)[0]?.path

/** Splits a list of paths, none of which contains a space. */
const pathsIn = (list: string) => list.trim().split(/\s+/)

const codeOf = (path: string) => {
  try {
    return route(path).shape
  } catch (error) {
    return (error as { code: string }).code
  }
}

describe('find', () => {
  const table = tableOf(
    ...pathsIn(`
      / /users /users/:id /users/me /users/:id/orders /users/* /users/me/files/* /:any/x /caf%C3%A9
      /v1/models:predict
    `),
  )
  test.each([
    ['/', '/'],
    ['/users', '/users'],
    ['/users/', '/users'],
    ['/users?page=2', '/users'],
    ['/users/7', '/users/:id'],
    ['/users/me', '/users/me'],
    ['/users/me/orders', '/users/:id/orders'],
    ['/users/7/orders/', '/users/:id/orders'],
    ['/users/7/orders/9', '/users/*'],
    ['/users/me/files', '/users/me/files/*'],
    ['/users/me/files/a/b', '/users/me/files/*'],
    // The leftmost literal decides, even if a later literal would match more of the path.
    ['/users/x', '/users/:id'],
    ['/shops/x', '/:any/x'],
    ['/shops/y', undefined],
    ['/café', '/caf%C3%A9'],
    ['/caf%c3%a9', '/caf%C3%A9'],
    ['/v1/models:predict', '/v1/models:predict'],
  ])('behavior: matches %s to %s', (path, expected) => expect(find(table, path)).toBe(expected))

  test('default: * at the end also matches an empty rest', () => {
    const files = tableOf('/files/*')
    expect(['/files', '/files/', '/files/a', '/file'].map((path) => find(files, path))).toEqual([
      ...['/files/*', '/files/*', '/files/*'],
      undefined,
    ])
  })
})

describe('parseNewRoute', () => {
  const register = (path: string) => parseNewRoute(new URL(`https://api.example${path}`))

  test.each([
    ['/cities/{id}', ':id'],
    ['/cities/[id]', ':id'],
    ['/cities/[...slug]', ':slug'],
    ['/cities/<int>', ':int'],
    ['/files/report.{ext}', ':reportext'],
    ['/cities?x=1', 'without ?x=1'],
    ['/cities#top', 'without #top'],
  ])('error: %s is refused, because no request would have that text', (path, advice) => {
    expect(() => register(path)).toThrow(
      expect.objectContaining({ code: 'invalid_field', message: expect.stringContaining(advice) }),
    )
  })

  test.each(['/', '/cities/:id', '/cities/*', '/caf%C3%A9', '/a[0]b', '/v1/models:predict'])(
    'default: accepts %s',
    (path) => {
      expect(register(path)).toEqual(route(path))
    },
  )

  test('default: an MCP tool is found by its name', () => {
    expect(parseNewRoute(new URL('mcp://tool/forecast')).shape).toBe('mcp://tool/forecast')
  })
})

describe('tools of MCP', () => {
  const routeOf = (url: string) => parseRoute(new URL(url))
  const urls = ['mcp://tool/*', 'mcp://tool/search', 'mcp://tool/east/:any', 'https://api.example/*']
  const table = createRouteTable(urls.map((url) => ({ url, route: routeOf(url) })))
  const findUrl = (asked: string) => table.find(pathOf(new URL(asked)), ([first]) => first)[0]?.url

  test.each([
    ['mcp://tool/search', 'mcp://tool/search'],
    ['mcp://tool/other', 'mcp://tool/*'],
    ['mcp://tool/east/search', 'mcp://tool/east/:any'],
    // A name that only resembles a literal is another tool.
    ['mcp://tool/Search', undefined],
    ['https://api.example/search', 'https://api.example/*'],
    ['https://api.example/mcp://tool/search', undefined],
    ['https://api.example/mcp:/tool/search', 'https://api.example/*'],
  ])('behavior: matches %s to %s', (asked, expected) => expect(findUrl(asked)).toBe(expected))

  test('default: the path and shape of a tool contain its whole name', () => {
    expect(routeOf('mcp://tool/a/:b')).toMatchObject({ path: 'mcp://tool/a/:b', shape: 'mcp://tool/a/:' })
    expect(isShadowed('mcp://tool/*', new Set(['mcp://tool/:', '/', '/:']))).toBe(false)
  })
})

describe('paths that servers read differently match nothing', () => {
  // The cheap endpoint must not be charged for what is served as the expensive one, nor the other way round.
  const table = tableOf('/premium', '/free', '/:name', '/*')
  const misread = pathsIn(`
    /PREMIUM /Free /%70remium /fre%65 /premium%2F /a%2Fb /a%5cb /free;x=1 /premium; //premium /premium//
    /a//b /free%00 /free%0a /%252Fpremium /%2570remium /%E2%84%AA%FF /ｆｒｅｅ /x/..;/premium /%C0%AFpremium
  `)
  // These become dots, slashes, a semicolon and a percent sign when normalized.
  const normalised = pathsIn(`
    /x/．．/premium /x/%EF%BC%8E%EF%BC%8E/premium /x/‥/premium /x/․․/premium /x/.．/premium /．/premium
    /a／premium /a%EF%BC%8Fpremium /a＼premium /a℀b /free；x=1 /a％2fpremium /a％２Ｆpremium /a%EF%BC%852fb
    /a%C2%85b
  `)
  test.each([...misread, ...normalised])('error: finds no route for %s', (path) =>
    expect(find(table, path)).toBe(undefined),
  )

  test.each(['/premium/../free', '/x/%2e%2e/free', '/./free', '/x/.%2E/free'])(
    'behavior: %s is read as a URL parser reads it',
    (path) => expect(find(table, path)).toBe('/free'),
  )
})

test('behavior: if routes are chosen to make a lookup expensive, the lookup stops early and finds no route, rather than a less specific route', () => {
  const paths = Array.from({ length: 1_000 }, (_, i) => {
    const bits = i.toString(2).padStart(10, '0').replaceAll('0', '/a').replaceAll('1', '/:x')
    return `${bits}${'/t'.repeat(21)}/end`
  })
  const table = tableOf('/*', ...paths)
  let chosen = 0
  const asked = `${'/a'.repeat(10)}${'/t'.repeat(21)}`
  const find = (path: string) =>
    table.find(path, ([first]) => {
      chosen++
      return first
    })[0]?.path
  expect(find(`${asked}/end`)).toBe(paths[0])
  chosen = 0
  expect(find(`${asked}/other`)).toBe(undefined)
  expect(chosen).toBeLessThan(2_000)
})

describe('shape', () => {
  test.each([
    ['/users/:id', '/users/:'],
    ['/users/:name/', '/users/:'],
    ['/Users/:id', '/users/:'],
    ['/users/*', '/users/*'],
    ['/%75sers', '/users'],
    ['/%2A', '/%2A'],
    ['/%3Aid', '/%3Aid'],
    ['/', '/'],
    ['/*', '/*'],
    ...['/a//b', '/a%2fb', '/a;b', '/:', '/:1a', '/:id{[0-9]+}', '/*/b', '/a*', '/:id?', '/%ff'].map(
      (path) => [path, 'invalid_field'],
    ),
    [`/${'a/'.repeat(33)}`, 'invalid_field'],
  ])('args: parses %s to %s', (path, expected) => expect(codeOf(path as string)).toBe(expected))
})

describe('properties', () => {
  const literal = fc.constantFrom('a', 'b', 'A', 'é', '%41', "it's", 'x.y')
  const segment = fc.oneof({ arbitrary: literal, weight: 3 }, fc.constantFrom(':x', ':y'))
  const pattern = fc
    .tuple(fc.array(segment, { maxLength: 4 }), fc.boolean())
    .map(([segments, isOpen]) => `/${[...segments, ...(isOpen ? ['*'] : [])].join('/')}`)
  const hostile = fc.constantFrom(
    '',
    ...pathsIn(`
      a b A %61 é %C3%89 . .. %2e%2e %2F a%2Fb ; a;b %5C %25 %zz
    `),
    ...[':x', '*', '%2a', '\u212a', 'ａ', '%00', 'x.y', 'x%2Ey'],
  )
  const asked = fc.array(hostile, { maxLength: 6 }).map((segments) => `/${segments.join('/')}`)

  /** Implements the definition directly: checks each route alone, and finds the best by comparing segment by segment. */
  function matches(path: string, registered: string): boolean {
    const segments = path === '/' ? [] : path.slice(1).replace(/\/$/, '').split('/')
    const { parts } = route(registered)
    const isOpen = parts.at(-1)?.kind === 'rest'
    if (isOpen ? segments.length < parts.length - 1 : segments.length !== parts.length) return false
    return parts.every((part, i) => part.kind !== 'literal' || part.text === segments[i])
  }
  const rank = (registered: string) => [
    ...route(registered).parts.map(({ kind }) => ['literal', 'parameter', 'end', 'rest'].indexOf(kind)),
    2,
  ]

  test('behavior: the route found matches literally, no other match is more specific, and conflicting routes share a shape', () => {
    const found = { some: 0, none: 0 }
    fc.assert(
      fc.property(
        fc.uniqueArray(pattern, { selector: (one) => route(one).shape, minLength: 1 }),
        asked,
        (paths, ask) => {
          const { pathname } = new URL(`https://api.example${ask}`)
          const got = tableOf(...paths).find(pathname, ([first]) => first)[0]?.path
          found[got === undefined ? 'none' : 'some']++
          if (got === undefined) return
          expect(matches(pathname, got)).toBe(true)
          for (const other of paths.filter((one) => one !== got && matches(pathname, one))) {
            const [mine, theirs] = [rank(got), rank(other)]
            const at = mine.findIndex((value, i) => value !== theirs[i])
            expect([got, other, at >= 0 && (mine[at] as number) < (theirs[at] as number)]).toEqual([
              got,
              other,
              true,
            ])
          }
        },
      ),
      { numRuns: 3_000 },
    )
    expect(Math.min(found.some, found.none)).toBeGreaterThan(200)
  })

  test('behavior: a route is shadowed if no path leads to it', () => {
    const part = fc.constantFrom('a', 'A', ':x')
    const tail = fc.constantFrom('/:x', '/:x/:x', '/*', '/:x/*', '')
    const some = fc
      .tuple(fc.array(part, { maxLength: 2 }), tail)
      .map(([parts, end]) => `/${parts.join('/')}`.replace(/\/$/, '') + end || '/')
    const seen = new Set<boolean>()
    fc.assert(
      fc.property(fc.uniqueArray(some, { selector: (one) => route(one).shape, minLength: 1 }), (paths) => {
        const table = tableOf(...paths)
        const shapes = new Set(paths.map((path) => route(path).shape))
        for (const path of paths) {
          const start = path.replace(/\/?\*$/, '').replaceAll(':x', 'unknown')
          const asked = path.endsWith('*')
            ? Array.from({ length: 7 }, (_, k) => start + '/other'.repeat(k))
            : [start]
          const isReached = asked.some((one) => find(table, one || '/') === path)
          expect([path, isShadowed(route(path).shape, shapes)]).toEqual([path, !isReached])
          seen.add(isReached)
        }
      }),
      { numRuns: 2_000 },
    )
    expect(seen.size).toBe(2)
  })

  test('behavior: a registered path is found by its own text, and parsing that text again gives the same path and shape', () => {
    fc.assert(
      fc.property(fc.array(literal, { minLength: 1, maxLength: 5 }), (segments) => {
        const { path, shape } = route(`/${segments.join('/')}`)
        expect(route(path)).toMatchObject({ path, shape })
        expect(tableOf(path).find(path, ([first]) => first)[0]?.path).toBe(path)
      }),
    )
  })
})

describe('hosts', () => {
  const table = createRouteTable(
    [
      'api.example/users/:id',
      'api.example/*',
      'sandbox.example/users/me',
      'sandbox.example:8080/users/:id',
    ].map((at) => ({ at, route: parseRoute(new URL(`https://${at}`)) })),
  )
  const find = (path: string, host: string | null = null) =>
    table
      .find(path, ([first]) => first, host)
      .map(({ at }) => at)
      .sort()

  test('behavior: finds the most specific route of each host, or of one requested host', () => {
    expect(find('/users/me')).toEqual([
      'api.example/users/:id',
      'sandbox.example/users/me',
      'sandbox.example:8080/users/:id',
    ])
    expect(find('/users/7')).toEqual(['api.example/users/:id', 'sandbox.example:8080/users/:id'])
    expect(find('/other')).toEqual(['api.example/*'])
    expect(find('/users/me', 'api.example')).toEqual(['api.example/users/:id'])
    expect(find('/other', 'sandbox.example')).toEqual([])
    expect(['api.example', 'sandbox.example:8080', 'sandbox.example:443'].map(table.hasHost)).toEqual([
      true,
      true,
      false,
    ])
  })

  test('behavior: finds nothing on any host if the path only resembles a literal on one of them', () => {
    expect(find('/users/ME')).toEqual([])
    expect(find('/users/ME', 'api.example')).toEqual(['api.example/users/:id'])
  })

  test.each([
    ['/a', '/a', true],
    ['/a', '/A', true],
    ['/a', '/b', false],
    ['/a/:b', '/a/c', true],
    ['/a/:b', '/a', false],
    ['/a/*', '/a', true],
    ['/*', '/a/b/c', true],
    ['/a/*', '/b/*', false],
    ['/:a/b', '/c/:d', true],
  ])('behavior: returns whether %s and %s have paths in common: %s', (one, other, expected) => {
    const [a, b] = [one, other].map((path) => parseRoute(new URL(`https://api.example${path}`))) as [
      Route,
      Route,
    ]
    expect([overlaps(a, b), overlaps(b, a)]).toEqual([expected, expected])
  })
})
