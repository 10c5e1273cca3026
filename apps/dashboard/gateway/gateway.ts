/** A problem (RFC 9457) that the gateway returned, or `unreachable` if it didn't respond. */
export class GatewayError extends Error {
  override readonly name = 'GatewayError'
  readonly status: number
  readonly code: string
  /** The gateway's messages about single fields of the request. */
  readonly fields: readonly { field: string; message: string }[]

  constructor(status: number, code: string, message: string, fields: GatewayError['fields'] = []) {
    super(message)
    this.status = status
    this.code = code
    this.fields = fields
  }
}

export type Gateway = {
  /**
   * Reads the first `pages` pages of a list, or all pages, and joins them. The response has the rows in a field that is named like
   * the last part of the path.
   */
  list: <Row, Page = object>(path: string, asked: Query, pages: Pages) => Promise<List<Row, Page>>
  get: <T>(path: string, signal?: AbortSignal) => Promise<T>
  put: <T>(path: string, body: object) => Promise<T>
  post: <T>(path: string, body?: object, headers?: Record<string, string>) => Promise<T>
  /** Changes a resource. @param version the version that the user saw, for a resource with versions */
  patch: <T>(path: string, body: object, version?: number) => Promise<T>
  delete: (path: string) => Promise<void>
  /** Downloads a file, without a timeout. */
  download: (path: string) => Promise<Blob>
}

export type Pages = { signal: AbortSignal; pages?: number }
export type List<Row, Page> = { rows: Row[]; hasMore: boolean; last: Page }
type Asked = {
  signal?: AbortSignal | undefined
  body?: object | undefined
  headers?: Record<string, string> | undefined
}
type Query = Record<string, string | number | undefined>

const timeoutMs = 15_000
/** Maximum number of responses to keep, so that a 304 can confirm them. A page reads at most ten. */
const maxKept = 30

/** Creates the client of the gateway that served this page, with or without an API key. Paths have no leading slash. */
export function createGateway(key?: string): Gateway {
  // The browser doesn't cache these responses on disk, so keep them in memory while the user is signed in.
  const kept = new Map<string, { etag: string; answer: unknown }>()
  const keep = (path: string, etag: string | null, answer: unknown) => {
    kept.delete(path)
    if (etag === null) return
    kept.set(path, { etag, answer })
    const [oldest] = kept.keys()
    if (kept.size > maxKept && oldest !== undefined) kept.delete(oldest)
  }

  async function request(method: string, path: string, { signal, body, headers }: Asked): Promise<Response> {
    try {
      // The page is at …/dashboard/. The api is one level up, behind any prefix that a proxy adds.
      return await fetch(new URL(`../${path}`, document.baseURI), {
        method,
        headers: {
          ...(key !== undefined && { authorization: `Bearer ${key}` }),
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        ...(signal && { signal }),
        cache: 'no-store',
      })
    } catch (error) {
      if (signal?.aborted && signal.reason?.name !== 'TimeoutError') throw error
      throw new GatewayError(0, 'unreachable', 'The gateway isn’t responding.')
    }
  }

  async function ask<T>(method: string, path: string, { signal, ...asked }: Asked = {}): Promise<T> {
    const deadline = AbortSignal.timeout(timeoutMs)
    const ends = signal ? AbortSignal.any([signal, deadline]) : deadline
    const known = method === 'GET' ? kept.get(path) : undefined
    const headers = known ? { ...asked.headers, 'if-none-match': known.etag } : asked.headers
    const response = await request(method, path, { ...asked, headers, signal: ends })
    if (known && response.status === 304) {
      // Read the body to its end, although it isn't needed: until then, the browser counts the request as open.
      await response.text().catch(() => '')
      return known.answer as T
    }
    const answer: unknown = await response.json().catch(() => undefined)
    // Don't keep an incomplete response, because a 304 would confirm it.
    if (method === 'GET' && response.ok && answer !== undefined)
      keep(path, response.headers.get('etag'), answer)
    // 202 and 204 have no body.
    if (response.ok && (answer !== undefined || response.status > 201)) return answer as T
    throw toError(response.status, (answer ?? {}) as Problem)
  }
  return {
    async list<Row, Page>(path: string, asked: Query, { signal, pages = Infinity }: Pages) {
      type Found = Page & { cursor: string | null } & Record<string, Row[]>
      const name = path.slice(path.lastIndexOf('/') + 1)
      const rows: Row[] = []
      let cursor: string | undefined
      for (let count = 1; ; count++) {
        const last = await ask<Found>('GET', `${path}${query({ ...asked, cursor })}`, { signal })
        rows.push(...(last[name] as Row[]))
        cursor = last.cursor ?? undefined
        if (cursor === undefined || count === pages) return { rows, hasMore: cursor !== undefined, last }
      }
    },
    get: (path, signal) => ask('GET', path, { signal }),
    put: (path, body) => ask('PUT', path, { body }),
    post: (path, body, headers) => ask('POST', path, { body, headers }),
    patch: (path, body, version) =>
      ask('PATCH', path, { body, headers: version === undefined ? {} : { 'if-match': `"${version}"` } }),
    delete: (path) => ask('DELETE', path),
    async download(path) {
      const response = await request('GET', path, {})
      if (!response.ok) throw toError(response.status, (await response.json().catch(() => ({}))) as Problem)
      return response.blob().catch(() => {
        throw new GatewayError(0, 'unreachable', 'The gateway’s response was incomplete.')
      })
    },
  }
}

type Problem = {
  code?: string
  detail?: string
  title?: string
  field?: string
  errors?: GatewayError['fields']
}

function toError(
  status: number,
  { code = 'unreadable', detail, title, field, errors }: Problem,
): GatewayError {
  const message = detail ?? title ?? `The gateway answered with status ${status}.`
  return new GatewayError(status, code, message, errors ?? (field === undefined ? [] : [{ field, message }]))
}

/** Returns a query string of the defined values. */
export function query(values: Query): string {
  const defined = Object.entries(values).filter(([, value]) => value !== undefined)
  return `?${new URLSearchParams(defined as [string, string][])}`
}
