import { hash } from 'node:crypto'
import { OpenAPIHono } from '@hono/zod-openapi'
import { checkSignaturesHere, type PayerSignatures } from '@tollkeeper/chain/payerSignatures'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createTraceRecorder } from '@tollkeeper/ledger/acceptance/traces'
import { createCatalogue } from '@tollkeeper/ledger/discovery/catalogue'
import { createHooks } from '@tollkeeper/ledger/hooks/askHook'
import { findKey } from '@tollkeeper/ledger/registry/apiKeys'
import { createKeyOwners } from '@tollkeeper/ledger/registry/keyOwners'
import { createSalesSwitch } from '@tollkeeper/ledger/registry/salesStop'
import type { Database } from '@tollkeeper/ledger/store/database'
import { onOnePostgres, type TabDatabase } from '@tollkeeper/ledger/tabs/tabDatabase'
import { createTabReads } from '@tollkeeper/ledger/tabs/tabReads'
import { createTabStore, type TabStore } from '@tollkeeper/ledger/tabs/tabStore'
import { type AddressGuard, createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { allowBrowsers } from '@tollkeeper/runtime/allowBrowsers'
import { createFailureLog } from '@tollkeeper/runtime/failureLog'
import { limitBody } from '@tollkeeper/runtime/limitBody'
import type { Logger } from '@tollkeeper/runtime/log'
import { answerProblem, toCodedError } from '@tollkeeper/runtime/problem'
import { createRateLimiter, type RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { refuseOtherMethods } from '@tollkeeper/runtime/refuseOtherMethods'
import type { Loop } from '@tollkeeper/runtime/repeat'
import { responseHeaders } from '@tollkeeper/runtime/responseHeaders'
import { serveMetrics } from '@tollkeeper/runtime/serveMetrics'
import type { Tracer } from '@tollkeeper/runtime/trace'
import { traceRequests } from '@tollkeeper/runtime/traceRequests'
import type { Address } from 'viem'
import { addDashboardRoutes } from './dashboard/routes.ts'
import type { App, GatewayEnv } from './http/app.ts'
import { authenticate, requireOwner } from './http/authenticate.ts'
import { completeOperations, gatewayDocument } from './http/document.ts'
import { invalidRequest } from './http/invalidRequest.ts'
import { limitRate, tooMany } from './http/limitRate.ts'
import { measure } from './http/measure.ts'
import { type ApiMetrics, createApiMetrics } from './http/metrics.ts'
import { requireOperator } from './http/operator.ts'
import { Refusal } from './http/refusal.ts'
import type { GatewaySettings } from './http/settings.ts'
import { describeWebhooks } from './notifications/eventBodies.ts'
import type { Mailer } from './notifications/mailer.ts'
import { addWebhookRoutes } from './notifications/webhookRoutes.ts'
import { addChallengeRoutes } from './payments/challenge/route.ts'
import { addPassRoutes } from './payments/passes/route.ts'
import { addProxyRoutes } from './payments/proxy/route.ts'
import type { ReceiptKeys } from './payments/receipts/keys.ts'
import { addReceiptRoutes } from './payments/receipts/route.ts'
import { createRecordedHeads } from './payments/records/recordedHeads.ts'
import { addRefundRoutes } from './payments/refunds/route.ts'
import { addTabRoutes } from './payments/tabs/route.ts'
import { type BuyOnTabOptions, createBuyOnTab } from './payments/verification/buyOnTab.ts'
import { createNotePrice } from './payments/verification/notePrice.ts'
import { createProviderCap } from './payments/verification/providerCap.ts'
import { addVerifyRoute } from './payments/verification/route.ts'
import { createSettleBeforeServe } from './payments/verification/settleBeforeServe.ts'
import { createVerifyPayment, type VerifyOptions } from './payments/verification/verifyPayment.ts'
import { addApiKeyRoutes } from './registry/apiKeyRoutes.ts'
import { addRegistryChangeRoute } from './registry/changeRoutes.ts'
import { addContactRoutes } from './registry/contactRoutes.ts'
import { addEndpointRoutes } from './registry/endpointRoutes.ts'
import { addHookRoutes } from './registry/hookRoutes.ts'
import { createGatewayNetworks, type GatewayNetworks } from './registry/networks.ts'
import { createOffers } from './registry/offers.ts'
import { minimumPriceOn } from './registry/price.ts'
import { createProbeLimits } from './registry/probeLimits.ts'
import { addProviderRoutes } from './registry/providerRoutes.ts'
import { addUpstreamRoutes } from './registry/upstreamRoutes.ts'
import { addWalletRoutes } from './registry/walletRoutes.ts'
import { addAttentionRoute } from './views/attention.ts'
import { addBookkeepingRoute } from './views/bookkeeping.ts'
import { countCalls } from './views/countCalls.ts'
import { addDiscoveryRoutes } from './views/discovery.ts'
import { addEndpointActivityRoute } from './views/endpointActivity.ts'
import { addFailureRoute } from './views/failures.ts'
import { addFeeDocumentRoute } from './views/feeDocument.ts'
import { addHealthRoutes } from './views/health.ts'
import { addHomeRoute } from './views/home.ts'
import { addNetworkRoutes } from './views/network.ts'
import { addNetworksRoute } from './views/networks.ts'
import { addOperationRoute } from './views/operation.ts'
import { addOperatorProvidersRoute } from './views/operatorProviders.ts'
import { addPayersRoutes } from './views/payers.ts'
import { addPaymentRoutes } from './views/payments.ts'
import { addPendingRoute } from './views/pending.ts'
import { addProviderBatchRoute } from './views/providerBatches.ts'
import { addPaymentTotalsRoute, addProviderPaymentRoute } from './views/providerPayments.ts'
import { addProviderReceiptRoute } from './views/providerReceipts.ts'
import { addQueueRoute } from './views/queue.ts'
import { addRequeueRoute } from './views/requeue.ts'
import { addRevenueRoute } from './views/revenue.ts'
import { addSettlementBatchRoute } from './views/settlementBatches.ts'
import { addSettlementExportRoute } from './views/settlementExport.ts'
import { addSettlementStatusRoute } from './views/settlementStatus.ts'
import { addSplitterRoute } from './views/splitters.ts'
import { addStatementRoute } from './views/statement.ts'
import { addTabListRoute } from './views/tabList.ts'
import { addTimelineRoute } from './views/timeline.ts'
import { addUsageRoute } from './views/usage.ts'
import { createUsageCounters, type UsageCounters } from './views/usageCounters.ts'
import { addValidateSellerRoute } from './views/validateSeller.ts'

export type AppOptions = {
  sql: Database
  /** Where open tabs are stored. Default: the main database. */
  tabDatabase?: TabDatabase
  /** The first network is the default for requests that name no network. */
  networks: ServedNetwork[]
  settings: GatewaySettings
  receiptKeys: ReceiptKeys
  log: Logger
  /** Unix milliseconds. */
  now?: () => number
  /** Default: a guard that follows the settings and uses the system's resolver. */
  addressGuard?: AddressGuard
  /** The guard for providers' upstreams. Default: as for `addressGuard`. */
  upstreamGuard?: AddressGuard
  /** Default: counters that are written only when `flush` is called. */
  usage?: UsageCounters
  /** Default: none, so no mail is sent. */
  mailer?: Mailer | null
  /** Default: a separate registry. */
  metrics?: ApiMetrics
  /** Default: signatures are checked on the serving thread. */
  payerSignatures?: PayerSignatures
  /** Background loops, for `/readyz`. */
  loops?: readonly Loop[]
  /** Called after a buyer has closed a tab. Default: no action, so the tab's payment waits for the next upkeep. */
  onTabClosed?: () => void
  /** Default: none, so nothing is traced. */
  tracer?: Tracer | null
}

/** Maximum delay in ms until this process sees what another process has registered or revoked. */
const registryTtlMs = 2_000
/** Maximum size of a request's body in bytes. A payment with the longest signature of a contract wallet needs half of it. */
const maxBodyBytes = 16_384

/** Paths that any web page may read (CORS). */
const publicPaths = [
  '/',
  '/challenge',
  '/receipts/*',
  '/payments/:paymentId',
  '/authorizations/*',
  '/tabs/:tabId',
  '/tabs/:tabId/requests/:sequence',
  '/tabs/:tabId/close',
  '/settlements/*',
  '/networks',
  '/network',
  '/network/*',
  '/discovery/*',
  '/openapi.json',
  '/openapi/*',
  '/llms.txt',
  '/.well-known/*',
  '/did.json',
]

/**
 * Groups of routes in the order of the OpenAPI document. Each function declares the options that it needs, and {@link createApp} passes all
 * options to each.
 */
const routes = [
  addRequeueRoute,
  addRefundRoutes,
  addPassRoutes,
  addReceiptRoutes,
  addProviderRoutes,
  addContactRoutes,
  addApiKeyRoutes,
  addWalletRoutes,
  addUpstreamRoutes,
  addHookRoutes,
  addEndpointRoutes,
  addRegistryChangeRoute,
  addRevenueRoute,
  addStatementRoute,
  addBookkeepingRoute,
  addFeeDocumentRoute,
  addPayersRoutes,
  addEndpointActivityRoute,
  addUsageRoute,
  addProviderPaymentRoute,
  addPaymentTotalsRoute,
  addProviderReceiptRoute,
  addTabListRoute,
  addFailureRoute,
  addAttentionRoute,
  addQueueRoute,
  addSplitterRoute,
  addProviderBatchRoute,
  addTimelineRoute,
  addWebhookRoutes,
  addSettlementStatusRoute,
  addSettlementBatchRoute,
  addSettlementExportRoute,
  addNetworksRoute,
  addNetworkRoutes,
  addDiscoveryRoutes,
  addValidateSellerRoute,
  addPendingRoute,
  addOperationRoute,
  addOperatorProvidersRoute,
  addHealthRoutes,
  addHomeRoute,
]

/**
 * Creates the gateway's HTTP interface without a server: `app.fetch` and `app.request` answer requests.
 *
 * It reads nothing from the environment and starts nothing.
 */
export function createApp({
  sql,
  tabDatabase = onOnePostgres(sql),
  networks: served,
  settings,
  receiptKeys,
  log,
  now = Date.now,
  addressGuard = createAddressGuard({ allowPrivate: settings.webhookAllowPrivate }),
  upstreamGuard = createAddressGuard({ allowPrivate: settings.upstream.allowPrivate }),
  usage = createUsageCounters({ sql, now }),
  mailer = null,
  metrics = createApiMetrics(),
  payerSignatures = checkSignaturesHere,
  loops = [],
  onTabClosed = () => {},
  tracer = null,
}: AppOptions): App {
  const networks = createGatewayNetworks(served, { sql, settings, now })
  const heads = createRecordedHeads(sql)
  const offers = createOffers({ sql, discovery: settings.discovery, ttlMs: registryTtlMs, now })
  const catalogue = settings.discovery
    ? createCatalogue({
        sql,
        networks: served,
        platformWallet: settings.platformWallet,
        feeSchedule: settings.feeSchedule,
        offerTimeoutSeconds: settings.offerTimeoutSeconds,
        now,
        minimumPrice: (network) => minimumPriceOn(settings, network),
      })
    : null
  const keyOwners = createKeyOwners((key) => findKey(sql, key), registryTtlMs, now)
  const rateLimiter = createRateLimiter({ sql, log, now })
  const limit = limitRate({ rateLimiter, settings })
  const options = {
    sql,
    sales: createSalesSwitch(sql),
    tabStore: createTabStore(tabDatabase),
    tabReads: createTabReads(tabDatabase),
    networks,
    offers,
    catalogue,
    heads,
    receiptKeys,
    settings,
    payerSignatures,
    addressGuard,
    upstreamGuard,
    mailer,
    metrics,
    loops,
    onTabClosed,
    rateLimiter,
    hooks: createHooks({
      sql,
      guard: addressGuard,
      now,
      onOutcome: (outcome) => metrics.hookQuestions.inc({ outcome }),
    }),
    probeLimits: createProbeLimits({ guard: addressGuard, rateLimiter, settings }),
    now,
  }
  const verification = createVerification(options, rateLimiter)
  const recordTrace = tracer ? createTraceRecorder(sql, log) : () => {}

  function addPayments(router: App): void {
    for (const path of ['/challenge', '/verify']) {
      if (tracer) router.use(path, traceRequests(tracer, path))
      router.use(path, countCalls({ offers, usage, metrics }))
    }
    addChallengeRoutes(router, options)
    addVerifyRoute(router, { ...options, ...verification, recordTrace })
    addPaymentRoutes(router, options)
    addTabRoutes(router, options)
  }

  // Only the proxy calls this app, within this process. So the app accepts a provider's id in place of the provider's API key.
  const payments = createRouter(log)
  payments.use(async (c, next) => {
    c.set('caller', c.req.header('authorization')?.replace(/^Bearer /, ''))
    await next()
  })
  addPayments(payments)

  const app = createRouter(log)
  app.use(responseHeaders)
  app.use(measure(metrics))
  // Added before the check of API keys, because METRICS_TOKEN isn't an API key and would be refused there.
  app.get(
    '/metrics',
    serveMetrics({
      registry: metrics.registry,
      token: settings.metricsToken,
      rateLimiter: settings.rateLimits === null ? null : rateLimiter,
      trustedProxies: settings.trustedProxies,
    }),
  )
  for (const path of publicPaths) app.use(path, allowBrowsers(['GET', 'POST']))
  // The proxy is also added before the body limit and the check of API keys: its request bodies have a separate limit, and its `Authorization` header
  // contains a payment.
  app.use('/p/*', limit)
  addProxyRoutes(app, { ...options, log, payments, ttlMs: registryTtlMs })
  app.use(limitBody(maxBodyBytes))
  app.use(authenticate({ keyOwners, rateLimiter, settings }))
  app.use(limit)
  // From here on, every route below `/providers/{id}` is open only to that provider, even if the route's declaration forgets `ownersOnly`.
  app.use('/providers/:id/*', requireOwner)
  app.use('/operator/*', requireOperator)

  addPayments(app)
  for (const addRoutes of routes) addRoutes(app, options)
  addDashboardRoutes(app)
  describeApi(app, settings.issuer)
  refuseOtherMethods(app)
  return app
}

/** Creates a router that answers all errors as problem documents. */
function createRouter(log: Logger): App {
  const logFailure = createFailureLog(log)
  const app: App = new OpenAPIHono<GatewayEnv>({
    defaultHook: (result) => {
      if (!result.success) throw invalidRequest(result.target, result.error.issues)
    },
  })
  app.onError((error, c) => {
    const coded = toCodedError(error)
    const { method, path } = c.req
    logFailure(coded, { method, path })
    // A refused payment also contains `verified: false` (conformance 2.6-1).
    return answerProblem(c, coded, path === '/verify' ? { verified: false } : {})
  })
  app.notFound((c) =>
    answerProblem(c, new Refusal('not_found', `No route for ${c.req.method} ${c.req.path}`)),
  )
  return app
}

type VerificationOptions = Pick<
  VerifyOptions & BuyOnTabOptions,
  'sql' | 'sales' | 'offers' | 'hooks' | 'receiptKeys' | 'payerSignatures' | 'now'
> & {
  tabStore: TabStore
  networks: GatewayNetworks
  settings: GatewaySettings
}

function createVerification(
  {
    sql,
    sales,
    tabStore,
    networks,
    offers,
    hooks,
    receiptKeys,
    settings,
    payerSignatures,
    now,
  }: VerificationOptions,
  rateLimiter: RateLimiter,
) {
  const { rateLimits } = settings
  const shared = {
    sql,
    sales,
    tabStore,
    networks: networks.byChainId,
    offers,
    hooks,
    receiptKeys,
    payerSignatures,
    now,
    issuer: settings.issuer,
    platformWallet: settings.platformWallet,
    feeSchedule: settings.feeSchedule,
    minimumPrices: settings.minimumPrices,
    macaroonSecrets: settings.macaroonSecrets,
    macaroonNotBefore: settings.macaroonNotBefore,
    contractTimeoutMs: settings.contractTimeoutMs,
    gasAllowance: settings.gasAllowance,
    tabs: settings.tabs,
    countPayer: (payer: Address) => {
      if (rateLimits === null) return
      const allowed = rateLimiter.count(`payer:${payer}`, rateLimits.payer)
      if (!allowed.isAllowed) throw tooMany(allowed)
    },
    providerCap: createProviderCap({ sql, cap: settings.providerCap, now }),
    notePrice: settings.discovery ? createNotePrice({ sql, now }) : () => {},
    settleBeforeServe: createSettleBeforeServe({
      sql,
      fromPrice: settings.settleBeforeServe,
      timeoutMs: settings.settleBeforeServeTimeoutMs,
      now,
    }),
  }
  return { verifyPayment: createVerifyPayment(shared), buyOnTab: createBuyOnTab(shared) }
}

/**
 * Adds `GET /openapi/gateway.json`, which describes the gateway's API; `/openapi.json` describes what is sold here. The document is cached, because
 * building it takes 20 to 65 ms of CPU.
 */
function describeApi(app: App, issuer: string): void {
  describeWebhooks(app)
  app.openAPIRegistry.registerComponent('securitySchemes', 'apiKey', {
    type: 'http',
    scheme: 'bearer',
    description: 'A provider\'s API key, "tk_…"',
  })
  app.openAPIRegistry.registerComponent('securitySchemes', 'operatorKey', {
    type: 'http',
    scheme: 'bearer',
    description: 'A key of the operator, "tko_…"',
  })
  let built: { text: string; etag: string } | undefined
  app.get(gatewayDocument, (c) => {
    built ??= build()
    c.header('Cache-Control', 'no-cache')
    c.header('ETag', built.etag)
    if (c.req.header('if-none-match')?.includes(built.etag)) return c.body(null, 304)
    return c.body(built.text, 200, { 'content-type': 'application/json' })
  })

  function build() {
    const document = app.getOpenAPI31Document({
      openapi: '3.1.0',
      info: {
        title: 'Tollkeeper gateway',
        version: '1',
        description:
          'Challenges, verification, receipts and settlement views. Problems are RFC 9457 with a stable `code`.',
        license: { name: 'MIT', url: 'https://spdx.org/licenses/MIT' },
        contact: { name: 'The operator of this gateway', url: issuer },
      },
      servers: [{ url: issuer }],
    })
    completeOperations(document)
    const text = JSON.stringify(document)
    return { text, etag: `"${hash('sha256', text, 'base64url')}"` }
  }
}
