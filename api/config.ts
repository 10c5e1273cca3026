import { availableParallelism } from 'node:os'
import { contractWalletTimeoutMs } from '@tollkeeper/chain/contractSignature'
import { readGasPerFee, readNetworkSettings, readPriorityFee } from '@tollkeeper/chain/networkSettings'
import { balanceTtlMs } from '@tollkeeper/ledger/acceptance/payers'
import { maxIndexLagBlocks } from '@tollkeeper/ledger/facts/recordState'
import { readTriggerSettings } from '@tollkeeper/ledger/queue/triggers'
import { readDatabaseUrls } from '@tollkeeper/ledger/store/pooler'
import {
  ConfigError,
  type Environment,
  readVariable,
  requireTogether,
  requireVariable,
} from '@tollkeeper/runtime/env'
import { readTraceSettings } from '@tollkeeper/runtime/trace'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { offerTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { fixedRateLimits } from './http/limitRate.ts'
import type {
  FiatSettings,
  GatewaySettings,
  MailSettings,
  RateLimits,
  Registration,
  TabSettings,
} from './http/settings.ts'
import { upstreamLimits } from './payments/proxy/forward.ts'
import { registrationsAnHour } from './registry/registration.ts'

/** The error names the variable and what was expected. It repeats the received value, except if that is a secret. */
export function readApiConfig(env: Environment) {
  requireTogether(
    () => readDatabaseUrls(env),
    () => readNetworkSettings(env),
    () => requireVariable(env, 'PLATFORM_WALLET'),
    () => requireVariable(env, 'MACAROON_SECRETS'),
  )
  const host = readVariable(env, 'API_HOST')
  const port = readVariable(env, 'API_PORT')
  return {
    host,
    port,
    ...readDatabaseUrls(env),
    /** The tab store's own database; null: tabs are stored in the main database. */
    tabDatabaseUrl: readVariable(env, 'TABS_DATABASE_URL'),
    databasePool: readVariable(env, 'API_DATABASE_POOL'),
    logLevel: readVariable(env, 'LOG_LEVEL'),
    networks: readNetworkSettings(env),
    receiptKeyFile: readVariable(env, 'RECEIPT_KEY_FILE'),
    /** Whether to create a missing key file. */
    createReceiptKeys: readVariable(env, 'NODE_ENV') !== 'production',
    /**
     * Number of threads that check payers' signatures; 0: the serving thread checks them. One CPU is left to the serving thread, which
     * can't keep more than four other threads busy. `availableParallelism` counts the CPUs that a container's limit or an affinity leaves
     * to the process.
     */
    signatureThreads: Math.min(4, availableParallelism() - 1),
    tracing: readTraceSettings(env),
    gateway: {
      issuer: readVariable(env, 'PUBLIC_URL') ?? `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
      platformWallet: requireVariable(env, 'PLATFORM_WALLET'),
      feeSchedule: readVariable(env, 'FEE_SCHEDULE'),
      minimumPrices: Object.fromEntries(readVariable(env, 'MINIMUM_PRICES_USDC') ?? []),
      offerTimeoutSeconds,
      macaroonSecrets: requireVariable(env, 'MACAROON_SECRETS'),
      macaroonNotBefore: readVariable(env, 'MACAROON_NOT_BEFORE') ?? 0,
      // A buyer's balance must cover everything that the buyer has not settled yet.
      checkBalance: true,
      balanceTtlMs,
      payerCaps: {
        payer: readVariable(env, 'PAYER_UNSETTLED_CAP_USDC'),
        newPayer: readVariable(env, 'NEW_PAYER_UNSETTLED_CAP_USDC'),
      },
      tabs: readTabs(env),
      providerCap: readVariable(env, 'PROVIDER_UNSETTLED_CAP_USDC'),
      contractTimeoutMs: contractWalletTimeoutMs,
      settleBeforeServe: readSettleBeforeServe(env),
      settleBeforeServeTimeoutMs: readVariable(env, 'SETTLE_BEFORE_SERVE_TIMEOUT_MS'),
      triggers: readTriggerSettings(env),
      gasTokenUsd: readVariable(env, 'ETH_USD'),
      gasAllowance: readVariable(env, 'GAS_ALLOWANCE_USD'),
      gasPerFee: readGasPerFee(env),
      priorityFeePerGas: readPriorityFee(env),
      maxIndexLagBlocks,
      publicQueue: readVariable(env, 'PUBLIC_QUEUE'),
      retentionDays: readVariable(env, 'RETENTION_DAYS'),
      discovery: readVariable(env, 'DISCOVERY'),
      rateLimits: readRateLimits(env),
      registration: readRegistration(env),
      trustedProxies: readVariable(env, 'TRUSTED_PROXIES'),
      webhookAllowPrivate: readVariable(env, 'WEBHOOK_ALLOW_PRIVATE'),
      operatorKeyHashes: readVariable(env, 'OPERATOR_KEY_HASHES') ?? [],
      mail: readMail(env),
      upstream: { allowPrivate: readVariable(env, 'UPSTREAM_ALLOW_PRIVATE'), ...upstreamLimits },
      metricsToken: readVariable(env, 'METRICS_TOKEN'),
      traceUrlTemplate: readVariable(env, 'TRACE_URL_TEMPLATE'),
      operator: {
        name: readVariable(env, 'OPERATOR_NAME'),
        address: readVariable(env, 'OPERATOR_ADDRESS'),
        taxId: readVariable(env, 'OPERATOR_TAX_ID'),
      },
      fiat: readFiat(env),
    } satisfies GatewaySettings,
  }
}

function readRegistration(env: Environment): Registration {
  const mode = readVariable(env, 'REGISTRATION')
  const token = readVariable(env, 'REGISTRATION_TOKEN')
  if (mode === 'open' && token !== null) {
    throw new ConfigError('REGISTRATION', 'token or closed, because REGISTRATION_TOKEN is set', mode)
  }
  if (mode === 'token') return { mode, token: requireVariable(env, 'REGISTRATION_TOKEN') }
  if (mode === 'closed') return { mode }
  return { mode, limits: readVariable(env, 'RATE_LIMITS') ? registrationsAnHour : null }
}

/**
 * A payer's credit grows by a tenth of everything that the payer has settled. So bad debt stays below a tenth of what was settled, and below the
 * budgets (docs/security.md).
 */
const creditBasisPoints = 1_000n

/**
 * Share of the platform's part of a tab, in basis points, that the settling keeper receives, so that independent keepers also settle tabs.
 */
const tabRewardShare = 1_000

function readTabs(env: Environment): TabSettings | null {
  const earnedHours = readVariable(env, 'TABS')
  if (earnedHours === null) return null
  return {
    earnedHours,
    credit: { base: readVariable(env, 'TAB_CREDIT_USDC'), basisPoints: creditBasisPoints },
    budget: readVariable(env, 'TAB_BUDGET_USDC'),
    rewardShare: tabRewardShare,
  }
}

function readRateLimits(env: Environment): RateLimits | null {
  if (!readVariable(env, 'RATE_LIMITS')) return null
  const ofAddress = readVariable(env, 'RATE_LIMIT_ADDRESS')
  return { ...fixedRateLimits, challenge: ofAddress, verify: ofAddress, other: ofAddress }
}

function readFiat(env: Environment): FiatSettings | null {
  const [ratesFile, currency] = [readVariable(env, 'FIAT_RATES_FILE'), readVariable(env, 'FIAT_CURRENCY')]
  return ratesFile === null ? null : { ratesFile, currency }
}

function readMail(env: Environment): MailSettings | null {
  const [url, from] = [readVariable(env, 'SMTP_URL'), readVariable(env, 'MAIL_FROM')]
  return url === null ? null : { url, from: from ?? requireVariable(env, 'MAIL_FROM') }
}

function readSettleBeforeServe(env: Environment): bigint | null {
  const name = 'SETTLE_BEFORE_SERVE_USDC'
  const price = readVariable(env, name)
  // The keeper may let a payment below TRIGGER_HIGH_VALUE_USDC wait for an hour, which is too long to wait before serving.
  if (price !== null && price < readVariable(env, 'TRIGGER_HIGH_VALUE_USDC')) {
    throw new ConfigError(
      name,
      'at least TRIGGER_HIGH_VALUE_USDC, from which payments settle at once',
      formatUsdc(price),
    )
  }
  return price
}
