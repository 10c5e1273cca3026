import { toCodedError } from '@tollkeeper/runtime/problem'
import type { MiddlewareHandler } from 'hono'
import type { GatewayEnv } from '../http/app.ts'
import type { ApiMetrics } from '../http/metrics.ts'
import type { Offers } from '../registry/offers.ts'
import type { UsageCounters } from './usageCounters.ts'

export type CountCallsOptions = { offers: Offers; usage: UsageCounters; metrics: ApiMetrics }

/**
 * Counts the results of challenges and verifications for the endpoint that the route reports as `called`.
 *
 * Refused verifications count only if the endpoint's own provider sent them. Otherwise a stranger could lower the endpoint's success rate
 * with made-up requests.
 */
export function countCalls({ offers, usage, metrics }: CountCallsOptions): MiddlewareHandler<GatewayEnv> {
  return async (c, next) => {
    await next()
    const isVerification = c.req.path === '/verify'
    const code = c.error && toCodedError(c.error).code
    metrics[isVerification ? 'verifications' : 'challenges'].inc({ result: code ?? 'ok' })
    const called = c.get('called')
    if (called === undefined) return
    // A refused request may name any endpoint id. Only existing endpoints are counted; otherwise made-up ids could fill the memory.
    const offer = await Promise.resolve(offers.ofEndpoint(called.endpointId)).catch(() => undefined)
    if (offer?.providerId !== called.providerId) return
    if (code !== undefined && !(isVerification && c.get('caller') === offer.providerId)) return
    usage.count(called, code ?? (isVerification ? 'paid' : 'challenged'))
  }
}
