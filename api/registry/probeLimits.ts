import { type AddressGuard, AddressRefusedError } from '@tollkeeper/runtime/addressGuard'
import { subscriberOf } from '@tollkeeper/runtime/clientAddress'
import type { RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { tooMany } from '../http/limitRate.ts'
import { Refusal } from '../http/refusal.ts'
import type { GatewaySettings } from '../http/settings.ts'

/*
 * Callers make the gateway send requests to hosts of their choice, so they could use it to attack a third party's host. There are limits
 * per caller, per requested host, and per IP address connected to, because anyone can give a server any number of names.
 */

/** Maximum number of probes per minute for one caller: a client address, or a provider. */
export const probesPerCaller = 10
/** Maximum number of probes per minute of one host. */
const probesPerHost = 20
/** Maximum number of connections per minute to one address, for IPv6 to its /64. A probe makes at most four. */
const connectionsPerAddress = 120
/** Maximum number of concurrent probes in this process. */
const maxAtOnce = 16

export type ProbeLimitsOptions = {
  guard: AddressGuard
  rateLimiter: RateLimiter
  settings: Pick<GatewaySettings, 'rateLimits'>
}

export type ProbeLimits = {
  /**
   * Runs a probe of a host for a caller.
   *
   * @param probe receives the guard that counts its connections.
   * @throws {Refusal} `rate_limited`, `overloaded`
   */
  run<Result>(
    asked: { caller: string; host: string },
    probe: (guard: AddressGuard) => Promise<Result>,
  ): Promise<Result>
}

/** Creates the limits that all probes requested by callers share. */
export function createProbeLimits({ guard, rateLimiter, settings }: ProbeLimitsOptions): ProbeLimits {
  let underWay = 0

  function count(key: string, limit: number): void {
    if (settings.rateLimits === null) return
    const allowed = rateLimiter.count(key, limit)
    if (!allowed.isAllowed) throw tooMany(allowed)
  }

  /**
   * Creates a guard that reports the first connection over the limit through `onRefused`, because a guard itself can only fail the request.
   */
  function countConnections(onRefused: (refusal: unknown) => void): AddressGuard {
    return {
      ...guard,
      lookup(hostname, options, callback) {
        guard.lookup(hostname, options, (error, address, family) => {
          const first = Array.isArray(address) ? address[0]?.address : address
          try {
            if (error === null && first) count(`probeAddress:${subscriberOf(first)}`, connectionsPerAddress)
          } catch (refusal) {
            onRefused(refusal)
            callback(new AddressRefusedError('it was requested too often'), '')
            return
          }
          callback(error, address, family)
        })
      },
    }
  }

  return {
    async run({ caller, host }, probe) {
      count(`probe:${caller}`, probesPerCaller)
      count(`probeHost:${host}`, probesPerHost)
      if (underWay >= maxAtOnce)
        throw new Refusal('overloaded', 'Too many URLs are being probed: try again in a few seconds')
      underWay++
      let refusal: unknown
      try {
        const result = await probe(countConnections((refused) => (refusal = refused)))
        if (refusal !== undefined) throw refusal
        return result
      } finally {
        underWay--
      }
    },
  }
}
