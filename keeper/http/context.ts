import { createChainReads } from '@tollkeeper/chain/chainReads'
import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createGasMeter } from '@tollkeeper/chain/gasShares'
import { checkSignaturesHere } from '@tollkeeper/chain/payerSignatures'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createAccept } from '@tollkeeper/ledger/acceptance/acceptance'
import { createPayers } from '@tollkeeper/ledger/acceptance/payers'
import { createTraceRecorder } from '@tollkeeper/ledger/acceptance/traces'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { Logger } from '@tollkeeper/runtime/log'
import type { RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import type { Tracer } from '@tollkeeper/runtime/trace'
import type { Address } from 'viem'
import type { Checkpoint } from '../settings/checkpoints.ts'
import type { KeeperConfig } from '../settings/config.ts'
import { createListings } from './facilitator/listing.ts'
import { createOpenLimit } from './facilitator/openLimit.ts'
import { createSettlementWatch } from './settleNow/watch.ts'

/** How long we rely on what payers owe. A balance is fresher: it comes with each nonce that we ask about. */
const standingTtlMs = 30_000
/** How long a contract wallet may take to answer. */
const contractTimeoutMs = 2_000

type HttpOptions = Pick<
  KeeperConfig,
  | 'platformWallets'
  | 'settings'
  | 'facilitator'
  | 'discovery'
  | 'submitLimits'
  | 'submitTimeoutMs'
  | 'trustedProxies'
> & {
  database: Database
  networks: readonly ServedNetwork[]
  /** The wallets that pay the gas. */
  accounts: readonly { address: Address }[]
  rateLimiter: RateLimiter
  log: Logger
  tracer: Tracer | null
  now: () => Date
  checkpoint?: Checkpoint
  /** Tells the workers that there is something to do. */
  wake: () => void
  /** Aborted when the process stops: callers that wait are answered then. Default: it never stops. */
  stopping?: AbortSignal
}

/** What the keeper's doors for signed money work with: x402's facilitator, and `POST /submit`. */
export type HttpContext = ReturnType<typeof createHttpContext>

export function createHttpContext({ database, settings, facilitator, ...options }: HttpOptions) {
  const { platformWallets, submitLimits, submitTimeoutMs, trustedProxies, rateLimiter, log, tracer } = options
  const { now, wake, checkpoint = () => {}, stopping = new AbortController().signal } = options
  const [platformWallet] = platformWallets
  if (platformWallet === undefined) throw new TypeError('A keeper needs a platform wallet')
  const clock = () => now().getTime()
  let isWaking = false
  return {
    platformWallets,
    submitLimits,
    submitTimeoutMs,
    trustedProxies,
    rateLimiter,
    tracer,
    sql: database,
    served: options.networks,
    networks: new Map(
      options.networks.map((served) => {
        const reads = createChainReads(served)
        const payers = createPayers(served, reads, {
          database,
          checkBalance: true,
          caps: { payer: null, newPayer: null },
          balanceTtlMs: standingTtlMs,
          now: clock,
        })
        const limits = gasLimitsOf(served.network, settings)
        const meter = createGasMeter(served, { ...settings, ...limits }, now)
        return [served.network.chainId, { served, reads, payers, meter, gasPerFee: limits.gasPerFee }]
      }),
    ),
    accept: createAccept(database),
    recordTrace: tracer ? createTraceRecorder(database, log) : () => {},
    watch: createSettlementWatch(database, stopping),
    stopping,
    signatures: { payerSignatures: checkSignaturesHere, contractTimeoutMs },
    /** Whom fees would go to; of the facilitator there are none, and it only says with what else a payment may share a batch. */
    platformWallet,
    settings: facilitator,
    /** What all callers without a grant may draw for gas a UTC day, together. USDC base units. */
    gasAllowance: settings.gasAllowance,
    openLimit: createOpenLimit(database, facilitator.maxOpen),
    /** The wallets that send the transactions. */
    signers: options.accounts.map(({ address }) => address),
    /** Null: nothing is listed here. */
    listings: options.discovery && createListings(database, { log, now: clock }),
    windowMs: settings.triggers.windowMs,
    /** Tells the workers in how many milliseconds something will be due. */
    wakeIn(ms: number) {
      if (isWaking) return
      isWaking = true
      setTimeout(() => {
        isWaking = false
        wake()
      }, ms).unref()
    },
    wake,
    checkpoint,
    now,
  }
}

/** A network, and what is remembered of its payers. */
export type HttpNetwork = ReturnType<typeof networkOf>

export function networkOf({ networks }: HttpContext, { network: { chainId, name } }: ServedNetwork) {
  const network = networks.get(chainId)
  if (!network) throw new Error(`${name} is served without its payers`)
  return network
}
