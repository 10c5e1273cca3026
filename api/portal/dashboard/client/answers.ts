import type { z } from '@hono/zod-openapi'
import type { endpointList } from '../../../routes/endpoints.ts'
import type { failures } from '../../../routes/failures.ts'
import type { payment } from '../../../routes/payments.ts'
import type { providerBatches } from '../../../routes/providerBatches.ts'
import type { providerPayments } from '../../../routes/providerPayments.ts'
import type { provider } from '../../../routes/providers.ts'
import type { queue } from '../../../routes/queue.ts'
import type { jwks, receipt } from '../../../routes/receipts.ts'
import type { revenue } from '../../../routes/revenue.ts'
import type { settlementBatches } from '../../../routes/settlementBatches.ts'
import type { timeline } from '../../../routes/timeline.ts'
import type { usage } from '../../../routes/usage.ts'

/* What the gateway answers, as its own schemas say. */

export type Provider = z.infer<typeof provider>
export type EndpointList = z.infer<typeof endpointList>
export type Payment = z.infer<typeof payment>
export type Receipt = z.infer<typeof receipt>
export type Jwks = z.infer<typeof jwks>
export type TransactionBatches = z.infer<typeof settlementBatches>
export type Revenue = z.infer<typeof revenue>
export type RevenueRow = Revenue['revenue'][number]
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
