import { getConnInfo } from '@hono/node-server/conninfo'
import type { Context } from 'hono'

/** The peer's address; behind `trustedProxies` proxies, the one that the outermost of them saw. */
export function clientAddress(c: Context, trustedProxies: number): string {
  if (trustedProxies > 0) {
    const hops = (c.req.header('x-forwarded-for') ?? '').split(',').map((hop) => hop.trim())
    const hop = hops.at(-trustedProxies)
    if (hop) return hop.slice(0, 64)
  }
  // Called without a server, as tests do, there is no peer.
  return c.env && 'incoming' in c.env ? (getConnInfo(c).remote.address ?? 'unknown') : 'unknown'
}
