import { type Context, Hono } from 'hono'
import type { Address } from 'viem'
import { findKeyOwner } from '#ledger/registry/apiKeys'
import { createKeyOwners } from '#ledger/registry/keyOwners'
import { clientAddress } from '#process/clientAddress'
import { limitBody } from '#process/limitBody'
import type { RateLimiter } from '#process/rateLimiter'
import type { Traced } from '#process/traceRequests'
import { BaseError } from '#protocol/errors'
import { keyPath } from '../keyPath.ts'
import { countRequest } from '../submitRules.ts'
import { completeRequirements, extraOf } from './accepts.ts'
import { hearerOf } from './hearer.ts'
import type { Listings } from './listing.ts'
import { type InvalidPayment, toInvalidPayment } from './reasons.ts'
import { type FacilitatorRequest, KindNotServed, MalformedRequest, parseRequest } from './request.ts'
import { type FacilitatorCaller, IdentifierTaken, verify } from './reserve.ts'
import { createSettle, DuplicateSettlement, type SettleContext, SettlementPending } from './settle.ts'

export type FacilitatorDependencies = SettleContext & {
  /** The wallets that send the transactions. */
  signers: readonly Address[]
  /** Null: nothing is listed here. */
  listings: Listings | null
}

/** Longest body: the longest signature, and extensions beside it. */
const mostBytes = 65_536
/** How long a revoked key still works. */
const keyTtlMs = 5_000
/** Most requests a minute from one address without a key, or with keys that weren't sent lately. */
const strangersAMinute = 600

/**
 * The facilitator of the x402 standard: `POST /verify`, `POST /settle`, `GET /supported`, in versions 1 and 2, and `POST /accepts`;
 * all of them also behind {@link keyPath}.
 *
 * Every verdict is HTTP 200, as the standard's middlewares want it; other statuses say nothing about a payment.
 */
export function createFacilitator(
  dependencies: FacilitatorDependencies,
  caller: { rateLimiter: RateLimiter; trustedProxies: number },
): Hono<Traced> {
  const { signers, listings } = dependencies
  const networks = [...dependencies.networks.values()].map(({ served }) => served)
  const settle = createSettle(dependencies)
  const admit = createAdmit(dependencies, caller)
  const read = async (c: Context): Promise<FacilitatorRequest> => parseRequest(networks, await readJson(c))

  const app = new Hono<Traced>()
  const limit = limitBody(mostBytes)

  app.post('/verify', limit, async (c) => {
    const answer = (
      error: InvalidPayment | MalformedRequest | IdentifierTaken,
      reason: string,
      payer?: string,
    ) => ({
      ...{ isValid: false, invalidReason: reason, invalidMessage: error.message },
      ...(payer !== undefined && { payer }),
    })
    const caller = await admit(c)
    const request = await read(c).catch(unlessNotServed)
    if (request instanceof KindNotServed) return c.json({ error: request.message }, 500)
    if (request instanceof MalformedRequest) return c.json(answer(request, 'invalid_payload'), 400)
    const { from: payer } = request.authorization
    try {
      await verify(dependencies, request, caller)
      await dependencies.checkpoint('after-verify-recorded')
      tellListing(c, listings?.announce(request, caller.providerId))
      return c.json({ isValid: true, payer })
    } catch (error) {
      if (error instanceof IdentifierTaken) return c.json(answer(error, 'invalid_payload', payer), 409)
      const invalid = toInvalidPayment(error)
      if (invalid === null) throw error
      return c.json(answer(invalid, invalid.reason ?? 'unexpected_verify_error', payer))
    }
  })

  app.post('/settle', limit, async (c) => {
    const hearer = hearerOf(c)
    const caller = await admit(c)
    const request = await read(c).catch(unlessNotServed)
    if (request instanceof KindNotServed) return c.json({ error: request.message }, 500)
    const failure = (reason: string, { message }: Error, transaction = '') => ({
      ...{ success: false, errorReason: reason, errorMessage: message, transaction },
    })
    if (request instanceof MalformedRequest)
      return c.json({ ...failure('invalid_payload', request), network: '' }, 400)
    const { network, authorization, version } = request
    const shared = { network, payer: authorization.from }
    try {
      const { transaction, batchId, logIndex } = await settle(request, caller, hearer)
      const extra = { ...(batchId !== null && { batchId }), logIndex, nonce: authorization.nonce }
      tellListing(c, await listings?.list(request, caller.providerId))
      return c.json({ success: true, transaction, ...shared, extra })
    } catch (error) {
      if (error instanceof IdentifierTaken)
        return c.json({ ...failure('invalid_payload', error), ...shared }, 409)
      if (error instanceof SettlementPending) {
        const reason = version === 2 ? 'settlement_pending' : 'unexpected_settle_error'
        return c.json({ ...failure(reason, error, error.transaction), ...shared })
      }
      const invalid = toInvalidPayment(error)
      if (invalid === null) throw error
      const transaction = invalid instanceof DuplicateSettlement ? invalid.transaction : ''
      return c.json({
        ...failure(invalid.reason ?? 'unexpected_settle_error', invalid, transaction),
        ...shared,
      })
    }
  })

  app.post('/accepts', limit, async (c) => {
    await admit(c)
    try {
      const { status, body } = completeRequirements(networks, await readJson(c))
      return c.json(body, status)
    } catch (error) {
      const refused = unlessNotServed(error)
      return c.json({ error: refused.message }, refused instanceof KindNotServed ? 500 : 400)
    }
  })

  app.get('/supported', (c) =>
    c.json({
      kinds: networks.flatMap((served) => [
        { x402Version: 2, scheme: 'exact', network: served.network.caip2, extra: extraOf(served) },
        { x402Version: 1, scheme: 'exact', network: served.network.name, extra: extraOf(served) },
      ]),
      extensions: ['payment-identifier', ...(listings ? ['bazaar'] : [])],
      signers: { 'eip155:*': signers },
    }),
  )
  return new Hono<Traced>().route('/', app).route(keyPath, app)
}

