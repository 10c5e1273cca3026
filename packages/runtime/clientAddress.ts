import { isIPv4 } from 'node:net'
import { getConnInfo } from '@hono/node-server/conninfo'
import type { Context } from 'hono'
import ipaddr from 'ipaddr.js'

/**
 * Returns the address that limits treat as one client: the peer's address, or behind `trustedProxies` proxies the address that
 * the outermost proxy saw. IPv6 addresses are counted by their /64, because one subscriber has all addresses of a /64.
 */
export function clientAddress(c: Context, trustedProxies: number): string {
  if (trustedProxies > 0) {
    const hops = (c.req.header('x-forwarded-for') ?? '').split(',').map((hop) => hop.trim())
    const hop = hops.at(-trustedProxies)
    if (hop) return subscriberOf(hop.slice(0, 64))
  }
  // An app that is called without a server, as in tests, has no peer.
  const address = c.env && 'incoming' in c.env ? getConnInfo(c).remote.address : undefined
  return address === undefined ? 'unknown' : subscriberOf(address)
}

/** Returns an IPv4 address unchanged, and an IPv6 address as its /64. */
export function subscriberOf(address: string): string {
  if (isIPv4(address)) return address
  if (!ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address) // converts an IPv4-mapped IPv6 address to its IPv4 address
  if (!(parsed instanceof ipaddr.IPv6)) return parsed.toString()
  const network = parsed.parts.slice(0, 4).map((part) => part.toString(16))
  return `${network.join(':')}::/64`
}
