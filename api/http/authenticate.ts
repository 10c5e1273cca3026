import type { Context, MiddlewareHandler } from 'hono'
import { type KeyOwner, keyIdOf, readOnlyKey } from '#ledger/registry/apiKeys'
import type { KeyOwners } from '#ledger/registry/keyOwners'
import type { Changer } from '#ledger/registry/registryChanges'
import { clientAddress } from '#process/clientAddress'
import type { RateLimiter } from '#process/rateLimiter'
import type { GatewayEnv } from './app.ts'
import { tooMany } from './limitRate.ts'
import { isOperatorKey } from './operator.ts'
import { Refusal } from './refusal.ts'
import type { GatewaySettings } from './settings.ts'

const bearerPattern = /^Bearer +(\S+) *$/i

export type AuthenticateOptions = {
  keyOwners: KeyOwners<KeyOwner>
  rateLimiter: RateLimiter
  settings: Pick<GatewaySettings, 'rateLimits' | 'trustedProxies' | 'operatorKeyHashes'>
}

/**
 * Sets `caller` to the provider whose API key came as `Authorization: Bearer …`, or `isOperator` where it is the operator's.
 *
 * A wrong key is refused everywhere, also where none is needed: a caller that sends one means it. Each key that isn't
 * known yet costs a query, so an address may try a limited number. A read-only key opens what reads, and nothing else.
 */
export function authenticate({
  keyOwners,
  rateLimiter,
  settings,
}: AuthenticateOptions): MiddlewareHandler<GatewayEnv> {
  const { rateLimits, trustedProxies, operatorKeyHashes } = settings
  const limitQueries = (c: Context) => {
    if (rateLimits === null) return
    const allowed = rateLimiter.count(`key:${clientAddress(c, trustedProxies)}`, rateLimits.other)
    if (!allowed.isAllowed) throw tooMany(allowed)
  }

  return async (c, next) => {
    const header = c.req.header('authorization')
    const key = header === undefined ? undefined : bearerPattern.exec(header)?.[1]
    if (key !== undefined && isOperatorKey(key, operatorKeyHashes)) {
      c.set('isOperator', true)
    } else if (key !== undefined) {
      const owner = await keyOwners.ownerOf(key, () => limitQueries(c))
      if (owner === undefined) throw new Refusal('unauthorized', 'This API key is not in force')
      if (owner.scope === 'read' && !/^(GET|HEAD|OPTIONS)$/.test(c.req.method)) throw readOnlyKey()
      c.set('caller', owner.providerId)
      c.set('callerScope', owner.scope)
      c.set('callerKey', keyIdOf(key))
    }
    await next()
  }
}

/** Lets only the provider of the path's `{id}` through. */
export const requireOwner: MiddlewareHandler<GatewayEnv> = async (c, next) => {
  requireCaller(c.get('caller'), c.req.param('id') ?? '')
  await next()
}

/** Whose change a request of a provider's own is. */
export function changerOf(c: Context<GatewayEnv>): Changer {
  return { providerId: c.get('caller') ?? '', by: c.get('callerKey') ?? null }
}

/** What a route of the provider's own declares. */
export const ownersOnly = { middleware: requireOwner, security: [{ apiKey: [] }] }
export const providerViews = { ...ownersOnly, tags: ['Provider views'] }

/**
 * @throws {Refusal} `unauthorized` without a key, `forbidden` with another provider's, whether or not what was asked
 * for exists: a key tells nothing about others.
 */
function requireCaller(caller: string | undefined, providerId: string): void {
  if (caller === undefined) {
    throw new Refusal('unauthorized', "This needs the provider's API key: Authorization: Bearer tk_…")
  }
  if (caller !== providerId) throw new Refusal('forbidden')
}
