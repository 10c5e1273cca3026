import { lookup, Resolver } from 'node:dns/promises'
import type { LookupFunction } from 'node:net'
import ipaddr from 'ipaddr.js'

export type ResolvedAddress = { address: string; family: number }

/** Resolves a host name to all its addresses. */
export type Resolve = (hostname: string) => Promise<ResolvedAddress[]>

/** Restricts requests to the public internet, for URLs that strangers chose. */
export type AddressGuard = {
  /**
   * Checks a URL when it is registered, so that the provider learns of an error immediately.
   *
   * @throws {AddressRefusedError}
   */
  check(url: URL): Promise<void>
  /**
   * Checks again when a connection is made, and connects only to the addresses that were checked: a name that resolved to a
   * public address at registration may later resolve to a private one (DNS rebinding).
   *
   * Use it as a request's `lookup`. Node doesn't call `lookup` for a literal address, so check that with {@link
   * AddressGuard.checkLiteral}.
   */
  lookup: LookupFunction
  /** @throws {AddressRefusedError} */
  checkLiteral(url: URL): void
}

export class AddressRefusedError extends Error {
  override readonly name = 'AddressRefusedError'
}

// A public address that responds inside every Azure machine.
const azureWireServer = '168.63.129.16'

// All assigned global unicast addresses, by RFC 4291 section 2.4.
const globalUnicast = ipaddr.IPv6.parseCIDR('2000::/3')

/** Whether anyone on the internet can reach an IP address. */
export function isPublicAddress(address: string): boolean {
  // A zone (fe80::1%eth0) names an interface of this machine.
  if (address.includes('%') || !ipaddr.isValid(address)) return false
  const parsed = ipaddr.process(address) // converts an IPv4-mapped IPv6 address to its IPv4 address
  if (parsed instanceof ipaddr.IPv6) return parsed.range() === 'unicast' && parsed.match(globalUnicast)
  return parsed.range() === 'unicast' && parsed.toString() !== azureWireServer
}

export type AddressGuardOptions = {
  /** Permits all addresses, and `http:`, for local development. */
  allowPrivate: boolean
  /** Default: the system's name servers. */
  resolve?: Resolve
  /** Timeout in ms for a response of a name server. */
  resolveTimeoutMs?: number
}

export function createAddressGuard({
  allowPrivate,
  resolveTimeoutMs = 3_000,
  resolve = allowPrivate ? resolveByHost : (hostname) => resolvePublicly(hostname, resolveTimeoutMs),
}: AddressGuardOptions): AddressGuard {
  function requirePublic(hostname: string, addresses: string[]): void {
    if (allowPrivate) return
    // Reject a name if any of its addresses is private: no honest name has both public and private addresses. The message doesn't
    // contain the address, because strangers could otherwise learn private addresses from it.
    if (!addresses.every(isPublicAddress)) {
      throw new AddressRefusedError(`${hostname} is not a public address, or resolves to one that is not`)
    }
  }

  async function resolvePublic(hostname: string): Promise<ResolvedAddress[]> {
    const addresses = await resolve(hostname)
    if (addresses.length === 0) throw new AddressRefusedError(`${hostname} has no address`)
    requirePublic(
      hostname,
      addresses.map(({ address }) => address),
    )
    return addresses
  }

  function checkLiteral(url: URL): void {
    if (url.protocol !== 'https:' && !(allowPrivate && url.protocol === 'http:')) {
      throw new AddressRefusedError(`expected an https: URL, got ${url.protocol}`)
    }
    if (url.username !== '' || url.password !== '') {
      throw new AddressRefusedError('a URL must not contain a user name or password')
    }
    const hostname = hostnameOf(url)
    if (ipaddr.isValid(hostname)) requirePublic(hostname, [hostname])
  }

  return {
    checkLiteral,
    async check(url) {
      checkLiteral(url)
      const hostname = hostnameOf(url)
      if (ipaddr.isValid(hostname)) return
      await resolvePublic(hostname).catch((error: unknown) => {
        if (error instanceof AddressRefusedError) throw error
        throw new AddressRefusedError(`${hostname} could not be resolved`, { cause: error })
      })
    },
    lookup(hostname, options, callback) {
      resolvePublic(hostname).then(
        (addresses) => {
          if (options.all) return callback(null, addresses)
          const wanted = options.family === 'IPv4' ? 4 : options.family === 'IPv6' ? 6 : options.family
          const fitting = addresses.find(({ family }) => !wanted || family === wanted)
          if (fitting === undefined) {
            return callback(new AddressRefusedError(`${hostname} has no IPv${wanted} address`), '')
          }
          callback(null, fitting.address, fitting.family)
        },
        (error: Error) => callback(error, ''),
      )
    },
  }
}

// Returns the host name. The URL parser has already normalized it: 0x7f.1, 2130706433 and 127.1 all become 127.0.0.1.
function hostnameOf(url: URL): string {
  return url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname
}

/** Resolves names like all programs on this machine, including /etc/hosts, for local development. */
function resolveByHost(hostname: string): Promise<ResolvedAddress[]> {
  return lookup(hostname, { all: true, verbatim: true })
}

/**
 * Asks the name servers directly, with a time limit.
 *
 * The system's look-up has no time limit, and each look-up occupies one of four threads until it ends. So a few names on name
 * servers that never respond would block all look-ups of the process.
 */
export async function resolvePublicly(
  hostname: string,
  timeoutMs: number,
  nameServers?: string[],
): Promise<ResolvedAddress[]> {
  const resolver = new Resolver({ timeout: timeoutMs, tries: 1 })
  if (nameServers) resolver.setServers(nameServers)
  // The resolver's own limit isn't enough: it applies to each request to each name server, and the resolver asks several servers
  // in turn.
  const limit = setTimeout(() => resolver.cancel(), timeoutMs)
  try {
    const [four, six] = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)])
    if (four.status === 'rejected' && six.status === 'rejected') throw four.reason
    return [...addressesOf(four, 4), ...addressesOf(six, 6)]
  } finally {
    clearTimeout(limit)
  }
}

function addressesOf(found: PromiseSettledResult<string[]>, family: number): ResolvedAddress[] {
  return found.status === 'fulfilled' ? found.value.map((address) => ({ address, family })) : []
}
