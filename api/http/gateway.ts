import type { Address } from 'viem'
import { checkSignaturesHere, type PayerSignatures } from '#chain/payerSignatures'
import type { ServedNetwork } from '#chain/servedNetworks'
import { findKeyOwner } from '#ledger/apiKeys'
import type { Database } from '#ledger/database'
import type { TriggerSettings } from '#ledger/triggers'
import { createRateLimiter, type RateLimiter } from '#process/rateLimiter'
import type { MacaroonSecret } from '#protocol/macaroon'
import { isNetworkName, type NetworkName, networkNames } from '#protocol/networks'
import type { FeeSchedule } from '#protocol/tier'
import type { Logger } from '../log.ts'
import { type ApiMetrics, createApiMetrics } from '../metrics.ts'
import { createUsageCounters, type UsageCounters } from '../portal/usage/usageCounters.ts'
import { type AddressGuard, createAddressGuard } from '../portal/webhooks/addressGuard.ts'
import type { ReceiptKeys } from '../receipts/keys.ts'
import { Refusal } from '../refusal.ts'
import { createKeyOwners, type KeyOwners } from '../registry/keyOwners.ts'
import { createOffers, type Offers } from '../registry/offers.ts'
import { createPayees, type Payees } from '../registry/payees.ts'
import { type ChainReads, createChainReads } from '../verification/chainReads.ts'
import { createPayers, type PayerCaps, type Payers } from '../verification/payers.ts'
import { createProviderCap } from '../verification/providerCap.ts'
import { createSettleBeforeServe } from '../verification/settleBeforeServe.ts'
import { createVerifyPayment, type VerifyAnswer, type VerifyRequest } from '../verification/verifyPayment.ts'
import { type RateLimits, tooMany } from './limitRate.ts'

/** What the gateway is told; config.ts reads it from the environment. */
export type GatewaySettings = {
  /** The gateway's public URL, without a slash at the end. */
  issuer: string
  /** Where every fee goes, lower-case. */
  platformWallet: Address
  feeSchedule: FeeSchedule
  /** USDC base units, where it is above the network's own. */
  minimumPrices: Partial<Record<NetworkName, bigint>>
  /** The first one mints; all of them verify. */
  macaroonSecrets: readonly MacaroonSecret[]
  /** Unix seconds: what was minted earlier is refused. */
  macaroonNotBefore: number
  checkBalance: boolean
  balanceTtlMs: number
  payerCaps: PayerCaps
  /** USDC base units that may be unsettled for a provider; null: any. */
  providerCap: bigint | null
  contractTimeoutMs: number
  /** USDC base units from which on `/verify` answers only after the settlement is mined; null: never. */
  settleBeforeServe: bigint | null
  /** For how long it waits for that. */
  settleBeforeServeTimeoutMs: number
  /** Thresholds of the keeper, for the estimates in the settlement views. */
  triggers: TriggerSettings
  /** USDC base units for 10^18 wei, where there is no price feed. */
  gasTokenUsd: bigint
  /** Wei; what the keeper is told, null: what the node suggests. For whether settling is dear. */
  priorityFeePerGas: bigint | null
  /** Due batches are published for anybody to settle. */
  publicQueue: boolean
  /** Null: none. */
  rateLimits: RateLimits | null
  /** How many proxies in front of the gateway write X-Forwarded-For. */
  trustedProxies: number
  /** Bytes of a request's body, at most. */
  maxBodyBytes: number
  /** Lets webhooks go to private addresses and by `http:`, for local development. */
  webhookAllowPrivate: boolean
  /** What Prometheus presents to read the metrics; null: anyone may. */
  metricsToken: string | null
}

export type GatewayDeps = {
  database: Database
  /** The first one is the default where a request names none. */
  networks: ServedNetwork[]
  settings: GatewaySettings
  receiptKeys: ReceiptKeys
  log: Logger
  now?: () => number
  /** Default: by the settings, with the system's resolver. */
  addressGuard?: AddressGuard
  /** Default: counters that are flushed only when asked. */
  usage?: UsageCounters
  /** Default: a registry of its own. */
  metrics?: ApiMetrics
  /** Default: on the thread that serves. */
  payerSignatures?: PayerSignatures
}

