import type { z } from '@hono/zod-openapi'
import type { apiKey, issuedApiKey } from '../../../routes/apiKeys.ts'
import type { endpointList } from '../../../routes/endpoints.ts'
import type { failures } from '../../../routes/failures.ts'
import type { home } from '../../../routes/home.ts'
import type { networkActivity, networkBatches } from '../../../routes/network.ts'
import type { operation } from '../../../routes/operation.ts'
import type { operatorProviders } from '../../../routes/operatorProviders.ts'
import type { payment } from '../../../routes/payments.ts'
import type { providerBatches } from '../../../routes/providerBatches.ts'
import type { providerPayments } from '../../../routes/providerPayments.ts'
import type { account, provider, providerWithKey } from '../../../routes/providers.ts'
import type { queue } from '../../../routes/queue.ts'
import type { jwks, receipt } from '../../../routes/receipts.ts'
import type { refunds } from '../../../routes/refunds.ts'
import type { registryChange } from '../../../routes/registryChanges.ts'
import type { revenue } from '../../../routes/revenue.ts'
import type { settlementBatches } from '../../../routes/settlementBatches.ts'
import type { statement } from '../../../routes/statement.ts'
import type { timeline } from '../../../routes/timeline.ts'
import type { upstream, upstreamWithSecret } from '../../../routes/upstream.ts'
import type { usage } from '../../../routes/usage.ts'
import type { wallet } from '../../../routes/wallets.ts'
import type { delivery, webhook, webhookWithSecret } from '../../../routes/webhooks.ts'

/* What the gateway answers, as its own schemas say. */

export type Account = z.infer<typeof account>
export type Provider = z.infer<typeof provider>
export type EndpointList = z.infer<typeof endpointList>
export type Endpoint = EndpointList['endpoints'][number]
export type Wallet = z.infer<typeof wallet>
export type WalletList = { wallets: Wallet[] }
export type ApiKey = z.infer<typeof apiKey>
export type IssuedApiKey = z.infer<typeof issuedApiKey>
export type Webhook = z.infer<typeof webhook>
export type WebhookWithSecret = z.infer<typeof webhookWithSecret>
export type Delivery = z.infer<typeof delivery>
export type Deliveries = { deliveries: Delivery[]; cursor: string | null }
export type RegistryChange = z.infer<typeof registryChange>
export type RegistryChanges = { changes: RegistryChange[]; cursor: string | null }
export type ProviderWithKey = z.infer<typeof providerWithKey>
export type Operation = z.infer<typeof operation>
export type OperatedNetwork = Operation['networks'][number]
export type NetworkActivity = z.infer<typeof networkActivity>
export type NetworkBatches = z.infer<typeof networkBatches>
export type FiringAlert = Operation['alerts'][number]
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
export type Usage = z.infer<typeof usage>
export type UsageRow = Usage['usage'][number]
export type ProviderPayments = z.infer<typeof providerPayments>
export type ProviderPayment = ProviderPayments['payments'][number]
export type Failures = z.infer<typeof failures>
export type Failure = Failures['failures'][number]
export type Queue = z.infer<typeof queue>
export type WalletQueue = Queue['wallets'][number]
export type Batches = z.infer<typeof providerBatches>
export type Batch = Batches['batches'][number]
export type Timeline = z.infer<typeof timeline>
