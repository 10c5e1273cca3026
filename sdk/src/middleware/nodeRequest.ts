import type { IncomingMessage } from 'node:http'
import { parseUrl } from '../protocol/fields.ts'
import type { ReadBody } from './answers.ts'
import { refuse } from './decision.ts'
import { readHeaders } from './gate.ts'

/** Node's request, as Express and Fastify use it. */
export type NodeRequest = Pick<IncomingMessage, 'socket' | 'headers' | 'url'> & {
  originalUrl?: string
  protocol?: string
}

/** Returns whether a request presents a payment of any kind. */
export function isPaid({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  return ['authorization', 'payment-signature', 'x-payment'].some((name) => headers[name] !== undefined)
}

/** Returns the parts of a request that the gate reads. `readBody` is undefined if responses aren't kept. */
export function readNodeRequest(
  { method = 'GET', headers }: IncomingMessage,
  { url, readBody }: { url: string; readBody: ReadBody | null | undefined },
) {
  return {
    method,
    url,
    ...(readBody !== undefined && { readBody }),
    ...readHeaders((name) => single(headers[name])),
  }
}

/** Joins the values of a repeated header with commas, as Node does. This makes a repeated payment header invalid. */
function single(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(', ') : value
}

const hostPattern = /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?$/i
/** Parts of a path that the URL parser would change: dot segments and backslashes. */
const ambiguousPath = /\\|(?:^|\/)(?:\.|%2e){1,2}(?:\/|$)/i

/**
 * Returns the URL that the buyer requested, as far as the server knows. Behind a proxy, the origin may differ.
 *
 * Express routes by the unchanged path, and the gateway finds the endpoint by this URL. So this URL must have the same path for any `Host` header.
 * Otherwise, the caller could be charged for another endpoint than the one that serves the request.
 *
 * @param target the path and query that the server routed. Default: the request's path and query.
 * @returns undefined if a URL can't contain the path unchanged.
 */
export function urlOf(
  request: NodeRequest,
  target = request.originalUrl ?? request.url ?? '/',
): string | undefined {
  const isEncrypted = 'encrypted' in request.socket && request.socket.encrypted === true
  const protocol = request.protocol ?? (isEncrypted ? 'https' : 'http')
  const { host = '' } = request.headers
  const [path = ''] = target.split('?', 1)
  if (!path.startsWith('/') || ambiguousPath.test(path)) return undefined
  const origin = `${protocol}://${hostPattern.test(host) ? host : 'localhost'}`
  const url = parseUrl(origin) ?? new URL(`${protocol}://localhost`)
  url.pathname = path
  url.search = target.slice(path.length)
  return url.href
}

/** The response to a request whose path a URL can't contain unchanged. */
export const unclearTarget = refuse(
  'invalid_request',
  'The request target must be a path without dot segments and backslashes',
).answer
