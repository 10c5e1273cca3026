/**
 * The name of each operation in `@tollkeeper/sdk/provider`, as `resource.method`, by operation id. These names are public, so a person
 * chooses each one: `npm run generate` fails if an operation is neither here nor in {@link leftOut}.
 */
export const methodNames: Readonly<Record<string, string>> = {
  getAccount: 'account.get',

  getProvider: 'provider.get',
  patchProvider: 'provider.update',
  getProviderChanges: 'provider.changes',
  postProviderContactCode: 'provider.sendContactCode',
  postProviderContactConfirmation: 'provider.confirmContact',

  postProviderKeys: 'apiKeys.create',
  getProviderKeys: 'apiKeys.list',
  deleteProviderKey: 'apiKeys.revoke',

  postProviderWallets: 'wallets.create',
  getProviderWallets: 'wallets.list',
  getProviderWallet: 'wallets.get',
  patchProviderWallet: 'wallets.replace',
  deleteProviderWallet: 'wallets.retire',

  putProviderUpstream: 'upstream.set',
  getProviderUpstream: 'upstream.get',
  deleteProviderUpstream: 'upstream.remove',
  postProviderUpstreamSecret: 'upstream.rotateSecret',

  putProviderHook: 'hook.set',
  getProviderHook: 'hook.get',
  deleteProviderHook: 'hook.remove',
  postProviderHookSecret: 'hook.rotateSecret',
  postProviderHookTest: 'hook.test',

  postProviderEndpoints: 'endpoints.create',
  getProviderEndpoints: 'endpoints.list',
  getProviderEndpoint: 'endpoints.get',
  patchProviderEndpoint: 'endpoints.update',
  getProviderEndpointActivity: 'endpoints.activity',
  postProviderEndpointCheck: 'endpoints.check',
  getProviderUsage: 'endpoints.usage',

  getProviderPayments: 'payments.list',
  getPayment: 'payments.get',
  getProviderPaymentsTotals: 'payments.totals',
  getProviderPaymentTimeline: 'payments.timeline',
  postPaymentVoid: 'payments.void',
  postPaymentRequeue: 'payments.requeue',
  postProviderPaymentsRequeue: 'payments.requeueMany',
  getProviderFailures: 'payments.failures',

  getProviderPaymentRefunds: 'refunds.get',
  postProviderPaymentRefunds: 'refunds.create',

  getProviderPasses: 'passes.list',
  getProviderPassesEnded: 'passes.ended',

  getProviderReceipts: 'receipts.list',
  getReceipt: 'receipts.get',

  getProviderPayers: 'payers.list',
  getProviderPayer: 'payers.get',
  getProviderPayerActivity: 'payers.activity',

  getProviderTabs: 'tabs.list',
  getTab: 'tabs.get',
  getTabRequest: 'tabs.request',
  postTabRequestCharge: 'tabs.charge',

  getProviderRevenue: 'revenue.list',
  getProviderStatement: 'books.statement',
  getProviderBookkeeping: 'books.bookkeeping',
  getProviderFeeDocument: 'books.feeDocument',

  getProviderAttention: 'attention.get',
  getProviderQueue: 'queue.get',
  getProviderSplitters: 'splitters.list',
  getProviderBatches: 'batches.list',

  postProviderWebhooks: 'webhooks.create',
  getProviderWebhooks: 'webhooks.list',
  getProviderWebhook: 'webhooks.get',
  deleteProviderWebhook: 'webhooks.delete',
  postProviderWebhookRotate: 'webhooks.rotateSecret',
  postProviderWebhookTest: 'webhooks.test',
  getProviderWebhookDeliveries: 'webhooks.deliveries',
  postProviderWebhookDeliveryRedeliver: 'webhooks.redeliver',

  getSettlementsStatus: 'settlements.status',
  getSettlementsBatches: 'settlements.batches',
  getSettlementsExport: 'settlements.export',

  getNetworks: 'networks.get',

  getDiscoveryResources: 'discovery.resources',
  getDiscoverySearch: 'discovery.search',
  getDiscoveryMerchant: 'discovery.merchant',
  getDiscoveryProvider: 'discovery.documents',
  postDiscoveryValidate: 'discovery.validate',
}

/** Operations that have no method in the client, each with the reason. */
export const leftOut: Readonly<Record<string, string>> = {
  getP: 'buyers call the proxy',
  postP: 'buyers call the proxy',
  putP: 'buyers call the proxy',
  patchP: 'buyers call the proxy',
  deleteP: 'buyers call the proxy',
  getChallenge: 'the middleware asks for challenges',
  postChallenge: 'the middleware asks for challenges',
  postVerify: 'the middleware verifies',
  postProviderPassUses: 'the middleware counts uses of passes',
  postProviderPassUseVoid: 'the middleware counts uses of passes',
  getAuthorization: "the buyer's client asks",
  postTabClose: "the buyer's client closes its tabs",
  getWellKnownJwksJson: 'verifyReceipt of @tollkeeper/sdk/audit reads the keys',
  getWellKnownDidJson: "x402's clients read it",
  postProviders: 'registerProvider, which needs no key',
  getSettlementsPending: 'keepers read it',
  postOperatorPaymentRequeue: "the operator's",
  getOperatorOperation: "the operator's",
  patchOperatorProvider: "the operator's",
  getOperatorProviders: "the operator's",
  getNetwork: "the network's public figures, of all gateways",
  getNetworkBatches: "the network's public figures, of all gateways",
  getHealthz: 'for probes',
  getReadyz: 'for probes',
  getRoot: 'for people',
}

/** Operations that have no method in the client, but whose types a function of the client needs. */
export const typesAlone: readonly string[] = ['postProviders']

/** `POST` operations that are idempotent according to their description. */
export const repeatable: ReadonlySet<string> = new Set(['postProviderPaymentRefunds', 'postTabRequestCharge'])

/** Names of the types of JSON Lines responses, which the document describes as text. */
export const lineTypes: Readonly<Record<string, string>> = { getProviderReceipts: 'ReceiptLine' }
