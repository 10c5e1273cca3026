import { z } from '@hono/zod-openapi'
import {
  findEndedPasses,
  findPasses,
  type PassRecord,
  type PassUse,
  type PassUsed,
  passEndReasons,
  passState,
  passStates,
  returnPassUse,
  usePass,
} from '@tollkeeper/ledger/passes/passes'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { ErrorCode } from '@tollkeeper/sdk/protocol/errors'
import type { App } from '../../http/app.ts'
import { ownersOnly, providerViews } from '../../http/authenticate.ts'
import { createCursor, textField, timeField } from '../../http/cursor.ts'
import { jsonAnswer } from '../../http/problems.ts'
import { Refusal } from '../../http/refusal.ts'
import { route } from '../../http/route.ts'
import { view } from '../../http/view.ts'
import * as wire from '../../http/wire.ts'

/** A pass in the form of every view. */
export const pass = z
  .object({
    paymentId: wire.paymentId,
    endpointId: wire.endpointId,
    payer: wire.addressOut,
    boundTo: z.enum(['payer', 'bearer']),
    pass_state: z
      .enum(passStates)
      .openapi({ description: 'Only `valid` opens the endpoint. `ended`: ended early, see `endReason`' }),
    startsAt: wire.isoTime,
    endsAt: wire.isoTime,
    requests: z.int().nullable().openapi({ description: 'Number of requests bought; null: any number' }),
    used: z.int().openapi({ description: 'Number of requests used; 0 if they are not counted' }),
    lastUsedAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Last use of a pass whose requests are counted' }),
    endReason: z.enum(passEndReasons).nullable().openapi({
      description:
        'refunded: at least the provider’s part is refunded. voided: its payment was voided. unpaid: its payment, or an attempt to settle its payment, failed; once the payment settles, the pass is valid again',
    }),
    endedAt: wire.isoTime.nullable(),
  })
  .openapi('Pass')

/** Converts a pass to {@link pass}. */
export function toPass(record: PassRecord, now: Date) {
  return { ...record, pass_state: passState(record, now) }
}

export type PassRouteOptions = { sql: Database; now: () => number }

const passPositions = createCursor({ startsAt: timeField, paymentId: textField })

const addPassesRoute = view('/providers/{id}/passes', {
  ...providerViews,
  summary: 'Passes that were sold, newest first',
  query: z.object({
    endpointId: wire.idFilter('ep').optional(),
    payer: wire.address.optional(),
    state: z.enum(passStates).optional(),
    limit: wire.limit,
    cursor: wire.cursor,
  }),
  answer: ['The passes', z.object({ passes: z.array(pass), cursor: wire.cursorOut }).openapi('Passes')],
  open:
    ({ sql, now }: PassRouteOptions) =>
    async ({ id: providerId, endpointId, payer, state, ...asked }) => {
      const at = new Date(now())
      const { rows, cursor } = await passPositions.page('passes', asked, (page) =>
        findPasses(sql, { providerId, endpointId, payer, state }, { ...page, now: at }),
      )
      return { passes: rows.map((row) => toPass(row, at)), cursor }
    },
})

const endedPositions = createCursor({ paymentId: textField })

const addEndedPassesRoute = view('/providers/{id}/passes/ended', {
  ...providerViews,
  summary: 'Passes that middleware must refuse because they ended early, before their expiry',
  description:
    'Middleware reads this list once a minute while passes are used. With `If-None-Match`, the answer is 304 if nothing changed.',
  query: z.object({ limit: wire.wholeNumber(1_000, 1_000), cursor: wire.cursor }),
  answer: [
    'Their payments',
    z
      .object({
        ended: z.array(
          z.object({ paymentId: wire.paymentId, reason: z.enum(passEndReasons) }).openapi('EndedPass'),
        ),
        cursor: wire.cursorOut,
      })
      .openapi('EndedPasses'),
  ],
  open:
    ({ sql, now }: PassRouteOptions) =>
    async ({ id: providerId, ...asked }) => {
      const { rows, cursor } = await endedPositions.page('ended', asked, (page) =>
        findEndedPasses(sql, providerId, { ...page, now: new Date(now()) }),
      )
      return { ended: rows, cursor }
    },
})

const used = z
  .object({ left: z.int().openapi({ description: 'Number of requests left on the pass' }) })
  .openapi('PassUsed')

const useId = z
  .uuid()
  .openapi({ description: 'Id of the request, chosen by the middleware: each id is counted once' })

const postUse = route('post', '/providers/{id}/passes/{paymentId}/uses', {
  ...ownersOnly,
  tags: ['Passes'],
  summary: 'Count a request under a pass with a limited number of requests',
  description: 'A repeated `useId` is counted only once.',
  body: z.strictObject({ useId }).openapi('PassUse'),
  refuses: [402, 409],
  responses: { 200: jsonAnswer('The request is counted', used) },
})

const postVoidUse = route('post', '/providers/{id}/passes/{paymentId}/uses/{useId}/void', {
  ...ownersOnly,
  tags: ['Passes'],
  summary: 'Return a counted request to the pass, because it was not served',
  params: z.object({ id: wire.providerId, paymentId: wire.paymentId, useId }),
  responses: { 200: jsonAnswer('The request is not counted', used) },
})

/** The refusal for each verdict that doesn't count a use. */
const refusals = {
  used_up: 'pass_used_up',
  ended: 'pass_ended',
  expired: 'pass_expired',
  unknown: 'unknown_pass',
  returned: 'payment_voided',
} as const satisfies Record<Exclude<PassUsed['verdict'], 'counted' | 'repeated'>, ErrorCode>

export function addPassRoutes(app: App, options: PassRouteOptions): void {
  const { sql, now } = options
  addEndedPassesRoute(app, options)
  addPassesRoute(app, options)

  app.openapi(postUse, async (c) => {
    const { id: providerId, paymentId } = c.req.valid('param')
    const { useId } = c.req.valid('json')
    const use: PassUse = { paymentId, providerId, useId, at: new Date(now()) }
    const { verdict, left } = await usePass(sql, use)
    if (verdict !== 'counted' && verdict !== 'repeated') throw new Refusal(refusals[verdict])
    return c.json({ left: left ?? 0 }, 200)
  })

  app.openapi(postVoidUse, async (c) => {
    const { id: providerId, paymentId, useId } = c.req.valid('param')
    const { verdict, left } = await returnPassUse(sql, { paymentId, providerId, useId, at: new Date(now()) })
    if (verdict === 'unknown') throw new Refusal('unknown_pass')
    return c.json({ left: left ?? 0 }, 200)
  })
}