export type GatewayNetwork = { served: ServedNetwork; reads: ChainReads; payees: Payees; payers: Payers }

/** What the routes share: dependencies, and the caches over them. */
export type Gateway = {
  database: Database
  settings: GatewaySettings
  receiptKeys: ReceiptKeys
  log: Logger
  now: () => number
  networks: ReadonlyMap<number, GatewayNetwork>
  defaultNetwork: GatewayNetwork
  offers: Offers
  keyOwners: KeyOwners
  rateLimiter: RateLimiter
  verifyPayment: (request: VerifyRequest) => Promise<VerifyAnswer>
  addressGuard: AddressGuard
  usage: UsageCounters
  metrics: ApiMetrics
}

/** For how long what another process registered or revoked may go unseen here. */
const registryTtlMs = 2_000

export function createGateway({
  database,
  networks: servedNetworks,
  settings,
  receiptKeys,
  log,
  now = Date.now,
  addressGuard = createAddressGuard({ allowPrivate: settings.webhookAllowPrivate }),
  usage = createUsageCounters({ database, log, now: () => new Date(now()) }),
  metrics = createApiMetrics(),
  payerSignatures = checkSignaturesHere,
}: GatewayDeps): Gateway {
  const networks = new Map(
    servedNetworks.map((served): [number, GatewayNetwork] => {
      const reads = createChainReads(served)
      const payees = createPayees(served, settings.platformWallet, now)
      const payers = createPayers(served, reads, {
        database,
        checkBalance: settings.checkBalance,
        caps: settings.payerCaps,
        balanceTtlMs: settings.balanceTtlMs,
        now,
      })
      return [served.network.chainId, { served, reads, payees, payers }]
    }),
  )
  const [defaultNetwork] = networks.values()
  if (defaultNetwork === undefined) throw new TypeError('A gateway needs at least one network')

  const offers = createOffers({ database, ttlMs: registryTtlMs, now })
  const rateLimiter = createRateLimiter({ database, log, now })
  return {
    database,
    settings,
    receiptKeys,
    log,
    now,
    networks,
    defaultNetwork,
    offers,
    addressGuard,
    usage,
    metrics,
    rateLimiter,
    keyOwners: createKeyOwners((key) => findKeyOwner(database, key), registryTtlMs, now),
    verifyPayment: createVerifyPayment({
      database,
      networks,
      offers,
      countPayer: (payer) => {
        if (settings.rateLimits === null) return
        const allowed = rateLimiter.count(`payer:${payer}`, settings.rateLimits.payer)
        if (!allowed.isAllowed) throw tooMany(allowed)
      },
      providerCap: createProviderCap({ database, cap: settings.providerCap, now }),
      settleBeforeServe: createSettleBeforeServe({
        database,
        fromPrice: settings.settleBeforeServe,
        timeoutMs: settings.settleBeforeServeTimeoutMs,
        now,
      }),
      issuer: settings.issuer,
      macaroonSecrets: settings.macaroonSecrets,
      macaroonNotBefore: settings.macaroonNotBefore,
      receiptKeys,
      payerSignatures,
      feeSchedule: settings.feeSchedule,
      contractTimeoutMs: settings.contractTimeoutMs,
      now,
    }),
  }
}

/**
 * The served network of a name; the default one without a name.
 *
 * @throws {Refusal} `unknown_network`, `network_not_served`
 */
export function networkOf({ networks, defaultNetwork }: Gateway, name: string | undefined): GatewayNetwork {
  if (name === undefined) return defaultNetwork
  if (!isNetworkName(name)) {
    throw new Refusal(
      'unknown_network',
      `Expected one of ${networkNames.join(', ')}, got "${name.slice(0, 80)}"`,
    )
  }
  for (const network of networks.values()) if (network.served.network.name === name) return network
  throw new Refusal('network_not_served', `${name} is not served by this gateway`)
}

/** A chain id that stands in our tables as a network's name; it may have been served once and be so no longer. */
export function requireNetwork({ networks }: Gateway, chainId: number): GatewayNetwork {
  const network = networks.get(chainId)
  if (network === undefined)
    throw new Refusal('network_not_served', `Chain ${chainId} is not served any more`)
  return network
}
