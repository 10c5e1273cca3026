/** A problem that the gateway answered (RFC 9457), or `unreachable` where none came. */
export class GatewayError extends Error {
  override readonly name = 'GatewayError'
  readonly status: number
  readonly code: string

  constructor(status: number, code: string, message: string) {
    super(message)
    this.status = status
    this.code = code
  }
}

export type Gateway = {
  get: <T>(path: string, signal?: AbortSignal) => Promise<T>
  post: <T>(path: string) => Promise<T>
}

const timeoutMs = 15_000

/** The gateway that served this page, asked with an API key or without. Paths have no slash at the start. */
export function createGateway(key?: string): Gateway {
  async function ask<T>(method: string, path: string, signal?: AbortSignal): Promise<T> {
    const deadline = AbortSignal.timeout(timeoutMs)
    let response: Response
    try {
      // The page is at …/dashboard/ and the api one level up, whatever prefix a proxy adds.
      response = await fetch(new URL(`../${path}`, document.baseURI), {
        method,
        headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
        signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
        cache: 'no-store',
      })
    } catch (error) {
      if (signal?.aborted) throw error
      throw new GatewayError(0, 'unreachable', 'The gateway does not answer.')
    }
    const body: unknown = await response.json().catch(() => undefined)
    if (response.ok && body !== undefined) return body as T
    const problem = (body ?? {}) as { code?: string; detail?: string; title?: string }
    throw new GatewayError(
      response.status,
      problem.code ?? 'unreadable',
      problem.detail ?? problem.title ?? `The gateway answered ${response.status}.`,
    )
  }
  return {
    get: (path, signal) => ask('GET', path, signal),
    post: (path) => ask('POST', path),
  }
}

type Page = { cursor: string | null }

/** Reads a list's first `pages` pages, or all of them, into one. */
export async function readPages<P extends Page, Row>(
  read: (cursor: string | undefined) => Promise<P>,
  rowsOf: (page: P) => Row[],
  pages = Number.POSITIVE_INFINITY,
): Promise<{ rows: Row[]; hasMore: boolean }> {
  const rows: Row[] = []
  let cursor: string | undefined
  for (let count = 1; ; count++) {
    const page = await read(cursor)
    rows.push(...rowsOf(page))
    cursor = page.cursor ?? undefined
    if (cursor === undefined || count === pages) return { rows, hasMore: cursor !== undefined }
  }
}

/** A query string of the defined values. */
export function query(values: Record<string, string | number | undefined>): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(values)) if (value !== undefined) search.set(name, String(value))
  return `?${search}`
}
