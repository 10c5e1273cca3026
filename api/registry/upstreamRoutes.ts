import { z } from '@hono/zod-openapi'
import { changeRegistry, type RecordChange } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database, Transaction } from '@tollkeeper/ledger/store/database'
import type { Context } from 'hono'
import { type AddressGuard, AddressRefusedError } from '../http/addressGuard.ts'
import type { App, GatewayEnv } from '../http/app.ts'
import { changerOf, ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import {
  challengeBodies,
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
      description: 'https and public; its path is put before that of a request. Redirects are not followed',
    }),
    body: z.enum(challengeBodies).optional().openapi({
      description:
        '`x402-v1`: a 402 has the body that clients of x402 v1 pay. Default: as it is, at first `tollkeeper`',
    }),
  })
  .openapi('NewUpstream')

export const upstream = z
  .object({
    url: z.string(),
    body: z.enum(challengeBodies),
    secretSince: wire.isoTime,
    previousSecretExpiresAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Until then requests carry the secret before the last rotation as well' }),
  })
  .openapi('Upstream')

export const upstreamWithSecret = upstream
  .extend({
    secret: z.string().optional().openapi({
      description: 'Where it is new: shown this once. What requests carry in `Service-Upstream-Secret`',
      example: 'upsec_…',
    }),
  })
  .openapi('UpstreamWithSecret')

const putUpstream = route('put', '/providers/{id}/upstream', {
  ...owner,
  summary: 'Register the server that paid requests are passed on to',
  description: 'What buyers call is `/p/{providerId}/…` here, in the place of a middleware.',
  body: newUpstream,
  refuses: [404],
  responses: { 200: jsonAnswer('The upstream, with its secret if it is the first one', upstreamWithSecret) },
})

const getUpstream = route('get', '/providers/{id}/upstream', {
  ...owner,
  summary: 'The upstream, without its secret',
  refuses: [404],
  responses: { 200: jsonAnswer('The upstream', upstream) },
})

const removeUpstream = route('delete', '/providers/{id}/upstream', {
  ...owner,
  summary: 'Pass nothing on any more',
  refuses: [404],
  responses: { 204: { description: 'Done' } },
})

const rotate = route('post', '/providers/{id}/upstream/secret', {
  ...owner,
  summary: 'A new secret; requests carry the one before as well for a day',
  refuses: [404],
  responses: { 201: jsonAnswer('The upstream, and its secret', upstreamWithSecret) },
})

/** Routes for a provider's own server, which the gateway's proxy calls. */
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
    const { url, body } = c.req.valid('json')
    await requireAllowed(guard, url)
    let isNew = false as boolean
    const changed = await change(c, async (tx, before, record) => {
      isNew = before === undefined
      const after = await setUpstream(tx, providerId, { url: url.href.replace(/\/+$/, ''), body })
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
  if (url.search !== '' || url.hash !== '') throw refuse('expected a URL without query and fragment')
  try {
    await guard.check(url)
  } catch (error) {
    throw error instanceof AddressRefusedError ? refuse(error.message, error) : error
  }
}

function toUpstream({ url, body, secretSince, previousSecretExpiresAt }: Upstream) {
  return { url, body, secretSince, previousSecretExpiresAt }
}

/** In the provider's history. */
function toRecorded(upstream: Upstream | undefined) {
  return {
    upstream: upstream?.url ?? null,
    upstreamBody: upstream?.body ?? null,
    upstreamSecretSince: upstream?.secretSince ?? null,
  }
}
