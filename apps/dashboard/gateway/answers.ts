import type { z } from '@hono/zod-openapi'
import type { delivery } from '@tollkeeper/api/notifications/deliveryLog'
import type { webhook, webhookWithSecret } from '@tollkeeper/api/notifications/webhookRoutes'
import type { jwks, receipt } from '@tollkeeper/api/payments/receipts/route'
import type { refunds } from '@tollkeeper/api/payments/refunds/route'
import type { apiKey, issuedApiKey } from '@tollkeeper/api/registry/apiKeyRoutes'
import type { registryChange } from '@tollkeeper/api/registry/changeRoutes'
import type { endpointCheck, endpointList } from '@tollkeeper/api/registry/endpointRoutes'
import type { hook, hookTest, hookWithSecret } from '@tollkeeper/api/registry/hookRoutes'
import type { account, provider, providerWithKey } from '@tollkeeper/api/registry/providerRoutes'
import type { upstream, upstreamWithSecret } from '@tollkeeper/api/registry/upstreamRoutes'
import type { wallet } from '@tollkeeper/api/registry/walletRoutes'
import type { attention } from '@tollkeeper/api/views/attention'
import type { discoveryResource, discoverySearch } from '@tollkeeper/api/views/discovery'
import type { endpointActivity } from '@tollkeeper/api/views/endpointActivity'
import type { failures } from '@tollkeeper/api/views/failures'
import type { home } from '@tollkeeper/api/views/home'
import type { networkActivity, networkBatches } from '@tollkeeper/api/views/network'
import type { networkList } from '@tollkeeper/api/views/networks'
import type { operation } from '@tollkeeper/api/views/operation'
import type { operatorProviders } from '@tollkeeper/api/views/operatorProviders'
import type { payer, payerActivity, payers } from '@tollkeeper/api/views/payers'
import type { payment } from '@tollkeeper/api/views/payments'
import type { providerBatches } from '@tollkeeper/api/views/providerBatches'
import type { paymentTotals, providerPayments } from '@tollkeeper/api/views/providerPayments'
import type { queue } from '@tollkeeper/api/views/queue'
import type { requeued } from '@tollkeeper/api/views/requeue'
import type { revenue } from '@tollkeeper/api/views/revenue'
import type { settlementBatches } from '@tollkeeper/api/views/settlementBatches'
import type { splitters } from '@tollkeeper/api/views/splitters'
import type { statement } from '@tollkeeper/api/views/statement'
import type { providerTabs } from '@tollkeeper/api/views/tabList'
import type { timeline } from '@tollkeeper/api/views/timeline'
import type { usage } from '@tollkeeper/api/views/usage'

/* Types of the gateway's responses, derived from its own schemas. */

export type Account = z.infer<typeof account>
export type Provider = z.infer<typeof provider>
export type EndpointList = z.infer<typeof endpointList>
export type Endpoint = EndpointList['endpoints'][number]
export type EndpointCheck = z.infer<typeof endpointCheck>
export type DiscoveryResource = z.infer<typeof discoveryResource>
export type DiscoverySearch = z.infer<typeof discoverySearch>
export type Wallet = z.infer<typeof wallet>
export type WalletList = { wallets: Wallet[] }
export type ApiKey = z.infer<typeof apiKey>
export type IssuedApiKey = z.infer<typeof issuedApiKey>
export type Webhook = z.infer<typeof webhook>
export type WebhookWithSecret = z.infer<typeof webhookWithSecret>
export type Delivery = z.infer<typeof delivery>
export type RegistryChange = z.infer<typeof registryChange>
export type ProviderWithKey = z.infer<typeof providerWithKey>
export type Operation = z.infer<typeof operation>
export type OperatedNetwork = Operation['networks'][number]
export type NetworkList = z.infer<typeof networkList>
export type NetworkActivity = z.infer<typeof networkActivity>
export type NetworkBatches = z.infer<typeof networkBatches>
export type OperatorProviders = z.infer<typeof operatorProviders>
export type AcceptHook = z.infer<typeof hook>
export type AcceptHookWithSecret = z.infer<typeof hookWithSecret>
export type AcceptHookTest = z.infer<typeof hookTest>
export type Upstream = z.infer<typeof upstream>
export type UpstreamWithSecret = z.infer<typeof upstreamWithSecret>
export type Home = z.infer<typeof home>
export type Payment = z.infer<typeof payment>
export type Pass = NonNullable<Payment['pass']>
export type Receipt = z.infer<typeof receipt>
export type Refunds = z.infer<typeof refunds>
export type Refund = Refunds['refunds'][number]
export type Jwks = z.infer<typeof jwks>
export type TransactionBatches = z.infer<typeof settlementBatches>
export type Revenue = z.infer<typeof revenue>
export type RevenueRow = Revenue['revenue'][number]
export type Statement = z.infer<typeof statement>
export type StatementRow = Statement['networks'][number]
export type EndpointActivity = z.infer<typeof endpointActivity>
export type EndpointFigures = EndpointActivity['activity'][number]
export type Payers = z.infer<typeof payers>
export type Payer = Payers['payers'][number]
export type PayerDetail = z.infer<typeof payer>
export type PayerActivity = z.infer<typeof payerActivity>
export type UsageRow = z.infer<typeof usage>['usage'][number]
export type ProviderPayment = z.infer<typeof providerPayments>['payments'][number]
export type PaymentTotals = z.infer<typeof paymentTotals>
export type RequeuedMany = z.infer<typeof requeued>
export type RequeueResult = RequeuedMany['results'][number]
export type ProviderTabs = z.infer<typeof providerTabs>
export type ProviderTab = ProviderTabs['tabs'][number]
export type Splitters = z.infer<typeof splitters>
export type SplitterBalance = Splitters['splitters'][number]
export type Failures = z.infer<typeof failures>
export type Failure = Failures['failures'][number]
export type Queue = z.infer<typeof queue>
export type WalletQueue = Queue['wallets'][number]
export type Attention = z.infer<typeof attention>
export type Batches = z.infer<typeof providerBatches>
export type Batch = Batches['batches'][number]
export type Timeline = z.infer<typeof timeline>
