import { Hono } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { clientAddress } from '#process/clientAddress'
import type { Readiness } from '#process/health'
import type { Logger } from '#process/log'
import { answerProblem, toCodedError } from '#process/problem'
import { refuseOtherMethods } from '#process/refuseOtherMethods'
import { responseHeaders } from '#process/responseHeaders'
import { serveMetrics } from '#process/serveMetrics'
import { BaseError } from '#protocol/errors'
import type { Metrics } from '../metrics.ts'
import { createFacilitator, type FacilitatorDependencies } from './facilitator/routes.ts'
import { type SubmitDependencies, submitTransfers } from './submit.ts'

export type AppDependencies = {
  submit: SubmitDependencies
  facilitator: FacilitatorDependencies
  /** Proxies in front of this server, whose `X-Forwarded-For` is believed. */
  trustedProxies: number
  readiness: () => Promise<Readiness>
  metrics: Metrics
  /** What Prometheus presents to read them; null: anyone may. */
  metricsToken: string | null
  log: Logger
}

/** 344 transfers with the longest signature each. */
const mostBytes = 1_000_000

/** The keeper's HTTP side: the facilitator, and what operators and their probes ask. */
export function createApp({
  submit,
  facilitator,
  trustedProxies,
  readiness,
  metrics,
  metricsToken,
  log,
}: AppDependencies): Hono {
  const app = new Hono()
  app.use(responseHeaders)

  app.onError((error, c) => {
    const coded = toCodedError(error)
    if (coded.status >= 500) log.error({ err: error, code: coded.code, path: c.req.path }, 'request failed')
    return answerProblem(c, coded)
  })
  app.notFound((c) => answerProblem(c, new BaseError('not_found')))

  app.post(
    '/submit',
    bodyLimit({ maxSize: mostBytes, onError: (c) => answerProblem(c, new BaseError('payload_too_large')) }),
    async (c) => {
      const text = await c.req.text()
      const header = c.req.header('authorization')
      const apiKey = header === undefined ? null : (/^Bearer (\S+)$/i.exec(header)?.[1] ?? '')
      const caller = { apiKey, address: clientAddress(c, trustedProxies) }
      return c.json(await submitTransfers(submit, parseJson(text), caller))
    },
  )

  app.route('/', createFacilitator(facilitator, { rateLimiter: submit.rateLimiter, trustedProxies }))

  app.get('/healthz', (c) => c.json({ status: 'ok' }))
  app.get('/readyz', async (c) => {
    const body = await readiness()
    return c.json(body, body.status === 'unavailable' ? 503 : 200)
  })
  app.get('/metrics', serveMetrics({ registry: metrics.registry, token: metricsToken }))
  refuseOtherMethods(app)
  return app
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new BaseError('invalid_json', undefined, { cause: error })
  }
}
