import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { originOf, parseAllowedHost } from '@tollkeeper/sdk/client/limits'
import { Agent, type Dispatcher, fetch as fetchByUndici } from 'undici'
import { CallError } from './result.ts'

/** The hosts to which requests may be sent. */
export type Reachable = {
  /** Checks a URL. @throws {CallError} for a URL that must not be reached; the message says how to allow the URL. */
  require: (url: URL) => void
  /** Works like the global fetch, but checks the URL of each redirect, and the address to which each name resolves. */
  fetch: typeof globalThis.fetch
  close: () => Promise<void>
}

const connectTimeoutMs = 10_000
/**
 * Timeout in ms until a response begins, and for a pause in the response. It is as long as a tool call may take, because models
 * can take minutes.
 */
const idleTimeoutMs = 600_000

/**
 * Restricts the destinations of requests: an agent may run inside a private network, and it fetches URLs that strangers suggest.
 * Without a list, requests can reach all public hosts by https, and nothing private: not this machine, its router, or a cloud's
 * metadata. With a list, requests can reach only the hosts on it, which may be private.
 *
 * @param allowed hosts in the form of `limits.hosts`; empty: all public hosts.
 * @param own URLs from the operator's settings, which can always be reached.
 */
export function createReachable(allowed: readonly string[], own: readonly string[]): Reachable {
  const named = new Set([...allowed.map(parseAllowedHost), ...own.map((url) => originOf(new URL(url)))])
  const guard = createAddressGuard({ allowPrivate: false })
  const limits = { headersTimeout: idleTimeoutMs, bodyTimeout: idleTimeoutMs }
  const plain = new Agent({ ...limits, connect: { timeout: connectTimeoutMs } })
  const guarded = new Agent({ ...limits, connect: { timeout: connectTimeoutMs, lookup: guard.lookup } })

  function require(url: URL): void {
    if (named.has(originOf(url))) return
    if (allowed.length > 0) throw new CallError(`${url.origin} is not one of the hosts of --allow-host`)
    try {
      guard.checkLiteral(url)
    } catch (error) {
      throw new CallError(
        `${(error as Error).message}; the owner can allow it with --allow-host ${url.origin}`,
      )
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
