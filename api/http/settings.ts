import type { Address } from 'viem'
import type { PayerCaps, TabCredit } from '#ledger/acceptance/payers'
import type { TriggerSettings } from '#ledger/queue/triggers'
import type { MacaroonSecret } from '#protocol/macaroon'
import type { NetworkName } from '#protocol/networks'
import type { FeeSchedule } from '#protocol/tier'

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
  /** Time limit for the connection to stand. */
  connectTimeoutMs: number
  /** Time limit from the last byte of the request to the first byte of the answer. */
  answerTimeoutMs: number
  /** Time limit between two bytes of the answer. */
  idleTimeoutMs: number
  /** Requests of one provider at a time. */
  concurrency: number
}

export type TabSettings = {
  /** What a payer may owe. */
  credit: TabCredit
  /** USDC base units that payers of whom nothing ever settled may be lent together on a UTC day. */
  budget: bigint
  /** Basis points of the platform's part that go to whoever settles. */
  rewardShare: number
}

/** What the gateway is told; config.ts reads it from the environment. */
export type GatewaySettings = {
  /** The gateway's public URL, without a slash at the end. */
  issuer: string
  /** Where every fee goes, lower-case. */
  platformWallet: Address
  feeSchedule: FeeSchedule
  /** USDC base units, where it is above the network's own. */
  minimumPrices: Partial<Record<NetworkName, bigint>>
  /** How many seconds clients of x402 are asked to sign for. */
  offerTimeoutSeconds: number
  /** The first one mints; all of them verify. */
  macaroonSecrets: readonly MacaroonSecret[]
  /** Unix seconds: what was minted earlier is refused. */
  macaroonNotBefore: number
  checkBalance: boolean
  balanceTtlMs: number
  payerCaps: PayerCaps
  /** How buyers are trusted who buy on tabs; null: nothing is sold on tabs. */
  tabs: TabSettings | null
  /** USDC base units that may be unsettled for a provider; null: any. */
  providerCap: bigint | null
  contractTimeoutMs: number
  /** USDC base units from which on `/verify` answers only after the settlement is mined; null: never. */
  settleBeforeServe: bigint | null
  /** How long it waits for that. */
  settleBeforeServeTimeoutMs: number
  /** Thresholds of the keeper, for the estimates in the settlement views. */
  triggers: TriggerSettings
  /** USDC base units for 10^18 wei, where there is no price feed. */
  gasTokenUsd: bigint
  /** USDC base units a UTC day for the gas of all who pay no fee for it and have no grant. */
  gasAllowance: bigint
  /** What the keeper is told: how many times its fee a payment's gas may cost; null: the network's default. */
  gasPerFee: bigint | null
  /** Wei; what the keeper is told, null: what the node suggests. For whether settling is dear. */
  priorityFeePerGas: bigint | null
  /** Views refuse beyond: the index is being rebuilt. */
  maxIndexLagBlocks: bigint
  /** Due batches are published for anybody to settle. */
  publicQueue: boolean
  /** How long we keep what a payment was presented with after the payment is over. */
  retentionDays: number
  /** Whether what is sold is listed for buyers to find. */
  discovery: boolean
  /** Null: none. */
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
  /** What Prometheus presents to read the metrics; null: anyone may. */
  metricsToken: string | null
  /** Where a trace is shown: `{traceId}` stands for its id. Null: nowhere. */
  traceUrlTemplate: string | null
}
