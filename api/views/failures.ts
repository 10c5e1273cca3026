import { z } from '@hono/zod-openapi'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { type FailedAttempt, findSettlementFailures, type SettlementFailure } from './failureQueries.ts'
import { paymentFilters, paymentPositions, providerPayment, toProviderPayment } from './providerPayments.ts'

const failuresQuery = paymentFilters.extend({
  status: z.enum(['retrying', 'failed']).optional().openapi({ default: 'retrying' }),
})

/** One attempt to settle a payment that did not succeed. */
export const failedAttempt = z.object({
  attempt: z.int(),
  code: z.string().openapi({ example: 'insufficient_balance' }),
  detail: z.string(),
  failedAt: wire.isoTime,
  nextAttemptAt: wire.isoTime.nullable(),
})

const failure = providerPayment.extend({ failures: z.array(failedAttempt) }).openapi('SettlementFailure')

export const failures = z
  .object({ failures: z.array(failure), cursor: wire.cursorOut, indexedBlocks: wire.indexedBlocks })
  .openapi('SettlementFailures')

const getFailures = route({
  ...ownersOnly,
  tags: ['Provider views'],
  method: 'get',
  path: '/providers/{id}/failures',
  summary: 'Payments whose settlement is failing or has failed, with each attempt and the next one',
  query: failuresQuery,
  responses: {
    200: jsonAnswer('The failures, newest first', failures),
  },
})

export function addFailureRoute(app: App, { sql, heads, networks, now }: RouteOptions): void {
  app.openapi(getFailures, async (c) => {
    const providerId = c.req.valid('param').id
    const query = c.req.valid('query')
    const { network, cursor, limit = wire.defaultLimit, status = 'retrying', ...filters } = query
    const chainId = networks.chainIdNamed(network)
    const list = `failures ${status}`
    const after = paymentPositions.read(list, cursor)
    const indexedBlocks = await heads.ofProvider(providerId, chainId)
    const found = await findSettlementFailures(sql, {
      ...{ ...filters, providerId, chainId, status, after, limit },
      now: new Date(now()),
    })
    return c.json(
      {
        failures: found.failures.map(toFailure),
        cursor: found.next && paymentPositions.write(list, found.next),
        indexedBlocks,
      },
      200,
    )
  })
}

function toFailure({ failures, ...payment }: SettlementFailure) {
  return { ...toProviderPayment(payment), failures: failures.map(toFailedAttempt) }
}

export function toFailedAttempt({ failedAt, nextAttemptAt, ...attempt }: FailedAttempt) {
  return { ...attempt, failedAt: failedAt.toISOString(), nextAttemptAt: wire.isoOrNull(nextAttemptAt) }
}
