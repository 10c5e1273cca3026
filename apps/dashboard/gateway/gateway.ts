/** A problem that the gateway answered (RFC 9457), or `unreachable` if no answer came. */
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
  /** Reads the first `pages` pages of a list into one, or all of them. Its rows have the name of the path's end. */
  list: <Row, Page = object>(path: string, asked: Query, pages: Pages) => Promise<List<Row, Page>>
  get: <T>(path: string, signal?: AbortSignal) => Promise<T>
  put: <T>(path: string, body: object) => Promise<T>
  post: <T>(path: string, body?: object, headers?: Record<string, string>) => Promise<T>
  /** @param version the version that the user saw, if the resource has versions */
  patch: <T>(path: string, body: object, version?: number) => Promise<T>
  delete: (path: string) => Promise<void>
  /** A file, however long it takes to come. */
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

/** The gateway that served this page, with an API key or without. Paths have no slash at the start. */
export function createGateway(key?: string): Gateway {
  async function request(method: string, path: string, { signal, body, headers }: Asked): Promise<Response> {
    try {
      // The page is at …/dashboard/ and the api one level up, whatever prefix a proxy adds.
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
      throw new GatewayError(0, 'unreachable', 'The gateway does not answer.')
    }
  }

  async function ask<T>(method: string, path: string, { signal, ...asked }: Asked = {}): Promise<T> {
    const deadline = AbortSignal.timeout(timeoutMs)
    const ends = signal ? AbortSignal.any([signal, deadline]) : deadline
    const response = await request(method, path, { ...asked, signal: ends })
    const answer: unknown = await response.json().catch(() => undefined)
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
        throw new GatewayError(0, 'unreachable', 'The gateway broke off.')
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
  const message = detail ?? title ?? `The gateway answered ${status}.`
  return new GatewayError(status, code, message, errors ?? (field === undefined ? [] : [{ field, message }]))
}

/** A query string of the defined values. */
export function query(values: Query): string {
  const defined = Object.entries(values).filter(([, value]) => value !== undefined)
  return `?${new URLSearchParams(defined as [string, string][])}`
}
