import { findKeyOwner } from '@tollkeeper/ledger/registry/apiKeys'
import { createKeyOwners } from '@tollkeeper/ledger/registry/keyOwners'
import { clientAddress } from '@tollkeeper/runtime/clientAddress'
import { limitBody } from '@tollkeeper/runtime/limitBody'
import type { Traced } from '@tollkeeper/runtime/traceRequests'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { type Context, Hono } from 'hono'
import type { Address } from 'viem'
import type { HttpContext } from '../context.ts'
import { keyPath } from '../keyPath.ts'
import { watchConnection } from '../settleNow/connection.ts'
import { countRequest } from '../submitRules.ts'
import { completeRequirements, extraOf } from './accepts.ts'
import { malformed, toRefused } from './reasons.ts'
import { type FacilitatorRequest, parseRequest } from './request.ts'
import { type FacilitatorCaller, verify } from './reserve.ts'
import { createSettle } from './settle.ts'

/** Maximum length of a request body in bytes. A body with the longest signature and extensions fits. */
const mostBytes = 65_536
/** Maximum time in ms for which a revoked key still works. */
const keyTtlMs = 5_000
/** Maximum requests per minute from one address without an API key, or with keys that this process hasn't cached. */
const strangersAMinute = 600

/**
 * Creates the x402 facilitator: `POST /verify`, `POST /settle` and `GET /supported` in versions 1 and 2, and `POST /accepts`. All of them
 * are also served below {@link keyPath}.
 *
 * Every verdict has HTTP status 200, as the standard's middlewares expect. An answer with another status isn't a verdict on the payment.
 */
export function createFacilitator(context: HttpContext): Hono<Traced> {
  const { signers, listings, served: networks } = context
  const settle = createSettle(context)
  const admit = createAdmit(context)
  const read = async (c: Context): Promise<FacilitatorRequest> => parseRequest(networks, await readJson(c))

  const app = new Hono<Traced>()
  const limit = limitBody(mostBytes)

  app.post('/verify', limit, async (c) => {
    const caller = await admit(c)
    let payer: Address | undefined
    try {
      const request = await read(c)
      payer = request.authorization.from
      await verify(context, request, caller)
      await context.checkpoint('after-verify-recorded')
      tellListing(c, listings?.announce(request, caller.providerId))
      return c.json({ isValid: true, payer })
    } catch (error) {
      const { status, reason, message } = toRefused(error)
      const verdict = { invalidReason: reason ?? 'unexpected_verify_error', invalidMessage: message }
      return c.json({ isValid: false, ...verdict, ...(payer && { payer }) }, status)
    }
  })

  app.post('/settle', limit, async (c) => {
    const connection = watchConnection(c)
    const caller = await admit(c)
    let shared: { network: string; payer?: Address } = { network: '' }
    try {
      const request = await read(c)
      const { from: payer, nonce } = request.authorization
      shared = { network: request.network, payer }
      const { transaction, batchId, logIndex } = await settle(request, caller, connection)
      const extra = { ...(batchId !== null && { batchId }), logIndex, nonce }
      tellListing(c, await listings?.list(request, caller.providerId))
      return c.json({ success: true, transaction, ...shared, extra })
    } catch (error) {
      const { status, reason, message, transaction } = toRefused(error)
      const failure = { errorReason: reason ?? 'unexpected_settle_error', errorMessage: message, transaction }
      return c.json({ success: false, ...failure, ...shared }, status)
    }
  })

  app.post('/accepts', limit, async (c) => {
    await admit(c)
    try {
      const { status, body } = completeRequirements(networks, await readJson(c))
      return c.json(body, status)
    } catch (error) {
      const { status, message } = toRefused(error)
      return c.json({ error: message }, status)
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

/** Returns a function that identifies a caller, and throws if the caller isn't admitted. */
function createAdmit({ sql, settings, now, rateLimiter, trustedProxies }: HttpContext) {
  const owners = createKeyOwners(
    (key) => findKeyOwner(sql, key),
    keyTtlMs,
    () => now().getTime(),
  )

  return async (c: Context<Traced>): Promise<FacilitatorCaller> => {
    const trace = c.get('span')?.stored ?? null
    const key = presentedKey(c)
    // Limits how often unknown callers can cause reads of the chain and the database.
    const countStranger = () => {
      const key = `facilitator:${clientAddress(c, trustedProxies)}`
      countRequest(rateLimiter, key, strangersAMinute, 'requests', 'without an API key from one address')
    }
    if (key === undefined) {
      if (!settings.isOpen) {
        throw new BaseError(
          'unauthorized',
          'This facilitator requires an API key: send it as Authorization: Bearer',
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

/**
 * Returns a request's API key from its path, a Bearer header, or Basic auth. With Basic auth, the key is the password, or the user if there is no
 * password.
 */
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
    throw malformed('the body is not JSON', error)
  }
}

/** Adds a header to the response that says whether the payment's resource is listed. */
function tellListing(c: Context, answer: string | undefined): void {
  if (answer !== undefined) c.header('EXTENSION-RESPONSES', answer)
}
