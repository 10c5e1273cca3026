import type { Hono } from 'hono'
import { allowBrowsers } from '#process/allowBrowsers'
import { clientAddress } from '#process/clientAddress'
import { limitBody } from '#process/limitBody'
import { refuseOtherMethods } from '#process/refuseOtherMethods'
import { BaseError } from '#protocol/errors'
import { createFacilitator, type FacilitatorDependencies } from './facilitator/routes.ts'
import { createOperationsApp, type OperationsOptions } from './operations.ts'
import { type SubmitDependencies, submitTransfers } from './submit.ts'

export type AppDependencies = OperationsOptions & {
  submit: SubmitDependencies
  facilitator: FacilitatorDependencies
}

/** Longest body: 344 transfers with the longest signature each. */
const mostBytes = 1_000_000

/** The keeper's HTTP side: the facilitator, and what operators and their probes ask. */
export function createApp({ submit, facilitator, ...operations }: AppDependencies): Hono {
  const { rateLimiter, trustedProxies } = operations
  const app = createOperationsApp(operations)

  // A buyer's page may be anywhere. Pages gain nothing by it that they had not: a POST of plain text needs no leave.
  app.use('/submit', allowBrowsers(['POST']))
  app.post('/submit', limitBody(mostBytes), async (c) => {
    const text = await c.req.text()
    const header = c.req.header('authorization')
    const apiKey = header === undefined ? null : (/^Bearer (\S+)$/i.exec(header)?.[1] ?? '')
    const caller = { apiKey, address: clientAddress(c, trustedProxies) }
    return c.json(await submitTransfers(submit, parseJson(text), caller))
  })

  app.route('/', createFacilitator(facilitator, { rateLimiter, trustedProxies }))
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
