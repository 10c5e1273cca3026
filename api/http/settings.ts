import type { PayerCaps, TabCredit } from '@tollkeeper/ledger/acceptance/payers'
import type { TriggerSettings } from '@tollkeeper/ledger/queue/triggers'
import type { MacaroonSecret } from '@tollkeeper/sdk/protocol/macaroon'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { FeeSchedule } from '@tollkeeper/sdk/protocol/tier'
import type { Address } from 'viem'

export type MailSettings = {
  /** `smtp://` or `smtps://`, with user and password if the server requires them. */
  url: string
  /** Sender address of mail. */
  from: string
}

/** Requests per minute for one client address; each kind is counted separately. */
export type RateLimits = {
  challenge: number
  verify: number
  /** Attempts to register a provider, which need no key. */
  register: number
  /** Requests that are neither challenges, nor verifications, nor registrations. */
  other: number
  /** The limit of one payer. A payment counts only after its signatures were found valid, so no one else can use it up. */
  payer: number
  /** Factor by which an API key's limit, for its requests from all addresses, exceeds the limit of one address. */
  keyFactor: number
}

/** Who may register as a provider. `limits`: providers per hour, from one client address and in total; null: any number. */
export type Registration =
  | { mode: 'open'; limits: { address: number; total: number } | null }
  | { mode: 'token'; token: string }
  | { mode: 'closed' }

/** Limits of the requests that the proxy sends to providers' own servers. */
export type UpstreamSettings = {
  /** Allows private addresses, and `http:`. */
  allowPrivate: boolean
  /** Maximum size of a request's body in bytes. */
  maxBodyBytes: number
  /** Timeout for opening the connection. */
  connectTimeoutMs: number
  /** Timeout from the last byte of the request to the first byte of the answer. */
  answerTimeoutMs: number
  /** Timeout between two bytes of the answer, and between two parts of a body that the upstream reads while it answers. */
  idleTimeoutMs: number
  /** Timeout for reading the rest of a request's body, once the answer has begun. */
  uploadTimeoutMs: number
  /** Maximum concurrent requests per provider. */
  concurrency: number
}

export type TabSettings = {
  /** Maximum debt of a payer. */
  credit: TabCredit
  /** Maximum that all payers together may borrow in a UTC day beyond their earned credit, in USDC base units. */
  budget: bigint
  /** Maximum number of hours for which a tab stays open if its payer has earned the credit for it. */
  earnedHours: number
  /** Share of the platform's part, in basis points, that the settling keeper receives. */
  rewardShare: number
}

/** The operator's details on fee documents. */
export type OperatorIdentity = { name: string | null; address: string | null; taxId: string | null }

export type FiatSettings = {
  /** A CSV file with the columns date, currency, rate and source. */
  ratesFile: string
  /** The default currency, ISO 4217. */
  currency: string
}

/** The gateway's settings, which config.ts reads from the environment. */
export type GatewaySettings = {
  /** The gateway's public URL, without a slash at the end. */
  issuer: string
  /** The recipient of every fee, lower-case. */
  platformWallet: Address
  feeSchedule: FeeSchedule
  /** Minimum prices in USDC base units by network. A value has an effect only if it is above the network's own minimum. */
  minimumPrices: Partial<Record<NetworkName, bigint>>
  /** Seconds for which the authorizations that x402 clients sign should be valid. */
  offerTimeoutSeconds: number
  /** The first secret signs new macaroons. Macaroons signed with any of these secrets are accepted. */
  macaroonSecrets: readonly MacaroonSecret[]
  /** Unix seconds: macaroons minted earlier are refused. */
  macaroonNotBefore: number
  checkBalance: boolean
  balanceTtlMs: number
  payerCaps: PayerCaps
  /** The settings for tabs; null: nothing is sold on tabs. */
  tabs: TabSettings | null
  /** Maximum amount in USDC base units that may be unsettled for a provider; null: no limit. */
  providerCap: bigint | null
  contractTimeoutMs: number
  /** Minimum price in USDC base units from which `/verify` answers only once the settlement is mined; null: never. */
  settleBeforeServe: bigint | null
  /** Maximum time in ms for which `/verify` waits for this settlement. */
  settleBeforeServeTimeoutMs: number
  /** Thresholds of the keeper, for the estimates in the settlement views. */
  triggers: TriggerSettings
  /** USDC base units for 10^18 wei, if there is no price feed. */
  gasTokenUsd: bigint
  /** USDC base units per UTC day for the gas of payments without a fee. All providers that have no grant share this amount. */
  gasAllowance: bigint
  /** Maximum ratio of a payment's gas cost to its fee, as in the keeper's settings; null: the network's default. */
  gasPerFee: bigint | null
  /** Wei, as in the keeper's settings; null: the node's suggestion. Used to estimate whether settling is expensive. */
  priorityFeePerGas: bigint | null
  /** Maximum lag of the record in blocks. A greater lag means that the indexer has stopped or is rebuilding the index. */
  maxIndexLagBlocks: bigint
  /** Whether due batches are published so that anyone can settle them. */
  publicQueue: boolean
  /** Number of days for which a payment's presentation is kept after the payment is final. */
  retentionDays: number
  /** Whether the catalog lists what is sold here. */
  discovery: boolean
  /** Null: no limits. */
  rateLimits: RateLimits | null
  registration: Registration
  /** Number of trusted reverse proxies, that is, how many trailing X-Forwarded-For entries to trust. */
  trustedProxies: number
  /** Whether webhooks may use private addresses and `http:`, for local development. */
  webhookAllowPrivate: boolean
  /** SHA-256 hashes of the keys that open the operator's views. */
  operatorKeyHashes: readonly Buffer[]
  /** Null: no mail is sent. */
  mail: MailSettings | null
  /** Settings of the gateway's proxy, `/p/{providerId}/…`. */
  upstream: UpstreamSettings
  /** The token that Prometheus sends to read the metrics; null: anyone may read them. */
  metricsToken: string | null
  /** The issuer of fee documents; null fields: not configured. */
  operator: OperatorIdentity
  /** Source of fiat rates for bookkeeping; null: none, so there are no fiat values. */
  fiat: FiatSettings | null
  /** URL of a trace's page, with `{traceId}` for its id; null: none. */
  traceUrlTemplate: string | null
}