/** Finds out who calls; throws if it may not. */
function createAdmit(
  { sql, settings, now }: FacilitatorDependencies,
  { rateLimiter, trustedProxies }: { rateLimiter: RateLimiter; trustedProxies: number },
) {
  const owners = createKeyOwners(
    (key) => findKeyOwner(sql, key),
    keyTtlMs,
    () => now().getTime(),
  )

  return async (c: Context<Traced>): Promise<FacilitatorCaller> => {
    const trace = c.get('span')?.stored ?? null
    const key = presentedKey(c)
    // Limits strangers' reads of chain and database.
    const countStranger = () => {
      const key = `facilitator:${clientAddress(c, trustedProxies)}`
      countRequest(rateLimiter, key, strangersAMinute, 'requests', 'without an API key from one address')
    }
    if (key === undefined) {
      if (!settings.isOpen) {
        throw new BaseError(
          'unauthorized',
          'This facilitator takes requests with an API key: Authorization: Bearer',
        )
      }
      countStranger()
      return { providerId: null, trace }
    }
    const providerId = await owners.ownerOf(key, countStranger)
    if (providerId === undefined) throw new BaseError('unauthorized')
    return { providerId, trace }
  }
}

/** The API key of a request: from its path, as Bearer, or in Basic auth as the password, or as the user if there is no password. */
function presentedKey(c: Context): string | undefined {
  const inPath = c.req.param('key')
  if (inPath !== undefined) return inPath
  const header = c.req.header('authorization')
  if (header === undefined) return undefined
  const [, scheme, text] = /^(Bearer|Basic) +(\S+)$/i.exec(header) ?? []
  if (text === undefined || scheme?.toLowerCase() !== 'basic') return text ?? ''
  const pair = Buffer.from(text, 'base64').toString()
  const [user = '', ...password] = pair.split(':')
  return password.join(':') || user
}

async function readJson(c: Context): Promise<unknown> {
  try {
    return await c.req.json<unknown>()
  } catch (error) {
    throw new MalformedRequest('the body is no JSON', { cause: error })
  }
}

/** Adds to the answer what happened to the resource that a payment declares. */
function tellListing(c: Context, answer: string | undefined): void {
  if (answer !== undefined) c.header('EXTENSION-RESPONSES', answer)
}

function unlessNotServed(error: unknown): KindNotServed | MalformedRequest {
  if (error instanceof KindNotServed || error instanceof MalformedRequest) return error
  throw error
}
