import { Hono } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { clientAddress } from '#process/clientAddress'
import type { Logger } from '#process/log'
import { answerProblem, toCodedError } from '#process/problem'
import { refuseOtherMethods } from '#process/refuseOtherMethods'
import { responseHeaders } from '#process/responseHeaders'
import { BaseError } from '#protocol/errors'
import type { Metrics } from '../metrics.ts'
import { type SubmitDependencies, submitTransfers } from './submit.ts'

/** What `/readyz` says of one dependency. */
export type Readiness = { name: string; ok: boolean; detail?: string }

export type AppDependencies = {
  submit: SubmitDependencies
  /** Proxies in front of this server, whose `X-Forwarded-For` is believed. */
  trustedProxies: number
  readiness: () => Promise<Readiness[]>
  metrics: Metrics
  log: Logger
}

/** 344 transfers with the longest signature each. */
const mostBytes = 1_000_000

/** The keeper's HTTP side: the facilitator, and what operators and their probes ask. */
export function createApp({ submit, trustedProxies, readiness, metrics, log }: AppDependencies): Hono {
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

  app.get('/livez', (c) => c.json({ status: 'ok' }))
  app.get('/readyz', async (c) => {
    const checks = await readiness()
    const ok = checks.every((check) => check.ok)
    return c.json({ status: ok ? 'ok' : 'unavailable', checks }, ok ? 200 : 503)
  })
  app.get('/metrics', async (c) => {
    return c.body(await metrics.registry.metrics(), 200, { 'content-type': metrics.registry.contentType })
  })
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
