import { clientAddress } from '@tollkeeper/runtime/clientAddress'
import type { Allowed, RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import type { Context, MiddlewareHandler } from 'hono'
import type { GatewayEnv } from './app.ts'
import { Refusal } from './refusal.ts'
import type { GatewaySettings } from './settings.ts'

/**
 * Limits per minute that can't be configured. `register`: an address that registers more often is a script. `keyFactor`: a provider's processes share
 * a key, so a key's limit is this many times an address's limit. `payer`: a wallet that pays twenty times a second for a minute should use a tab.
 */
export const fixedRateLimits = { register: 60, keyFactor: 10, payer: 1_200 }

type Kind = 'challenge' | 'verify' | 'register' | 'other'

/** Headers that carry payments; each payment is in one of them. */
const paymentHeaders = ['authorization', 'payment-signature', 'x-payment']

/** Paths without a limit: probes and verifiers request them automatically, and must not be refused. */
const unlimited = new Set(['/healthz', '/readyz', '/metrics', '/.well-known/jwks.json'])

export type LimitRateOptions = {
  rateLimiter: RateLimiter
  settings: Pick<GatewaySettings, 'rateLimits' | 'trustedProxies'>
}

/**
 * Counts all requests by client address, and requests with an API key also by the key. Answers 429 if either limit is exceeded. Anyone can get keys,
 * so a key never lifts the limit of an address.
 */
export function limitRate({ rateLimiter, settings }: LimitRateOptions): MiddlewareHandler<GatewayEnv> {
  const { rateLimits, trustedProxies } = settings
  return async (c, next) => {
    if (rateLimits === null || unlimited.has(c.req.path)) return next()
    const kind = kindOf(c)
    const caller = c.get('caller')
    const limit = rateLimits[kind]
    let allowed = rateLimiter.count(`${kind}:${clientAddress(c, trustedProxies)}`, limit)
    if (caller !== undefined && allowed.isAllowed) {
      const ofKey = rateLimiter.count(`${kind}:${caller}`, limit * rateLimits.keyFactor)
      if (ofKey.remaining < allowed.remaining || !ofKey.isAllowed) allowed = ofKey
    }
    setHeaders(c, allowed)
    if (!allowed.isAllowed) throw tooMany(allowed)
    await next()
  }
}

export function tooMany({ limit, resetSeconds }: Allowed): Refusal {
  return new Refusal('rate_limited', `At most ${limit} requests per minute`, {
    details: { retryAfter: resetSeconds },
  })
}

function setHeaders(c: Context, { limit, remaining, resetSeconds }: Allowed): void {
  c.header('RateLimit-Limit', String(limit))
  c.header('RateLimit-Remaining', String(remaining))
  c.header('RateLimit-Reset', String(resetSeconds))
}

function kindOf({ req }: Context): Kind {
  const { path, method } = req
  // A request to an upstream is either a challenge or a verification.
  if (path.startsWith('/p/'))
    return paymentHeaders.some((name) => req.header(name) !== undefined) ? 'verify' : 'challenge'
  if (path === '/challenge') return 'challenge'
  // A request under a pass that counts its requests uses up the same limit as a verification.
  if (path === '/verify' || /^\/providers\/[^/]+\/passes\/[^/]+\/uses/.test(path)) return 'verify'
  if (path === '/providers' && method === 'POST') return 'register'
  return 'other'
}
