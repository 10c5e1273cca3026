import { z } from '@hono/zod-openapi'
import { changeRegistry, type RecordChange } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database, Transaction } from '@tollkeeper/ledger/store/database'
import { type AddressGuard, AddressRefusedError } from '@tollkeeper/runtime/addressGuard'
import type { Context } from 'hono'
import type { App, GatewayEnv } from '../http/app.ts'
import { changerOf, ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import {
  deleteUpstream,
  findUpstream,
  rotateUpstreamSecret,
  setUpstream,
  type Upstream,
} from './upstreams.ts'

const owner = { ...ownersOnly, tags: ['Providers'] }

const newUpstream = z
  .strictObject({
    url: wire.resourceUrl.openapi({
      type: 'string',
      example: 'https://origin.weather.example/v2',
      description: 'Public https URL; its path is prepended to that of a request. Redirects are not followed',
    }),
    acceptX402V1: z.boolean().optional().openapi({
      description:
        'Whether a 402 has a body that x402 v1 clients can pay. Default: unchanged, initially false',
    }),
    forwardAuthorization: z
      .boolean()
      .optional()
      .openapi({
        description:
          'Whether callers log in to the server: `Authorization: Basic` is passed on (`Bearer` always is), `WWW-Authenticate` is returned, ' +
          'and an answer of 401 or 403 voids the payment. Default: unchanged, initially false',
      }),
  })
  .openapi('NewUpstream')

export const upstream = z
  .object({
    url: z.string(),
    acceptX402V1: z.boolean(),
    forwardAuthorization: z.boolean().openapi({ description: 'Whether callers log in to the server' }),
    secretSince: wire.isoTime,
    previousSecretExpiresAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Time until which requests also carry the previous secret' }),
  })
  .openapi('Upstream')

export const upstreamWithSecret = upstream
  .extend({
    secret: z.string().optional().openapi({
      description: 'Shown only when it is new, and only once. Requests carry it in `Service-Upstream-Secret`',
      example: 'upsec_…',
    }),
  })
  .openapi('UpstreamWithSecret')

const putUpstream = route('put', '/providers/{id}/upstream', {
  ...owner,
  summary: 'Register an upstream: the server that paid requests are passed on to',
  description: 'Buyers call `/p/{providerId}/…` on this gateway, which replaces a middleware.',
  body: newUpstream,
  refuses: [404],
  responses: { 200: jsonAnswer('The upstream, with its secret if it is the first one', upstreamWithSecret) },
})

const getUpstream = route('get', '/providers/{id}/upstream', {
  ...owner,
  summary: 'Read the upstream, without its secret',
  refuses: [404],
  responses: { 200: jsonAnswer('The upstream', upstream) },
})

const removeUpstream = route('delete', '/providers/{id}/upstream', {
  ...owner,
  summary: 'Remove the upstream: no more requests are passed on',
  refuses: [404],
  responses: { 204: { description: 'Removed' } },
})

const rotate = route('post', '/providers/{id}/upstream/secret', {
  ...owner,
  summary: 'Create a new secret; requests also carry the previous one for a day',
  refuses: [404],
  responses: { 201: jsonAnswer('The upstream, and its secret', upstreamWithSecret) },
})

/** Options for the routes that register a provider's own server as an upstream of the gateway's proxy. */
export type UpstreamRouteOptions = {
  sql: Database
  /** Checks the addresses of providers' upstreams. */
  upstreamGuard: AddressGuard
  now: () => number
}

export function addUpstreamRoutes(app: App, { sql, upstreamGuard: guard, now }: UpstreamRouteOptions): void {
  /** @throws {Refusal} `unknown_provider`, `unknown_upstream` */
  async function change(
    c: Context<GatewayEnv>,
    apply: (
      tx: Transaction,
      before: Upstream | undefined,
      record: RecordChange,
    ) => Promise<Upstream | undefined>,
  ): Promise<Upstream> {
    const providerId = changerOf(c).providerId
    const changed = await changeRegistry(sql, changerOf(c), async (tx, record) => {
      const before = await findUpstream(tx, providerId)
      const after = await apply(tx, before, record)
      if (after === undefined) throw new Refusal('unknown_upstream')
      return after
    })
    if (changed === undefined) throw new Refusal('unknown_provider')
    return changed
  }

  app.openapi(putUpstream, async (c) => {
    const providerId = c.req.valid('param').id
    const { url, acceptX402V1, forwardAuthorization } = c.req.valid('json')
    await requireAllowed(guard, url)
    let isNew = false as boolean
    const changed = await change(c, async (tx, before, record) => {
      isNew = before === undefined
      const after = await setUpstream(tx, providerId, {
        url: url.href.replace(/\/+$/, ''),
        acceptX402V1,
        forwardAuthorization,
      })
      await record(providerId, toRecorded(before), toRecorded(after))
      return after
    })
    return c.json({ ...toUpstream(changed), ...(isNew && { secret: changed.secret }) }, 200)
  })

  app.openapi(getUpstream, async (c) => {
    const found = await findUpstream(sql, c.req.valid('param').id)
    if (found === undefined) throw new Refusal('unknown_upstream')
    return c.json(toUpstream(found), 200)
  })

  app.openapi(removeUpstream, async (c) => {
    const providerId = c.req.valid('param').id
    await change(c, async (tx, before, record) => {
      await deleteUpstream(tx, providerId)
      if (before) await record(providerId, toRecorded(before), toRecorded(undefined))
      return before
    })
    return c.body(null, 204)
  })

  app.openapi(rotate, async (c) => {
    const providerId = c.req.valid('param').id
    const changed = await change(c, async (tx, before, record) => {
      const after = await rotateUpstreamSecret(tx, providerId, now())
      if (before && after) await record(providerId, toRecorded(before), toRecorded(after))
      return after
    })
    return c.json({ ...toUpstream(changed), secret: changed.secret }, 201)
  })
}

async function requireAllowed(guard: AddressGuard, url: URL): Promise<void> {
  const refuse = (message: string, cause?: unknown) =>
    new Refusal('upstream_url_refused', message, { cause, details: { field: 'url' } })
  if (url.search !== '' || url.hash !== '') throw refuse('expected a URL without query or fragment')
  try {
    await guard.check(url)
  } catch (error) {
    throw error instanceof AddressRefusedError ? refuse(error.message, error) : error
  }
}

function toUpstream({
  url,
  acceptX402V1,
  forwardAuthorization,
  secretSince,
  previousSecretExpiresAt,
}: Upstream) {
  return { url, acceptX402V1, forwardAuthorization, secretSince, previousSecretExpiresAt }
}

/** Returns the upstream as the provider's history records it. */
function toRecorded(upstream: Upstream | undefined) {
  return {
    upstream: upstream?.url ?? null,
    upstreamAcceptX402V1: upstream?.acceptX402V1 ?? null,
    upstreamForwardsAuthorization: upstream?.forwardAuthorization ?? null,
    upstreamSecretSince: upstream?.secretSince ?? null,
  }
}
