import { z } from '@hono/zod-openapi'
import { askUrl } from '@tollkeeper/ledger/hooks/askHook'
import {
  type AcceptHook,
  deleteHook,
  findHook,
  rotateHookSecret,
  setHook,
} from '@tollkeeper/ledger/hooks/hooks'
import { changeRegistry, type RecordChange } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database, Transaction } from '@tollkeeper/ledger/store/database'
import { type AddressGuard, AddressRefusedError } from '@tollkeeper/runtime/addressGuard'
import type { RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import type { Context } from 'hono'
import type { App, GatewayEnv } from '../http/app.ts'
import { changerOf, ownersOnly } from '../http/authenticate.ts'
import { tooMany } from '../http/limitRate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import type { GatewaySettings } from '../http/settings.ts'
import * as wire from '../http/wire.ts'
import { newWebhookSecret } from '../notifications/registry.ts'

const owner = { ...ownersOnly, tags: ['Providers'] }

const onFailure = z.enum(['refuse', 'accept']).openapi({
  description:
    'How payments are treated if the hook gives no decision. `refuse`: the buyer gets 503 and isn’t charged',
})
/** Headers that contain a payment, or that frame the request. */
const unreadable = new Set([
  'payment-signature',
  'x-payment',
  'cookie',
  'host',
  'content-length',
  'transfer-encoding',
  'connection',
])
const headerName = z
  .string()
  .regex(/^[\w-]{1,64}$/)
  .transform((name) => name.toLowerCase())
  .refine((name) => !unreadable.has(name), { message: 'this header is never passed on' })

const newHook = z
  .strictObject({
    url: wire.resourceUrl.openapi({
      type: 'string',
      example: 'https://weather.example/before-accept',
      description: 'Public https URL. Redirects are not followed',
    }),
    headers: z
      .array(headerName)
      .max(16)
      .optional()
      .openapi({
        type: 'array',
        items: { type: 'string' },
        example: ['x-api-key'],
        description:
          'Request headers that are passed to the hook, for endpoints that the gateway’s proxy sells. Default: unchanged, initially none',
      }),
    onFailure: onFailure.optional(),
  })
  .openapi('NewAcceptHook')

export const hook = z
  .object({
    url: z.string(),
    headers: z.array(z.string()),
    onFailure,
    secretSince: wire.isoTime,
    previousSecretExpiresAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Time until which requests are also signed with the previous secret' }),
  })
  .openapi('AcceptHook')

export const hookWithSecret = hook
  .extend({
    secret: z.string().optional().openapi({
      description: 'Shown only when it is new, and only once. Works with any Standard Webhooks library',
      example: 'whsec_…',
    }),
  })
  .openapi('AcceptHookWithSecret')

export const hookTest = z
  .object({
    decision: z
      .enum(['accept', 'refuse', 'free', 'price'])
      .nullable()
      .openapi({ description: 'null: the answer contains no decision' }),
    durationMs: z.int(),
    error: z.string().optional().openapi({ description: 'Why there is no decision', example: 'timeout' }),
  })
  .openapi('AcceptHookTest')

const putHook = route('put', '/providers/{id}/hook', {
  ...owner,
  summary: 'Register a hook: a URL that decides whether payments are accepted',
  description:
    'The gateway sends every payment of this provider to it for a decision, whether the payment comes through /verify, the proxy or a tab: docs/before-accept.md.',
  body: newHook,
  refuses: [404],
  responses: { 200: jsonAnswer('The hook, with its secret if it is the first one', hookWithSecret) },
})

const getHook = route('get', '/providers/{id}/hook', {
  ...owner,
  summary: 'Read the hook, without its secret',
  refuses: [404],
  responses: { 200: jsonAnswer('The hook', hook) },
})

const removeHook = route('delete', '/providers/{id}/hook', {
  ...owner,
  summary: 'Remove the hook: payments are then accepted without a decision',
  refuses: [404],
  responses: { 204: { description: 'Removed' } },
})

const rotate = route('post', '/providers/{id}/hook/secret', {
  ...owner,
  summary: 'Create a new secret; the previous one also signs for 24 hours',
  refuses: [404],
  responses: { 201: jsonAnswer('The hook, and its secret', hookWithSecret) },
})

const postTest = route('post', '/providers/{id}/hook/test', {
  ...owner,
  summary: 'Test the hook with a made-up payment, and return its decision',
  description: 'The test payment has the payer 0x0000000000000000000000000000000000000000.',
  refuses: [404, 429],
  responses: { 200: jsonAnswer('The hook’s decision', hookTest) },
})

/** Maximum number of hook tests per minute: a test keeps a request open for up to two seconds, and calls a URL that the provider chose. */
const testsPerMinute = 10

export type HookRouteOptions = {
  sql: Database
  /** Checks the addresses of hooks. */
  addressGuard: AddressGuard
  rateLimiter: RateLimiter
  settings: Pick<GatewaySettings, 'rateLimits'>
  now: () => number
}

/** Adds routes for a provider's hook, the URL that decides about its payments. */
export function addHookRoutes(app: App, options: HookRouteOptions): void {
  const { sql, addressGuard: guard, rateLimiter, settings, now } = options

  /** @throws {Refusal} `unknown_provider`, `unknown_hook` */
  async function change(
    c: Context<GatewayEnv>,
    apply: (
      tx: Transaction,
      before: AcceptHook | undefined,
      record: RecordChange,
    ) => Promise<AcceptHook | undefined>,
  ): Promise<AcceptHook> {
    const { providerId } = changerOf(c)
    const changed = await changeRegistry(sql, changerOf(c), async (tx, record) => {
      const before = await findHook(tx, providerId)
      const after = await apply(tx, before, record)
      if (after === undefined) throw new Refusal('unknown_hook')
      return after
    })
    if (changed === undefined) throw new Refusal('unknown_provider')
    return changed
  }

  app.openapi(putHook, async (c) => {
    const { id } = c.req.valid('param')
    const { url, headers, onFailure } = c.req.valid('json')
    await requireAllowed(guard, url)
    let isNew = false as boolean
    const changed = await change(c, async (tx, before, record) => {
      isNew = before === undefined
      const secret = newWebhookSecret()
      const wanted = { url: url.href, headers: headers && [...new Set(headers)], onFailure }
      const after = await setHook(tx, id, { ...wanted, secret, now: new Date(now()) })
      await record(id, toRecorded(before), toRecorded(after))
      return after
    })
    return c.json({ ...toAnswer(changed), ...(isNew && { secret: changed.secret }) }, 200)
  })

  app.openapi(getHook, async (c) => {
    const found = await findHook(sql, c.req.valid('param').id)
    if (found === undefined) throw new Refusal('unknown_hook')
    return c.json(toAnswer(found), 200)
  })

  app.openapi(removeHook, async (c) => {
    const { id } = c.req.valid('param')
    await change(c, async (tx, before, record) => {
      await deleteHook(tx, id)
      if (before) await record(id, toRecorded(before), toRecorded(undefined))
      return before
    })
    return c.body(null, 204)
  })

  app.openapi(rotate, async (c) => {
    const { id } = c.req.valid('param')
    const changed = await change(c, async (tx, before, record) => {
      const after = await rotateHookSecret(tx, id, { secret: newWebhookSecret(), now: new Date(now()) })
      if (before && after) await record(id, toRecorded(before), toRecorded(after))
      return after
    })
    return c.json({ ...toAnswer(changed), secret: changed.secret }, 201)
  })

  app.openapi(postTest, async (c) => {
    const { id } = c.req.valid('param')
    if (settings.rateLimits !== null) {
      const allowed = rateLimiter.count(`hookTest:${id}`, testsPerMinute)
      if (!allowed.isAllowed) throw tooMany(allowed)
    }
    const found = await findHook(sql, id)
    if (found === undefined) throw new Refusal('unknown_hook')
    const began = performance.now()
    const durationMs = () => Math.round(performance.now() - began)
    try {
      const { answer } = await askUrl(found, madeUp(id), { guard, now: now() })
      return c.json({ decision: answer.kind, durationMs: durationMs() }, 200)
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      return c.json({ decision: null, durationMs: durationMs(), error: why }, 200)
    }
  })
}

/** Returns a request for the hook about a payment that doesn't exist. */
function madeUp(providerId: string) {
  return {
    providerId,
    moment: 'payment' as const,
    source: 'verify' as const,
    payer: '0x0000000000000000000000000000000000000000' as const,
    endpointId: null,
    amount: 10_000n,
    network: 'base-sepolia' as const,
    resource: 'https://test.example/',
    request: null,
    payment: null,
  }
}

async function requireAllowed(guard: AddressGuard, url: URL): Promise<void> {
  try {
    await guard.check(url)
  } catch (error) {
    if (!(error instanceof AddressRefusedError)) throw error
    throw new Refusal('hook_url_refused', error.message, { cause: error, details: { field: 'url' } })
  }
}

function toAnswer({ url, headers, onFailure, secretSince, previousSecretExpiresAt }: AcceptHook) {
  return { url, headers, onFailure, secretSince, previousSecretExpiresAt }
}

/** Returns the hook as the provider's history records it, without the secret. */
function toRecorded(found: AcceptHook | undefined) {
  return {
    hook: found?.url ?? null,
    hookHeaders: found?.headers ?? null,
    hookOnFailure: found?.onFailure ?? null,
    hookSecretSince: found?.secretSince ?? null,
  }
}
