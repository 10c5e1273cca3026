import type { z } from '@hono/zod-openapi'
import type * as schemas from '../../../http/schemas.ts'
import type * as settling from '../../../routes/settlingSchemas.ts'
import type * as views from '../../../routes/viewSchemas.ts'

/* What the gateway answers, as its own schemas say. */

export type Provider = z.infer<typeof schemas.provider>
export type EndpointList = { endpoints: z.infer<typeof schemas.endpoint>[] }
export type Payment = z.infer<typeof schemas.payment>
export type Receipt = z.infer<typeof schemas.receipt>
export type Jwks = z.infer<typeof schemas.jwks>
export type TransactionBatches = z.infer<typeof schemas.batches>
export type Revenue = z.infer<typeof views.revenue>
export type RevenueRow = Revenue['revenue'][number]
export type Usage = z.infer<typeof views.usage>
export type UsageRow = Usage['usage'][number]
export type ProviderPayments = z.infer<typeof views.payments>
export type ProviderPayment = ProviderPayments['payments'][number]
export type Failures = z.infer<typeof views.failures>
export type Failure = Failures['failures'][number]
export type Queue = z.infer<typeof settling.queue>
export type WalletQueue = Queue['wallets'][number]
export type Batches = z.infer<typeof settling.batches>
export type Batch = Batches['batches'][number]
export type Timeline = z.infer<typeof settling.timeline>
