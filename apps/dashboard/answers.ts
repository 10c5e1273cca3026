import type { z } from '@hono/zod-openapi'
import type { jwks, receipt } from '../../api/payments/receipts/route.ts'
import type { refunds } from '../../api/payments/refunds/route.ts'
import type { apiKey, issuedApiKey } from '../../api/registry/apiKeyRoutes.ts'
import type { registryChange } from '../../api/registry/changeRoutes.ts'
import type { endpointList } from '../../api/registry/endpointRoutes.ts'
import type { account, provider, providerWithKey } from '../../api/registry/providerRoutes.ts'
import type { upstream, upstreamWithSecret } from '../../api/registry/upstreamRoutes.ts'
import type { wallet } from '../../api/registry/walletRoutes.ts'
import type { delivery } from '../../api/telling/deliveryLog.ts'
import type { webhook, webhookWithSecret } from '../../api/telling/webhookRoutes.ts'
import type { discoveryResource, discoverySearch } from '../../api/views/discovery.ts'
import type { failures } from '../../api/views/failures.ts'
import type { home } from '../../api/views/home.ts'
import type { networkActivity, networkBatches } from '../../api/views/network.ts'
import type { operation } from '../../api/views/operation.ts'
import type { operatorProviders } from '../../api/views/operatorProviders.ts'
import type { payment } from '../../api/views/payments.ts'
import type { providerBatches } from '../../api/views/providerBatches.ts'
import type { providerPayments } from '../../api/views/providerPayments.ts'
import type { queue } from '../../api/views/queue.ts'
import type { revenue } from '../../api/views/revenue.ts'
import type { settlementBatches } from '../../api/views/settlementBatches.ts'
import type { statement } from '../../api/views/statement.ts'
import type { timeline } from '../../api/views/timeline.ts'
import type { usage } from '../../api/views/usage.ts'

/* The gateway's answers, typed by its own schemas. */

export type Account = z.infer<typeof account>
export type Provider = z.infer<typeof provider>
export type EndpointList = z.infer<typeof endpointList>
export type Endpoint = EndpointList['endpoints'][number]
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
export type NetworkActivity = z.infer<typeof networkActivity>
export type NetworkBatches = z.infer<typeof networkBatches>
export type OperatorProviders = z.infer<typeof operatorProviders>
export type Upstream = z.infer<typeof upstream>
export type UpstreamWithSecret = z.infer<typeof upstreamWithSecret>
export type Home = z.infer<typeof home>
export type Payment = z.infer<typeof payment>
export type Receipt = z.infer<typeof receipt>
export type Refunds = z.infer<typeof refunds>
export type Refund = Refunds['refunds'][number]
export type Jwks = z.infer<typeof jwks>
export type TransactionBatches = z.infer<typeof settlementBatches>
export type Revenue = z.infer<typeof revenue>
export type RevenueRow = Revenue['revenue'][number]
export type Statement = z.infer<typeof statement>
export type StatementRow = Statement['networks'][number]
export type UsageRow = z.infer<typeof usage>['usage'][number]
export type ProviderPayment = z.infer<typeof providerPayments>['payments'][number]
export type Failures = z.infer<typeof failures>
export type Failure = Failures['failures'][number]
export type Queue = z.infer<typeof queue>
export type WalletQueue = Queue['wallets'][number]
export type Batches = z.infer<typeof providerBatches>
export type Batch = Batches['batches'][number]
export type Timeline = z.infer<typeof timeline>
