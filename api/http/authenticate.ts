import { type KeyOwner, keyIdOf, readOnlyKey } from '@tollkeeper/ledger/registry/apiKeys'
import type { KeyOwners } from '@tollkeeper/ledger/registry/keyOwners'
import type { Changer } from '@tollkeeper/ledger/registry/registryChanges'
import { clientAddress } from '@tollkeeper/runtime/clientAddress'
import type { RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import type { Context, MiddlewareHandler } from 'hono'
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
 * Sets `caller` to the provider whose API key was sent as `Authorization: Bearer …`, or `isOperator` for an operator's key.
 *
 * A wrong key is refused even if no key is needed, because its sender meant to use it. Each unknown key costs a query, so the number of
 * attempts per address is limited. A read-only key can only read.
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
      if (owner === undefined) throw new Refusal('unauthorized', 'This API key is unknown or revoked')
      if (owner.scope === 'read' && !/^(GET|HEAD|OPTIONS)$/.test(c.req.method)) throw readOnlyKey()
      c.set('caller', owner.providerId)
      c.set('callerScope', owner.scope)
      c.set('callerKey', keyIdOf(key))
    }
    await next()
  }
}

/** Admits only the provider of the path's `{id}`. */
export const requireOwner: MiddlewareHandler<GatewayEnv> = async (c, next) => {
  requireCaller(c.get('caller'), c.req.param('id') ?? '')
  await next()
}

/** Returns the author of a change to a provider's own data. */
export function changerOf(c: Context<GatewayEnv>): Changer {
  return { providerId: c.get('caller') ?? '', by: c.get('callerKey') ?? null }
}

/** Options of `route` for a provider's own routes: only this provider's API key is accepted. */
export const ownersOnly = { middleware: requireOwner, security: [{ apiKey: [] }] }
export const providerViews = { ...ownersOnly, tags: ['Provider views'] }

/**
 * @throws {Refusal} `unauthorized` without a key; `forbidden` with another provider's key, even if the requested thing doesn't exist. So a key
 * reveals nothing about other providers.
 */
function requireCaller(caller: string | undefined, providerId: string): void {
  if (caller === undefined) {
    throw new Refusal('unauthorized', "Send the provider's API key: Authorization: Bearer tk_…")
  }
  if (caller !== providerId) throw new Refusal('forbidden')
}
