import { randomBytes, timingSafeEqual } from 'node:crypto'
import { hashSecret } from '@tollkeeper/ledger/registry/apiKeys'
import type { MiddlewareHandler } from 'hono'
import type { GatewayEnv } from './app.ts'
import { Refusal } from './refusal.ts'

/**
 * Creates an operator's key: `tko_` and 256 random bits. It allows its holder to read the operator's views, suspend providers and requeue payments,
 * but not to read a provider's own data.
 */
export function newOperatorKey(): { key: string; hash: string } {
  const key = `tko_${randomBytes(32).toString('base64url')}`
  return { key, hash: hashSecret(key).toString('hex') }
}

/** Returns whether a presented key is one of the operator's; the environment contains only hashes of them. */
export function isOperatorKey(presented: string, hashes: readonly Buffer[]): boolean {
  if (!presented.startsWith('tko_')) return false
  const hash = hashSecret(presented)
  return hashes.some((known) => timingSafeEqual(known, hash))
}

export const requireOperator: MiddlewareHandler<GatewayEnv> = async (c, next) => {
  if (!c.get('isOperator')) {
    throw new Refusal('unauthorized', "Send an operator's key: Authorization: Bearer tko_…")
  }
  await next()
}

/** Options of `route` for the operator's routes: only an operator's key is accepted. */
export const operatorsOnly = {
  middleware: requireOperator,
  security: [{ operatorKey: [] }],
  tags: ['Operations'],
}
