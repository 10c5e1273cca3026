import { OpenAPIHono } from '@hono/zod-openapi'
import { answerProblem } from '#process/problem'
import { refuseOtherMethods } from '#process/refuseOtherMethods'
import { allowBrowsers } from './http/allowBrowsers.ts'
import { authenticate } from './http/authenticate.ts'
import { countCalls } from './http/countCalls.ts'
import { createGateway, type GatewayDeps } from './http/gateway.ts'
import { invalidRequest } from './http/invalidRequest.ts'
import { limitBody } from './http/limitBody.ts'
import { limitRate } from './http/limitRate.ts'
import { measure } from './http/measure.ts'
import { toCodedError } from './http/problem.ts'
import { addDashboardRoutes } from './portal/dashboard/routes.ts'
import { Refusal } from './refusal.ts'
import { addAccountRoute } from './routes/account.ts'
import { addChallengeRoutes } from './routes/challenge.ts'
import { addHealthRoutes } from './routes/health.ts'
import { addMetricsRoute } from './routes/metrics.ts'
import { addPaymentRoutes } from './routes/payments.ts'
import { addPendingRoute } from './routes/pending.ts'
import { addProviderPaymentRoutes } from './routes/providerPayments.ts'
import { addProviderRoutes } from './routes/providers.ts'
import { addReceiptRoutes } from './routes/receipts.ts'
import { addRequeueRoute } from './routes/requeue.ts'
import { addRevenueRoutes } from './routes/revenue.ts'
import { addSettlementRoutes } from './routes/settlements.ts'
import { addSettlingRoutes } from './routes/settling.ts'
import { addUsageRoutes } from './routes/usage.ts'
import { addVerifyRoute } from './routes/verify.ts'
import { addWebhookRoutes } from './routes/webhooks.ts'

export type GatewayEnv = {
  Variables: {
    /** The provider whose API key came along. */
    caller: string | undefined
    /** The endpoint that a challenge or verification is for, once the route has read it: its calls are counted. */
    called: { providerId: string; endpointId: string } | undefined
  }
}

export type App = OpenAPIHono<GatewayEnv>

/**
 * The gateway's HTTP interface, without a server: `app.fetch` and `app.request` answer requests.
 *
 * Nothing is read from the environment and nothing is started.
 */
export function createApp(deps: GatewayDeps): App {
  const gateway = createGateway(deps)
  const { log, settings } = gateway

  const app: App = new OpenAPIHono<GatewayEnv>({
    defaultHook: (result) => {
      if (!result.success) throw invalidRequest(result.target, result.error.issues)
    },
  })

  app.onError((error, c) => {
    const coded = toCodedError(error)
    if (coded.code === 'internal_error' || coded.code === 'dependency_unavailable') {
      log.error({ err: coded.cause ?? coded, method: c.req.method, path: c.req.path }, coded.message)
    } else {
      log.debug({ code: coded.code, method: c.req.method, path: c.req.path }, coded.message)
    }
    // SPEC 2.6: a verification that fails says so in its own field, too.
    return answerProblem(c, coded, c.req.path === '/verify' ? { verified: false } : {})
  })
  app.notFound((c) =>
    answerProblem(c, new Refusal('not_found', `No route for ${c.req.method} ${c.req.path}`)),
  )

  app.use(measure(gateway.metrics))
  // Before the API keys: its own token is none.
  addMetricsRoute(app, gateway)

  for (const path of [
    '/challenge',
    '/receipts/*',
    '/payments/:paymentId',
    '/settlements/*',
    '/.well-known/*',
  ]) {
    app.use(path, allowBrowsers)
  }
  app.use(limitBody(settings.maxBodyBytes))
  app.use(authenticate(gateway))
  app.use(limitRate(gateway))
  for (const path of ['/challenge', '/verify']) app.use(path, countCalls(gateway))

  addAccountRoute(app, gateway)
  addProviderRoutes(app, gateway)
  addRevenueRoutes(app, gateway)
  addProviderPaymentRoutes(app, gateway)
  addSettlingRoutes(app, gateway)
  addUsageRoutes(app, gateway)
  addWebhookRoutes(app, gateway)
  addChallengeRoutes(app, gateway)
  addVerifyRoute(app, gateway)
  addPaymentRoutes(app, gateway)
  addRequeueRoute(app, gateway)
  addReceiptRoutes(app, gateway)
  addSettlementRoutes(app, gateway)
  addPendingRoute(app, gateway)
  addHealthRoutes(app, gateway)
  addDashboardRoutes(app)

  app.openAPIRegistry.registerComponent('securitySchemes', 'apiKey', {
    type: 'http',
    scheme: 'bearer',
    description: 'A provider\'s API key, "tk_…"',
  })
  app.doc31('/openapi.json', {
    openapi: '3.1.0',
    info: {
      title: 'Tollkeeper gateway',
      version: '1',
      description:
        'Challenges, verification, receipts and settlement views. Problems are RFC 9457 with a stable `code`.',
    },
    servers: [{ url: settings.issuer }],
  })
  refuseOtherMethods(app)
  return app
}
