import { createAddressGuard } from '@tollkeeper/api/http/addressGuard'
import { originOf, parseAllowedHost } from '@tollkeeper/sdk/client/limits'
import { Agent, type Dispatcher, fetch as fetchByUndici } from 'undici'
import { CallError } from './result.ts'

/** Where requests may go. */
export type Reachable = {
  /** @throws {CallError} for a URL that may not be reached; it says what to do. */
  require: (url: URL) => void
  /** Like the global one, but it checks each hop, redirects included, and the address that a name resolves to. */
  fetch: typeof globalThis.fetch
  close: () => Promise<void>
}

const connectTimeoutMs = 10_000
/** How long an answer may take to begin, and may pause: models think, and a paid tool may take as long as a call. */
const idleTimeoutMs = 600_000

/**
 * Bounds where requests go, since an agent fetches URLs that strangers suggest, from a machine in a network of its own. Without a
 * list, all public hosts are reached, by https, and nothing private: neither this machine, its router, nor a cloud's metadata.
 * With a list, only the hosts on it are reached, which may be private.
 *
 * @param allowed hosts in the form of `allowedHosts`; none: all public ones.
 * @param own URLs from the operator's settings: always reached.
 */
export function createReachable(allowed: readonly string[], own: readonly string[]): Reachable {
  const named = new Set([...allowed.map(parseAllowedHost), ...own.map((url) => originOf(new URL(url)))])
  const guard = createAddressGuard({ allowPrivate: false })
  const limits = { headersTimeout: idleTimeoutMs, bodyTimeout: idleTimeoutMs }
  const plain = new Agent({ ...limits, connect: { timeout: connectTimeoutMs } })
  const guarded = new Agent({ ...limits, connect: { timeout: connectTimeoutMs, lookup: guard.lookup } })

  function require(url: URL): void {
    if (named.has(originOf(url))) return
    if (allowed.length > 0) throw new CallError(`${url.origin} is not among the hosts of --allow-host`)
    try {
      guard.checkLiteral(url)
    } catch (error) {
      throw new CallError(`${(error as Error).message}; the owner can allow it by --allow-host ${url.origin}`)
    }
  }

  const dispatcher = plain.compose((dispatch) => (options, handler) => {
    const url = new URL(String(options.origin))
    require(url)
    return named.has(originOf(url)) ? dispatch(options, handler) : guarded.dispatch(options, handler)
  }) satisfies Dispatcher

  return {
    require,
    fetch: ((input: string | URL, init?: object) =>
      fetchByUndici(input, { ...init, dispatcher })) as unknown as typeof globalThis.fetch,
    close: async () => {
      await Promise.all([plain.destroy(), guarded.destroy()])
    },
  }
}
