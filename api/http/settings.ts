import type { PayerCaps, TabCredit } from '@tollkeeper/ledger/acceptance/payers'
import type { TriggerSettings } from '@tollkeeper/ledger/queue/triggers'
import type { MacaroonSecret } from '@tollkeeper/sdk/protocol/macaroon'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { FeeSchedule } from '@tollkeeper/sdk/protocol/tier'
import type { Address } from 'viem'

export type MailSettings = {
  /** `smtp://` or `smtps://`, with user and password where the server wants them. */
  url: string
  /** Address that mail comes from. */
  from: string
}

/** Requests a minute for one client address; each kind is counted by itself. */
export type RateLimits = {
  challenge: number
  verify: number
  /** Attempts to register a provider, which needs no key. */
  register: number
  /** Everything else. */
  other: number
  /** The limit of one payer. We count after its signatures were found good, so nobody else can use it up. */
  payer: number
  /** How many times as much an API key may ask for, from all its addresses together. */
  keyFactor: number
}

/** Who may register as a provider. `limits`: providers an hour, from one client address and in all; null: any number. */
export type Registration =
  | { mode: 'open'; limits: { address: number; total: number } | null }
  | { mode: 'token'; token: string }
  | { mode: 'closed' }

/** Limits of the requests that the proxy sends to providers' own servers. */
export type UpstreamSettings = {
  /** Lets them have private addresses, and `http:`. */
  allowPrivate: boolean
  /** Bytes of a request's body, at most. */
  maxBodyBytes: number
  /** Time limit for opening the connection. */
  connectTimeoutMs: number
  /** Time limit from the last byte of the request to the first byte of the answer. */
  answerTimeoutMs: number
  /** Time limit between two bytes of the answer, and between two parts of a body that the upstream takes while it answers. */
  idleTimeoutMs: number
  /** Time limit for taking the rest of a request's body, once the answer has begun. */
  uploadTimeoutMs: number
  /** Most requests of one provider at a time. */
  concurrency: number
}

export type TabSettings = {
  /** What a payer may owe. */
  credit: TabCredit
  /** USDC base units that all payers together may owe of what they were lent on a UTC day, beyond what each has earned. */
  budget: bigint
  /** How many hours a tab may stay open while its payer has earned the credit for it. */
  earnedHours: number
  /** Basis points of the platform's part that go to whoever settles. */
  rewardShare: number
}

/** The gateway's settings, which config.ts reads from the environment. */
export type GatewaySettings = {
  /** The gateway's public URL, without a slash at the end. */
  issuer: string
  /** The recipient of every fee, lower-case. */
  platformWallet: Address
  feeSchedule: FeeSchedule
  /** USDC base units, if above the network's own minimum. */
  minimumPrices: Partial<Record<NetworkName, bigint>>
  /** How many seconds an offer that x402's clients sign is valid. */
  offerTimeoutSeconds: number
  /** The first one mints; all of them verify. */
  macaroonSecrets: readonly MacaroonSecret[]
  /** Unix seconds: macaroons minted earlier are refused. */
  macaroonNotBefore: number
  checkBalance: boolean
  balanceTtlMs: number
  payerCaps: PayerCaps
  /** The trust in buyers on tabs; null: nothing is sold on tabs. */
  tabs: TabSettings | null
  /** USDC base units that may be unsettled for a provider; null: any. */
  providerCap: bigint | null
  contractTimeoutMs: number
  /** USDC base units from which `/verify` answers only once the settlement is mined; null: never. */
  settleBeforeServe: bigint | null
  /** How long it waits for that. */
  settleBeforeServeTimeoutMs: number
  /** Thresholds of the keeper, for the estimates in the settlement views. */
  triggers: TriggerSettings
  /** USDC base units for 10^18 wei, if there is no price feed. */
  gasTokenUsd: bigint
  /** USDC base units a UTC day for the gas of all who pay no fee and have no grant. */
  gasAllowance: bigint
  /** How many times its fee a payment's gas may cost, as in the keeper's settings; null: the network's default. */
  gasPerFee: bigint | null
  /** Wei, as in the keeper's settings; null: the node's suggestion. For whether settling is dear. */
  priorityFeePerGas: bigint | null
  /** Beyond this the record counts as behind: the index is being rebuilt. */
  maxIndexLagBlocks: bigint
  /** Due batches are published for anybody to settle. */
  publicQueue: boolean
  /** How long we keep a payment's presentation after the payment is over. */
  retentionDays: number
  /** Whether the catalogue lists what is sold, for buyers. */
  discovery: boolean
  /** Null: there are no limits. */
  rateLimits: RateLimits | null
  registration: Registration
  /** How many proxies in front of the gateway write X-Forwarded-For. */
  trustedProxies: number
  /** Lets webhooks go to private addresses and by `http:`, for local development. */
  webhookAllowPrivate: boolean
  /** SHA-256 of the keys that open the operator's views. */
  operatorKeyHashes: readonly Buffer[]
  /** Null: no mail is sent. */
  mail: MailSettings | null
  /** Settings of the gateway's proxy, `/p/{providerId}/…`. */
  upstream: UpstreamSettings
  /** The token that Prometheus sends to read the metrics; null: anyone may. */
  metricsToken: string | null
  /** URL of a trace's page, with `{traceId}` for its id. Null: there is none. */
  traceUrlTemplate: string | null
}
